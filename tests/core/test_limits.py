"""Every limit holds at its boundary, and no number enters the engine that does not fit, compiled or not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import limits
from penstock.core.errors import CommandError, OutOfRange, WrongType
from penstock.core.job import Draft
from penstock.core.limits import (
    BATCH_JOBS_MAX,
    DURATION_MS_MAX,
    LOCAL_IDS_BLOCK,
    LOCAL_IDS_BLOCK_MAX,
    NAME_BYTES_MAX,
    NEVER,
    PRIORITY_MAX,
    REASON_BYTES_MAX,
    SCAN_EXAMINED_MAX,
    WAIT_TUBES_MAX,
    WAITS_PER_CONNECTION_MAX,
    duration_ms,
)
from penstock.core.policy import FIFO, FIFOTTL, UTUBE
from penstock.testing import digest

from .engine_harness import EngineHarness

DoorCall = Callable[[EngineHarness, object], object]


def taken(desk: EngineHarness) -> int:
    desk.put(desk.tube(FIFOTTL))
    job = desk.take(desk.tube(FIFOTTL))
    assert job is not None
    return job


def buried(desk: EngineHarness) -> int:
    job = desk.put(desk.tube(FIFOTTL))
    assert desk.do("bury", job) == "OK"
    return job


# Commands with a duration, and whether it may be unlimited.
DURATIONS: dict[str, tuple[bool, DoorCall]] = {
    "ttl of a put": (True, lambda desk, ms: desk.put(desk.tube(FIFOTTL), ttl_ms=ms)),
    "ttr of a put": (True, lambda desk, ms: desk.put(desk.tube(FIFOTTL), ttr_ms=ms)),
    "delay of a put": (False, lambda desk, ms: desk.put(desk.tube(FIFOTTL), delay_ms=ms)),
    "ttr of a take": (True, lambda desk, ms: desk.take(desk.tube(FIFOTTL), ttr_ms=ms)),
    "timeout of a wait": (True, lambda desk, ms: desk.wait(desk.tube(FIFOTTL), timeout_ms=ms)),
    "ttr of a wait": (True, lambda desk, ms: desk.wait(desk.tube(FIFOTTL), ttr_ms=ms)),
    "delay of a release": (False, lambda desk, ms: desk.do("release", taken(desk), delay_ms=ms)),
    "ttl of a release": (True, lambda desk, ms: desk.do("release", taken(desk), ttl_ms=ms)),
    "time of a touch": (False, lambda desk, ms: desk.do("touch", taken(desk), ms)),
    "delay of a dig": (False, lambda desk, ms: desk.do("dig", buried(desk), delay_ms=ms)),
    "ttl of a dig": (True, lambda desk, ms: desk.do("dig", buried(desk), ttl_ms=ms)),
    "delay of a kick": (False, lambda desk, ms: desk.engine.kick(desk.tube(FIFOTTL), 1, desk.clock.ms, ms)),
}
PRIORITIES: dict[str, DoorCall] = {
    "put": lambda desk, priority: desk.put(desk.tube(FIFOTTL), priority=priority),
    "release": lambda desk, priority: desk.do("release", taken(desk), priority=priority),
    "dig": lambda desk, priority: desk.do("dig", buried(desk), priority=priority),
}
COUNTS: dict[str, DoorCall] = {
    "take": lambda desk, n: desk.engine.take_many(desk.me.session, [desk.tube(FIFO)], n, desk.clock.ms),
    "wait": lambda desk, n: desk.wait(desk.tube(FIFO), count=n),
    "kick": lambda desk, n: desk.engine.kick(desk.tube(FIFO), n, desk.clock.ms),
    "scan": lambda desk, n: desk.engine.scan(0, n),
    "scan of tubes": lambda desk, n: desk.engine.scan_tubes(0, n),
}


@pytest.mark.parametrize("door", DURATIONS)
@pytest.mark.parametrize("ms", [1, DURATION_MS_MAX - 1, DURATION_MS_MAX, NEVER])
def test_a_duration_up_to_its_limit_is_accepted(desk: EngineHarness, door: str, ms: int) -> None:
    may_be_never, call = DURATIONS[door]
    if ms != NEVER or may_be_never:
        call(desk, ms)
        desk.pass_ms(1)


@pytest.mark.parametrize("door", DURATIONS)
@pytest.mark.parametrize(
    "ms", [-2, DURATION_MS_MAX + 1, NEVER - 1, NEVER + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, -(10**30)]
)
def test_a_duration_beyond_its_limit_is_refused(desk: EngineHarness, door: str, ms: int) -> None:
    with pytest.raises(OutOfRange):
        DURATIONS[door][1](desk, ms)


@pytest.mark.parametrize("door", [door for door, (may_be_never, _) in DURATIONS.items() if not may_be_never])
def test_a_duration_that_must_end_cannot_be_unlimited(desk: EngineHarness, door: str) -> None:
    with pytest.raises(OutOfRange):
        DURATIONS[door][1](desk, NEVER)


def test_a_ttr_of_zero_is_refused_everywhere(desk: EngineHarness) -> None:
    for door in ("ttr of a put", "ttr of a take", "ttr of a wait"):
        with pytest.raises(OutOfRange):
            DURATIONS[door][1](desk, 0)


@pytest.mark.parametrize("door", PRIORITIES)
def test_only_a_priority_within_53_bits_is_accepted(desk: EngineHarness, door: str) -> None:
    for good in (PRIORITY_MAX, PRIORITY_MAX - 1, 0, -PRIORITY_MAX):
        PRIORITIES[door](desk, good)
    for bad in (PRIORITY_MAX + 1, -PRIORITY_MAX - 1, 2**60 - 1, 2**63 - 1, 2**63, -(2**63), 10**30):
        with pytest.raises(OutOfRange):
            PRIORITIES[door](desk, bad)


@pytest.mark.parametrize("door", COUNTS)
def test_only_a_count_from_one_to_the_batch_limit_is_accepted(desk: EngineHarness, door: str) -> None:
    for good in (1, 2, BATCH_JOBS_MAX - 1, BATCH_JOBS_MAX):
        COUNTS[door](desk, good)
    for bad in (0, -1, BATCH_JOBS_MAX + 1, 2**63 - 1, 2**63, -(2**63), 10**30):
        with pytest.raises(OutOfRange):
            COUNTS[door](desk, bad)


def test_a_batch_of_puts_has_one_to_the_maximal_number_of_jobs(desk: EngineHarness) -> None:
    tube, draft = desk.tube(FIFO), Draft(b"")
    assert limits.check_count(BATCH_JOBS_MAX, "jobs") == BATCH_JOBS_MAX
    for drafts in ([], [draft] * (BATCH_JOBS_MAX + 1)):
        with desk.refuses("RANGE"):
            desk.engine.put_many(tube, drafts, desk.clock.ms)


def test_a_name_has_one_to_65535_bytes(desk: EngineHarness) -> None:
    for good in (b"x", b"\0", b"x" * (NAME_BYTES_MAX - 1), b"x" * NAME_BYTES_MAX):
        desk.tube(FIFO, good)
    for bad in (b"", b"x" * (NAME_BYTES_MAX + 1)):
        with desk.refuses("BADNAME"):
            desk.tube(FIFO, bad)


def test_a_key_has_up_to_65535_bytes(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    for good in (b"", b"x" * (NAME_BYTES_MAX - 1), b"x" * NAME_BYTES_MAX):
        desk.put(tube, key=good)
        assert desk.take(tube, key=good) is not None
    too_long = b"x" * (NAME_BYTES_MAX + 1)
    for call in (lambda: desk.put(tube, key=too_long), lambda: desk.take(tube, key=too_long)):
        with desk.refuses("BADNAME"):
            call()


def test_a_body_has_up_to_its_limit(desk: EngineHarness) -> None:
    desk.engine.body_bytes_max = 100
    tube = desk.tube(FIFO)
    for length in (0, 99, 100):
        desk.put(tube, b"x" * length)
    for call in (
        lambda: desk.put(tube, b"x" * 101),
        lambda: desk.engine.put_many(tube, [Draft(b"x"), Draft(b"x" * 101)], desk.clock.ms),
    ):
        with desk.refuses("TOOBIG"):
            call()


def test_a_reason_has_up_to_its_limit(desk: EngineHarness) -> None:
    job = desk.put(desk.tube(FIFO))
    with desk.refuses("RANGE"):
        desk.do("bury", job, b"x" * (REASON_BYTES_MAX + 1))
    assert desk.do("bury", job, b"x" * REASON_BYTES_MAX) == "OK"


def test_a_take_waits_on_one_to_1024_tubes(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    for count in (1, WAIT_TUBES_MAX - 1, WAIT_TUBES_MAX):
        desk.engine.cancel(desk.wait(*[tube] * count))
    for count in (0, WAIT_TUBES_MAX + 1):
        with desk.refuses("RANGE"):
            desk.wait(*[tube] * count)


def test_a_connection_has_up_to_1024_waits(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    waits = [desk.engine.wait(desk.me, [tube], desk.clock.ms) for _ in range(WAITS_PER_CONNECTION_MAX)]
    with pytest.raises(CommandError) as refusal:
        desk.wait(tube)
    assert refusal.value.code == "TOOMANYWAITS"
    desk.engine.cancel(waits[0])
    desk.wait(tube)
    desk.wait(tube, by=desk.connect())


def test_a_scan_examines_no_more_jobs_than_its_limit(desk: EngineHarness) -> None:
    """A filter that matches nothing returns a cursor, and does not block other clients."""
    tube, other = desk.tube(FIFO), desk.tube(FIFO, b"other")
    for _ in range(SCAN_EXAMINED_MAX + 2_000):
        desk.engine.put(tube, Draft(b""), desk.clock.ms)
    last = desk.put(other)
    found, cursor = desk.engine.scan(0, 10, other)
    assert found == [] and cursor > 0
    found, cursor = desk.engine.scan(cursor, 10, other)
    assert [job.id for job in found] == [last]


@pytest.mark.parametrize("cursor", [-1, 2**63, 10**30])
def test_a_cursor_that_no_scan_can_return_is_refused(desk: EngineHarness, cursor: int) -> None:
    with desk.refuses("RANGE"):
        desk.engine.scan(cursor, 10)


def test_integers_are_reserved_in_blocks(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)
    desk.put(tube)
    assert (tube.promised, tube.reserved) == (1 + LOCAL_IDS_BLOCK, 1 + 2 * LOCAL_IDS_BLOCK)
    for _ in range(LOCAL_IDS_BLOCK):
        desk.engine.put(tube, Draft(b""), desk.clock.ms)
    assert tube.promised == tube.next_local
    desk.put(tube)
    assert tube.promised == 1 + 2 * LOCAL_IDS_BLOCK


def test_a_busy_tube_reserves_larger_blocks_of_integers(desk: EngineHarness) -> None:
    tube = desk.tube(FIFO)

    def next_block() -> int:
        ceiling = tube.reserved
        while tube.reserved == ceiling:
            desk.engine.put(tube, Draft(b""), desk.clock.ms)
        return tube.reserved - tube.promised

    blocks = [next_block() for _ in range(9)]
    doubled = [LOCAL_IDS_BLOCK << times for times in range(9)]
    assert blocks == [min(block, LOCAL_IDS_BLOCK_MAX) for block in doubled]
    desk.clock.advance(1_000)
    assert next_block() == LOCAL_IDS_BLOCK


# Values that are not integers are refused. Compiled code raises TypeError for them.
NO_INTEGERS = [math.inf, "60", b"60", None]
DOORS: dict[str, DoorCall] = {
    **{door: call for door, (_, call) in DURATIONS.items()},
    **{f"priority of a {door}": call for door, call in PRIORITIES.items()},
    **{f"count of a {door}": call for door, call in COUNTS.items()},
}


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_a_value_that_is_not_an_integer_is_refused_by_every_command(value: object) -> None:
    let_in = []
    for door, call in DOORS.items():
        try:
            call(EngineHarness(), value)
        except (TypeError, CommandError):
            continue
        let_in.append(door)
    assert let_in == []


# Conversion of seconds


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (None, NEVER),
        (math.inf, NEVER),
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (1, 1_000),
        (1.5, 1_500),
        (0.07, 70),
        (60.1, 60_100),
        (0.0001, 1),
        (0.001, 1),
        (0.0011, 2),
        (1e-9, 1),
        (DURATION_MS_MAX // 1_000, DURATION_MS_MAX),
        (DURATION_MS_MAX / 1_000, DURATION_MS_MAX),
    ],
)
def test_seconds_are_converted_to_milliseconds_and_rounded_up(seconds: object, ms: int) -> None:
    assert duration_ms(seconds, "ttl") == ms


@given(st.integers(0, 10**9))
def test_a_whole_number_of_milliseconds_is_converted_exactly(ms: int) -> None:
    assert duration_ms(ms / 1_000, "ttl") == ms


@pytest.mark.parametrize(
    "seconds",
    [math.nan, -math.inf, -1, -0.001, 1e300, DURATION_MS_MAX // 1_000 + 1, 2**63 - 1, 2**63, -(2**63), 10**30],
    ids=repr,
)
def test_seconds_out_of_range_are_refused(seconds: object) -> None:
    with pytest.raises(OutOfRange):
        duration_ms(seconds, "ttl")


@pytest.mark.parametrize("seconds", [True, False, "60", b"60", [], {}, 1j], ids=repr)
def test_seconds_that_are_not_a_number_are_refused(seconds: object) -> None:
    with pytest.raises(WrongType):
        duration_ms(seconds, "ttl")


def test_a_refused_put_uses_up_no_id(desk: EngineHarness) -> None:
    """After any refused put, the next one gets the id that the refused one would have got."""
    tube = desk.tube(FIFOTTL)
    before = digest(desk.engine)
    for options in ({"ttl_ms": -2}, {"ttr_ms": 0}, {"delay_ms": 10**30}, {"priority": 2**63}, {"key": b"k"}):
        with pytest.raises(CommandError):
            desk.put(tube, **options)
    assert digest(desk.engine) == before
