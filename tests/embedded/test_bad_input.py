"""Bad input: a wrong type or a number out of range is refused with a stable code, and the queue does not change."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import penstock
from penstock.core.errors import WrongType

NOT_A_DURATION = [("1", "WRONGTYPE"), (True, "WRONGTYPE"), ([], "WRONGTYPE"), (1j, "WRONGTYPE")]
NOT_A_DURATION += [
    (-1, "RANGE"),
    (-0.001, "RANGE"),
    (math.nan, "RANGE"),
    (-math.inf, "RANGE"),
    (1e30, "RANGE"),
    (10**30, "RANGE"),
]
ENDLESS = [(None, "RANGE"), (math.inf, "RANGE")]  # Where "for ever" makes no sense.
NOT_A_COUNT = [("1", "WRONGTYPE"), (True, "WRONGTYPE"), (1.0, "WRONGTYPE"), (None, "WRONGTYPE")]
NOT_A_COUNT += [(0, "RANGE"), (-1, "RANGE"), (100_001, "RANGE"), (10**30, "RANGE")]
NOT_A_NUMBER = [("1", "WRONGTYPE"), (True, "WRONGTYPE"), (1.5, "WRONGTYPE"), ([], "WRONGTYPE")]
NOT_A_LABEL = [(5, "WRONGTYPE"), ([], "WRONGTYPE"), (bytearray(b"x"), "WRONGTYPE")]
NOT_A_LABEL += [("x" * 65_536, "BADNAME"), ("\udcff", "WRONGTYPE")]
NOT_A_FLAG = [("no", "WRONGTYPE"), (2, "WRONGTYPE"), ([], "WRONGTYPE")]
NOT_A_REASON = [(5, "WRONGTYPE"), (None, "WRONGTYPE"), ("x" * 4_097, "RANGE")]
NOT_A_RETRY = [(5, "WRONGTYPE"), (b"5x", "WRONGTYPE"), ("nonsense", "BADRETRY"), ("0x", "BADRETRY")]
EMPTY = [("", "BADNAME"), (b"", "BADNAME")]


class Nested(list[Any]):
    """Return a deeply nested list, which must not be shown in full."""

    def __repr__(self) -> str:
        return "<nested too deep>"


def nested() -> Nested:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return Nested(inner)


NOT_A_BODY = [
    (object(), "WRONGTYPE"),
    ({1}, "WRONGTYPE"),
    (math.nan, "WRONGTYPE"),
    ("\udcff", "WRONGTYPE"),
    (nested(), "WRONGTYPE"),
]


class Things:
    """Return a queue in use, with one object of each kind."""

    def __init__(self) -> None:
        self.queue = penstock.open()
        self.tube = self.queue.tube("tube", "utubettl")
        self.other = self.queue.tube("other")
        self.full = self.queue.tube("full", capacity=1)
        self.full.put("x")
        self.once = self.queue.tube("once", "disque")
        self.tube.put_many(["ready", "taken"], key="k")
        self.job = self.tube.take()
        self.waiting = self.tube.put("waiting", key="w")
        self.buried = self.tube.put("buried", key="b")
        self.buried.bury()
        self.done = self.other.put("done")
        self.other.take().done("done")
        self.other.put("claimed")
        self.other.claim("consumer", 1, 1)


def picture(queue: penstock.Queue) -> Any:
    """Return the visible state of a queue."""
    found: dict[str, Any] = {}
    for name in queue.tubes():
        tube = queue.tube(name)
        jobs = [job.meta() for state in ("ready", "taken", "delayed", "buried", "done") for job in tube.jobs(state)]
        bodies = [queue.job(meta["id"]).body for meta in jobs]
        for meta in jobs:
            del meta["now"]
        paused = (tube._core.paused_in, tube._core.paused_out)
        found[name] = (tube.policy, tube.stats(), tube.events(), jobs, bodies, paused)
    return found


def policy(**fields: Any) -> penstock.TubePolicy:
    """Return a custom policy. In the compiled build, its class checks the types itself."""
    try:
        return penstock.TubePolicy(**fields)
    except TypeError as error:
        raise WrongType(str(error)) from None


def cases() -> list[Any]:
    found: list[Any] = []

    def add(what: str, values: list[tuple[Any, str]], call: Any) -> None:
        found.append(pytest.param(call, values, id=what))

    add("open grace", NOT_A_DURATION, lambda t, v: penstock.open(grace=v))
    add("open max_body", [*NOT_A_NUMBER, (-1, "RANGE")], lambda t, v: penstock.open(max_body=v))
    add("open fsync", [("sometimes", "RANGE"), (5, "RANGE"), (None, "RANGE")], lambda t, v: penstock.open(fsync=v))
    add("open path", [(5, "WRONGTYPE"), (None, "WRONGTYPE")], lambda t, v: penstock.open(v))
    # Queue
    add("tube name", NOT_A_LABEL + EMPTY + [(None, "WRONGTYPE")], lambda t, v: t.queue.tube(v))
    add(
        "tube type",
        [(5, "WRONGTYPE"), (b"fifo", "WRONGTYPE"), ("lifo", "NOTYPE"), ("", "NOTYPE")],
        lambda t, v: t.queue.tube("new", v),
    )
    add(
        "job id",
        [(5, "WRONGTYPE"), (None, "WRONGTYPE"), (b"x", "WRONGTYPE"), ("", "BADID"), ("\udcff", "BADID")],
        lambda t, v: t.queue.job(v),
    )
    add("queue take count", NOT_A_COUNT, lambda t, v: t.queue.take([t.tube], v))
    add("queue take timeout", NOT_A_DURATION, lambda t, v: t.queue.take([t.tube], timeout=v))
    add(
        "queue take tubes",
        [([5], "WRONGTYPE"), (["tube"], "WRONGTYPE"), (5, "WRONGTYPE"), ("tube", "WRONGTYPE")],
        lambda t, v: t.queue.take(v),
    )
    add("queue take tubes, waiting", [([], "RANGE")], lambda t, v: t.queue.take(v, timeout=1))
    add("identify", [(5, "WRONGTYPE"), ("zz", "WRONGTYPE"), ("00", "NOSESSION")], lambda t, v: t.queue.identify(v))
    add("subscribe", [(5, "WRONGTYPE"), (None, "WRONGTYPE")], lambda t, v: t.queue.subscribe(v)())
    add("ack_claims consumer", NOT_A_LABEL + EMPTY, lambda t, v: t.queue.ack_claims(v, 0))
    add(
        "ack_claims upto",
        [*NOT_A_NUMBER, (2, "RANGE"), (10**30, "RANGE")],
        lambda t, v: t.queue.ack_claims("consumer", v),
    )
    add(
        "ack_claims token",
        [*NOT_A_NUMBER, (-1, "RANGE"), (10**30, "RANGE")],
        lambda t, v: t.queue.ack_claims("consumer", 1, token=v),
    )
    # Options of a tube
    for option in ("ttl", "ttr", "zombie", "dedup_window"):
        add(f"tube {option}", NOT_A_DURATION, lambda t, v, option=option: t.queue.tube("new", **{option: v}))
        add(f"alter {option}", NOT_A_DURATION, lambda t, v, option=option: t.other.alter(**{option: v}))
    add("tube ttr", [(0, "RANGE")], lambda t, v: t.queue.tube("new", ttr=v))
    add("tube zombie", [(math.inf, "RANGE")], lambda t, v: t.queue.tube("new", zombie=v))
    for option in ("key_limit", "capacity", "capacity_bytes", "dedup_count"):
        values = [*NOT_A_NUMBER, (-1, "RANGE"), (10**30, "RANGE")]
        add(f"tube {option}", values, lambda t, v, option=option: t.queue.tube("new", "utube", **{option: v}))
        add(f"alter {option}", values, lambda t, v, option=option: t.tube.alter(**{option: v}))
    add("tube key_limit", [(0, "RANGE")], lambda t, v: t.queue.tube("new", "utube", key_limit=v))
    add("tube priority", [*NOT_A_NUMBER, (2**53, "RANGE")], lambda t, v: t.queue.tube("new", priority=v))
    add("tube retry", NOT_A_RETRY, lambda t, v: t.queue.tube("new", retry=v))
    add(
        "tube max_deliveries",
        [*NOT_A_NUMBER, (0, "BADRETRY"), (10**9, "BADRETRY")],
        lambda t, v: t.queue.tube("new", max_deliveries=v),
    )
    add(
        "tube dead_letter",
        [(5, "WRONGTYPE"), ("", "BADRETRY")],
        lambda t, v: t.queue.tube("new", max_deliveries=2, dead_letter=v),
    )
    add(
        "tube ttl_while_taken",
        [("sleeps", "RANGE"), (5, "WRONGTYPE")],
        lambda t, v: t.queue.tube("new", ttl_while_taken=v),
    )
    for option in ("fair", "keep", "temporary"):
        add(f"tube {option}", NOT_A_FLAG, lambda t, v, option=option: t.queue.tube("new", "utube", **{option: v}))
    add(
        "policy",
        [("a", "WRONGTYPE"), (-1, "RANGE")],
        lambda t, v: t.queue.tube("new", policy(type="own", capacity=v)),
    )
    add("policy type", [(5, "WRONGTYPE")], lambda t, v: t.queue.tube("new", policy(type=v)))
    # Options of a put
    add("put body", NOT_A_BODY, lambda t, v: t.tube.put(v))
    add("put_many body", NOT_A_BODY, lambda t, v: t.tube.put_many(["fine", v]))
    add("put_many", [(5, "WRONGTYPE"), (None, "WRONGTYPE")], lambda t, v: t.tube.put_many(v))
    add("put_many count", [([b""] * 100_001, "RANGE")], lambda t, v: t.tube.put_many(v))
    add("put delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.tube.put("x", delay=v))
    add("put ttl", NOT_A_DURATION, lambda t, v: t.tube.put("x", ttl=v))
    add("put ttr", [*NOT_A_DURATION, (0, "RANGE")], lambda t, v: t.tube.put("x", ttr=v))
    add(
        "put priority", [*NOT_A_NUMBER, (2**53, "RANGE"), (-(2**53), "RANGE")], lambda t, v: t.tube.put("x", priority=v)
    )
    add("put key", NOT_A_LABEL, lambda t, v: t.tube.put("x", key=v))
    for option in ("name", "unique", "dedup"):
        add(f"put {option}", NOT_A_LABEL + EMPTY, lambda t, v, option=option: t.tube.put("x", **{option: v}))
    add("put retry", [*NOT_A_RETRY, ("", "BADRETRY")], lambda t, v: t.tube.put("x", retry=v))
    add("put urgent", NOT_A_FLAG, lambda t, v: t.tube.put("x", urgent=v))
    add("put once", NOT_A_FLAG, lambda t, v: t.once.put("x", once=v))
    add("put timeout", NOT_A_DURATION, lambda t, v: t.tube.put("x", timeout=v))
    add("put timeout, full", NOT_A_DURATION, lambda t, v: t.full.put("x", timeout=v))
    # Tube
    add("take timeout", NOT_A_DURATION, lambda t, v: t.tube.take(v))
    add("take timeout, empty", NOT_A_DURATION, lambda t, v: t.once.take(v))
    add("take key", NOT_A_LABEL, lambda t, v: t.tube.take(key=v))
    add("take ttr", [*NOT_A_DURATION, (0, "RANGE")], lambda t, v: t.tube.take(ttr=v))
    add("take_many count", NOT_A_COUNT, lambda t, v: t.tube.take_many(v))
    add("take_many timeout", NOT_A_DURATION, lambda t, v: t.tube.take_many(1, v))
    add("tube job id", [(5, "WRONGTYPE"), ("x", "BADID")], lambda t, v: t.tube.job(v))
    add("named", NOT_A_LABEL[:3] + NOT_A_LABEL[-1:], lambda t, v: t.tube.named(v))
    add(
        "jobs state",
        [(5, "RANGE"), ("gone", "RANGE"), ("", "RANGE"), (None, "RANGE"), ([], "RANGE")],
        lambda t, v: t.tube.jobs(v),
    )
    add("jobs limit", [*NOT_A_NUMBER, (-1, "RANGE")], lambda t, v: t.tube.jobs("ready", v))
    add("kick count", NOT_A_COUNT, lambda t, v: t.tube.kick(v))
    add("kick delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.tube.kick(delay=v))
    add("pause puts", NOT_A_FLAG, lambda t, v: t.tube.pause(puts=v))
    add("pause takes", NOT_A_FLAG, lambda t, v: t.tube.pause(takes=v))
    add("claim consumer", NOT_A_LABEL + EMPTY, lambda t, v: t.tube.claim(v, 1, 1))
    add(
        "claim number",
        [*NOT_A_NUMBER, (0, "RANGE"), (-1, "RANGE"), (7, "RANGE"), (10**30, "RANGE")],
        lambda t, v: t.tube.claim("new", v, 1),
    )
    add("claim count", NOT_A_COUNT, lambda t, v: t.tube.claim("new", 1, v))
    add("claim lease", NOT_A_DURATION + ENDLESS, lambda t, v: t.tube.claim("new", 1, 1, lease=v))
    add(
        "claim token",
        [*NOT_A_NUMBER, (-1, "RANGE"), (10**30, "RANGE")],
        lambda t, v: t.tube.claim("new", 1, 1, token=v),
    )
    # Job
    add("done", NOT_A_BODY, lambda t, v: t.job.done(v))
    add("release delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.job.release(v))
    add("release ttl", NOT_A_DURATION, lambda t, v: t.job.release(ttl=v))
    add("release priority", [*NOT_A_NUMBER, (2**53, "RANGE")], lambda t, v: t.job.release(priority=v))
    add("release key", NOT_A_LABEL, lambda t, v: t.job.release(key=v))
    add("nack reason", NOT_A_REASON, lambda t, v: t.job.nack(v))
    add("bury reason", NOT_A_REASON, lambda t, v: t.job.bury(v))
    add("touch", [*NOT_A_DURATION, (math.inf, "RANGE")], lambda t, v: t.job.touch(v))
    add("dig delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.buried.dig(v))
    add("snatch delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.job.snatch(v))
    add("restart delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.done.restart(v))
    add(
        "switch state",
        [("taken", "RANGE"), ("gone", "RANGE"), (5, "RANGE"), (None, "RANGE")],
        lambda t, v: t.waiting.switch(v),
    )
    add("switch delay", NOT_A_DURATION + ENDLESS + [(0, "RANGE")], lambda t, v: t.waiting.switch("delayed", v))
    add("move", [("other", "WRONGTYPE"), (None, "WRONGTYPE")], lambda t, v: t.waiting.move(v))
    add("move delay", NOT_A_DURATION + ENDLESS, lambda t, v: t.waiting.move(t.other, v))
    add("wait", NOT_A_DURATION, lambda t, v: t.waiting.wait(v))
    return found


@pytest.mark.parametrize(("call", "values"), cases())
def test_bad_input_is_refused_and_changes_nothing(call: Any, values: list[tuple[Any, str]]) -> None:
    complaints = []
    for value, code in values:
        things = Things()
        with things.queue:
            before = picture(things.queue)
            outcome = outcome_of(call, things, value)
            if outcome != code:
                complaints.append(f"{value!r:.40}: {outcome}, not {code}")
            elif picture(things.queue) != before:
                complaints.append(f"{value!r:.40}: refused, and yet something changed")
    assert not complaints, "\n".join(complaints)


def outcome_of(call: Any, things: Things, value: Any) -> str:
    """Return the code of a refusal, or the result of the call."""
    try:
        answer = call(things, value)
    except penstock.CommandError as refusal:
        assert str(refusal) and str(refusal)[-1] not in ":;,", "a refusal is a sentence"
        return refusal.code
    except Exception as error:
        return f"{type(error).__name__}({str(error)[:60]!r})"
    return f"answered {answer!r:.80}"


def refusals(of: type[penstock.CommandError] = penstock.CommandError) -> list[type[penstock.CommandError]]:
    kinds = [child for child in of.__subclasses__() if "code" in vars(child)]
    return [of, *(each for child in kinds for each in refusals(child))]


def test_every_refusal_has_a_code_of_its_own_and_a_sentence_that_says_what_to_do() -> None:
    assert len({refusal.code for refusal in refusals()}) == len(refusals()) > 20
    speechless = [refusal.__name__ for refusal in refusals() if " " not in str(refusal())]
    assert not speechless


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.queue.tube("new", ttll=5),
        lambda t: t.queue.tube("new", "fifo", unheard_of=None),
        lambda t: t.tube.alter(unheard_of=5),
        lambda t: t.tube.put("x", unheard_of=5),
        lambda t: t.tube.put_many(["x"], unheard_of=5),
        lambda t: t.tube.put_many(["x"], timeout=5),
        lambda t: t.tube.take(unheard_of=5),
        lambda t: t.job.release(unheard_of=5),
    ],
)
def test_an_unknown_option_is_named(call: Any) -> None:
    things = Things()
    with things.queue:
        before = picture(things.queue)
        with pytest.raises(TypeError, match=r"ttll|unheard_of|timeout"):
            call(things)
        assert picture(things.queue) == before


@pytest.mark.parametrize(
    ("retry", "where"),
    [
        ("5y", 2),
        ("exp(1s)", 7),
        ("5x then burry", 9),
        ("jitter", 1),
        ("5x exp(1s..10q)", 14),
        ("const(0s)", 7),
        ("", 1),
    ],
)
def test_an_invalid_retry_policy_is_refused_with_the_position_of_the_error(retry: str, where: int) -> None:
    with penstock.open() as queue, pytest.raises(penstock.CommandError, match=f"character {where},") as refusal:
        queue.tube("new").put("x", retry=retry)
    assert refusal.value.code == "BADRETRY"


def test_a_tube_given_for_a_list_of_tubes_is_refused_instead_of_emptied() -> None:
    with penstock.open() as queue:
        tube = queue.tube("one")
        job = tube.put("x")
        answers: list[Any] = []

        def take() -> None:
            try:
                answers.append(queue.take(tube))
            except (penstock.CommandError, TypeError) as error:
                answers.append(error)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        while thread.is_alive() and not queue._session.connection.waits:
            thread.join(0.001)
        assert job.state == "ready" and answers, "it iterates the tube, which takes from it for ever"
