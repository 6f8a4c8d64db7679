"""Invalid requests are refused with a stable code, and change nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from penstock.core import claims, errors
from penstock.core import policy as p
from penstock.core.errors import REFUSALS, CommandError, OtherRefusal, refuse
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import Draft
from penstock.core.limits import DURATION_MS_MAX, NAME_BYTES_MAX, NEVER, PRIORITY_MAX
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBE, TubePolicy, preset
from penstock.core.states import OK
from penstock.testing import check, digest

from .engine_harness import EngineHarness

HUGE = [2**63 - 1, 2**63, 10**30]


def unchanged(desk: EngineHarness, code: str, command: str, job_id: int, *args: object, **options: object) -> None:
    """Check that a command on one job returns this code, and that nothing has changed."""
    desk.engine.advance(desk.clock.ms)
    before = digest(desk.engine)
    assert desk.do(command, job_id, *args, **options) == code
    assert digest(desk.engine) == before


# Tubes


def test_an_unknown_tube_is_refused(desk: EngineHarness) -> None:
    for name in (b"nobody's", b"", b"\xff\x00", b"x" * 100_000):
        with desk.refuses("NOTUBE"):
            desk.engine.tube(name)


def test_a_dropped_tube_is_unknown(desk: EngineHarness) -> None:
    desk.engine.drop(desk.tube(FIFO), desk.clock.ms)
    with desk.refuses("NOTUBE"):
        desk.engine.tube(b"tube")


@pytest.mark.parametrize("name", [b"", b"x" * (NAME_BYTES_MAX + 1)])
def test_a_bad_name_is_refused(desk: EngineHarness, name: bytes) -> None:
    with desk.refuses("BADNAME"):
        desk.tube(FIFO, name)


def test_an_unknown_type_is_refused() -> None:
    for name in ("", "FIFO", "fifo ", "no such type"):
        with pytest.raises(errors.UnknownType) as refusal:
            preset(name)
        assert refusal.value.code == "NOTYPE"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"order": "backwards"}, "RANGE"),
        ({"keys": "many"}, "RANGE"),
        ({"owner": "me"}, "RANGE"),
        ({"bury_by": "nobody"}, "RANGE"),
        ({"ttl_while_taken": "sleeps"}, "RANGE"),
        ({"ttr_rule": "half"}, "RANGE"),
        ({"ids": "roman"}, "RANGE"),
        ({"after_ack": "burns"}, "RANGE"),
        ({"keys": p.KEYS_LIMITED, "key_limit": 0}, "RANGE"),
        ({"keys": p.KEYS_LIMITED, "key_limit": 10**30}, "RANGE"),
        ({"has_ttl": True, "default_ttl_ms": -2}, "RANGE"),
        ({"has_ttl": True, "default_ttl_ms": DURATION_MS_MAX + 1}, "RANGE"),
        ({"has_ttr": True, "default_ttr_ms": 0}, "RANGE"),
        ({"has_ttr": True, "default_ttr_ms": 2**63}, "RANGE"),
        ({"order": p.BY_PRIORITY, "default_priority": PRIORITY_MAX + 1}, "RANGE"),
        ({"capacity": -1}, "RANGE"),
        ({"default_ttl_ms": 1_000}, "UNSUPPORTED"),
        ({"default_ttr_ms": 1_000}, "UNSUPPORTED"),
        ({"default_priority": 1}, "UNSUPPORTED"),
        ({"key_limit": 2}, "UNSUPPORTED"),
        ({"retry": "as often as you like"}, "BADRETRY"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(desk: EngineHarness, fields: dict[str, object], code: str) -> None:
    policy = TubePolicy(type="odd", **fields)
    with desk.refuses(code):
        desk.tube(policy)


def test_a_value_that_is_not_a_policy_is_refused(desk: EngineHarness) -> None:
    before = digest(desk.engine)
    for wrong in ("fifo", None, {"type": "fifo"}):
        with pytest.raises((TypeError, AttributeError, CommandError)):
            desk.engine.create_tube(b"new", wrong, desk.clock.ms)
    assert digest(desk.engine) == before


def test_a_tube_cannot_be_created_again_with_another_policy(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    assert desk.tube(FIFO) is tube
    for other in (FIFOTTL, dataclasses.replace(FIFO, owner=p.ANYONE)):
        with desk.refuses("TUBEEXISTS"):
            desk.tube(other)


def test_a_tube_is_not_dropped_while_its_jobs_are_taken(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    job = desk.put(tube)
    desk.take(tube)
    with desk.refuses("TUBETAKEN"):
        desk.engine.drop(tube, desk.clock.ms)
    desk.do("release", job)
    desk.engine.drop(tube, desk.clock.ms)
    assert desk.state(job) == "gone"


@pytest.mark.parametrize("key", [None, b"a"])
def test_a_tube_is_not_dropped_while_a_client_waits_on_it(desk: EngineHarness, key: bytes | None) -> None:
    tube = desk.tube(UTUBE)
    wait = desk.wait(tube, key=key)
    with desk.refuses("TUBEAWAITED"):
        desk.engine.drop(tube, desk.clock.ms)
    desk.engine.cancel(wait)
    desk.engine.drop(tube, desk.clock.ms)


# Puts


def test_a_put_into_a_paused_tube_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    desk.engine.pause(tube, True, False, desk.clock.ms)
    for put in (lambda: desk.put(tube), lambda: desk.engine.put_many(tube, [Draft(b"")], desk.clock.ms)):
        with desk.refuses("PAUSED"):
            put()


@pytest.mark.parametrize("option", ["ttl_ms", "ttr_ms", "delay_ms"])
@pytest.mark.parametrize("value", [-2, -(2**63), DURATION_MS_MAX + 1, NEVER - 1, *HUGE])
def test_a_duration_that_is_negative_or_huge_is_refused(desk: EngineHarness, option: str, value: int) -> None:
    for policy, name in ((FIFOTTL, b"fifottl"), (DISQUE, b"disque")):
        tube = desk.tube(policy, name)
        with desk.refuses("RANGE"):
            desk.put(tube, **{option: value})


@pytest.mark.parametrize("value", [PRIORITY_MAX + 1, -PRIORITY_MAX - 1, -(2**63), *HUGE])
def test_a_priority_that_is_huge_is_refused(desk: EngineHarness, value: int) -> None:
    tube = desk.tube(FIFOTTL)
    with desk.refuses("RANGE"):
        desk.put(tube, priority=value)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (FIFO, {"ttl_ms": 1_000}),
        (FIFO, {"ttr_ms": 1_000}),
        (FIFO, {"delay_ms": 1_000}),
        (FIFO, {"priority": 1}),
        (FIFO, {"key": b"a"}),
        (FIFO, {"once": True}),
        (FIFO, {"same_body": True}),
        (FIFOTTL, {"key": b"a"}),
        (FIFOTTL, {"once": True}),
        (UTUBE, {"ttl_ms": 1_000}),
        (UTUBE, {"priority": 1}),
        (DISQUE, {"priority": 1}),
        (DISQUE, {"key": b"a"}),
    ],
)
def test_an_option_that_the_type_lacks_is_refused_by_name(
    desk: EngineHarness, policy: TubePolicy, options: dict[str, object]
) -> None:
    tube = desk.tube(policy)
    with desk.refuses("UNSUPPORTED"):
        desk.put(tube, **options)
    with pytest.raises(errors.Unsupported, match=policy.type):
        desk.put(tube, **options)


def test_a_disque_delay_that_outlasts_the_ttl_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(DISQUE)
    for delay in (10_000, 10_001):
        with desk.refuses("RANGE"):
            desk.put(tube, ttl_ms=10_000, delay_ms=delay)
    desk.put(tube, ttl_ms=10_000, delay_ms=9_999)


def test_a_batch_with_one_invalid_put_adds_no_job(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    good, bad = Draft(b"good"), Draft(b"bad", ttl_ms=-2)
    for drafts in ([bad, good], [good, bad], [good, good, bad, good]):
        with desk.refuses("RANGE"):
            desk.engine.put_many(tube, drafts, desk.clock.ms)


# Takes


def test_a_take_or_wait_with_an_option_that_the_tube_lacks_is_refused(desk: EngineHarness) -> None:
    fifo, utube = desk.tube(FIFO), desk.tube(UTUBE, b"utube")
    desk.put(fifo)
    for call in (
        lambda: desk.take(fifo, key=b"a"),
        lambda: desk.take(fifo, ttr_ms=5),
        lambda: desk.wait(fifo, key=b"a"),
        lambda: desk.wait(utube, ttr_ms=5),
        lambda: desk.wait(utube, fifo, key=b"a"),
    ):
        with desk.refuses("UNSUPPORTED"):
            call()


# Commands on one job


def test_an_id_that_names_no_job_is_refused(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube)
    for nobody in (job + 1, job - 1, 0, -1, 2**63 - 1, -(2**63)):
        for command in ("ack", "release", "nack", "bury", "touch", "delete", "dig"):
            unchanged(desk, "NOJOB", command, nobody)


def test_an_integer_id_of_another_tube_finds_no_job_in_this_one(desk: EngineHarness) -> None:
    one, other = desk.tube(FIFO), desk.tube(FIFO, b"other")
    desk.puts(one, 3)
    job = desk.put(other)
    assert desk.engine.find_local(other, 0, desk.clock.ms) is desk.job(job)
    for local in (1, 2, 3, -1, 2**63 - 1):
        assert desk.engine.find_local(other, local, desk.clock.ms) is None
    assert desk.engine.find_local(desk.tube(DISQUE, b"disque"), 0, desk.clock.ms) is None


def test_a_forged_id_is_distinguished_from_the_id_of_an_ended_job(desk: EngineHarness) -> None:
    forms = IdForms(b"0123abcd", b"k" * 32)
    job = desk.put(desk.tube(DISQUE))
    real = forms.long(job, 1441)
    forged = real[:20] + (b"A" if real[20:21] != b"A" else b"B") + real[21:]
    assert forms.parse_long(forged) == NOT_AN_ID
    desk.do("ack", forms.parse_long(real))
    unchanged(desk, "NOJOB", "ack", forms.parse_long(real))


@pytest.mark.parametrize("command", ["ack", "release", "nack", "touch"])
def test_another_session_may_not_finish_a_taken_job(desk: EngineHarness, command: str) -> None:
    tube, stranger = desk.tube(FIFOTTL), desk.connect()
    job = desk.put(tube)
    desk.take(tube)
    unchanged(desk, "NOTOWNER", command, job, by=stranger)


@pytest.mark.parametrize("command", ["ack", "release", "nack", "touch"])
def test_a_job_that_is_not_taken_cannot_be_finished(desk: EngineHarness, command: str) -> None:
    tube = desk.tube(FIFOTTL)
    jobs = [desk.put(tube), desk.put(tube, delay_ms=50), desk.put(tube)]
    desk.do("bury", jobs[2])
    for job in jobs:
        unchanged(desk, "NOTTAKEN", command, job)


def test_a_second_ack_is_refused(desk: EngineHarness) -> None:
    for policy in (FIFO, FIFOTTL, UTUBE, DISQUE):
        tube = desk.tube(policy, policy.type.encode())
        job = desk.put(tube)
        desk.take(tube)
        assert desk.do("ack", job) == "OK"
        unchanged(desk, "NOJOB", "ack", job)


@pytest.mark.parametrize("command", ["ack", "release", "nack", "touch"])
def test_a_command_after_the_ttr_is_refused(desk: EngineHarness, command: str) -> None:
    tube = desk.tube(FIFOTTL)
    job = desk.put(tube, ttr_ms=100)
    desk.take(tube)
    desk.clock.advance(100)
    unchanged(desk, "NOTTAKEN", command, job)
    assert desk.take(tube, by=desk.connect()) == job
    unchanged(desk, "NOTOWNER", command, job)


def test_a_touch_needs_a_ttr(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    job = desk.put(tube)
    desk.take(tube)
    with desk.refuses("UNSUPPORTED"):
        desk.do("touch", job)


@pytest.mark.parametrize("options", [{"delay_ms": 5}, {"ttl_ms": 5}, {"priority": 5}])
def test_a_release_or_dig_with_an_option_that_the_tube_lacks_is_refused(
    desk: EngineHarness, options: dict[str, int]
) -> None:
    tube = desk.tube(FIFO)
    taken, buried = desk.put(tube), desk.put(tube)
    desk.take(tube)
    desk.do("bury", buried)
    for command, job in (("release", taken), ("dig", buried)):
        with desk.refuses("UNSUPPORTED"):
            desk.do(command, job, **options)


def test_only_a_buried_job_can_be_dug(desk: EngineHarness) -> None:
    tube = desk.tube(FIFOTTL)
    ready, delayed, taken = desk.put(tube, priority=9), desk.put(tube, delay_ms=50), desk.put(tube)
    assert desk.take(tube) == taken
    for job in (ready, delayed, taken):
        unchanged(desk, "NOTBURIED", "dig", job)


def test_a_kick_of_zero_jobs_is_refused_and_a_kick_without_buried_jobs_returns_zero(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    desk.put(tube)
    for count in (0, -1, -(2**63), *HUGE):
        with desk.refuses("RANGE"):
            desk.engine.kick(tube, count, desk.clock.ms)
    before = digest(desk.engine)
    assert desk.engine.kick(tube, 5, desk.clock.ms) == 0
    assert digest(desk.engine) == before


def test_an_unknown_session_cannot_be_joined(desk: EngineHarness) -> None:
    for token in (b"", b"guess", b"x" * 1_000):
        with desk.refuses("NOSESSION"):
            desk.engine.identify(desk.me, token, desk.clock.ms)


def test_a_refused_claim_leaves_no_consumer_behind(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    with desk.refuses("RANGE"):
        claims.claim(desk.engine, b"nobody", 1, 7, tube, 10, 1_000, desk.clock.ms)
    with desk.refuses("RANGE"):
        claims.ack_claims(desk.engine, b"nobody", 1, 7, desk.clock.ms)


# The codes themselves


def refusals() -> list[type[CommandError]]:
    """Return all classes of refusals, except the one for unknown codes of servers of other versions."""
    kinds: list[type[CommandError]] = []
    waiting = [CommandError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        kinds += [kind] if kind.__module__.startswith("penstock.core") and kind is not OtherRefusal else []
    return kinds


def test_every_refusal_has_its_own_code() -> None:
    codes = [kind.code for kind in refusals()]
    assert len(codes) > 15 and sorted(codes) == sorted(set(codes))
    assert all(code.isupper() and code.isalnum() for code in codes)


@pytest.mark.parametrize("outcome", range(1, len(REFUSALS)))
def test_refuse_raises_the_refusal_of_an_outcome(outcome: int) -> None:
    with pytest.raises(REFUSALS[outcome]):
        refuse(outcome)
    assert outcome != OK


@pytest.mark.parametrize("body", [b"", b"\0" * 10, bytes(range(256))])
def test_any_bytes_can_be_a_body(desk: EngineHarness, body: bytes) -> None:
    tube = desk.tube(FIFO)
    assert desk.job(desk.put(tube, body)).body == body


Step = Callable[[EngineHarness], object]


def test_a_refused_command_changes_no_other_job_and_no_wait(desk: EngineHarness) -> None:
    """There are waits, and taken, delayed and buried jobs. A refusal changes none of them."""
    tube = desk.tube(dataclasses.replace(FIFOTTL, keys=p.KEYS_LIMITED))
    for key in (b"a", b"a", b"b"):
        desk.put(tube, key=key, ttl_ms=5_000)
    desk.put(tube, delay_ms=100)
    desk.do("bury", desk.put(tube, key=b"c"))
    job = desk.take(tube)
    assert job is not None
    desk.take(tube)
    desk.wait(tube)
    desk.wait(tube, key=b"b", timeout_ms=400)
    with desk.refuses("RANGE"):
        desk.do("release", job, delay_ms=-5)
    with desk.refuses("RANGE"):
        desk.do("touch", job, 2**63)
    with desk.refuses("TUBEAWAITED"):
        desk.engine.drop(tube, desk.clock.ms)
    with desk.refuses("BADNAME"):
        desk.put(tube, key=b"x" * 70_000)
    check(desk.engine)
