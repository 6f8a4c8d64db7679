"""STAGE, PUBLISH and DISCARD, and a server that is killed while it publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..serving import Refusal, Server, Wire, decoded, pairs


def jobs(*bodies: Any) -> list[Any]:
    return [word for body in bodies for word in ("JOB", body)]


def bodies(wire: Wire, tube: bytes) -> list[bytes]:
    return [pairs(job)[b"body"] for job in wire.call("TAKE", tube, "COUNT", 1000)]


def test_jobs_of_a_stage_are_visible_when_it_is_published(wire: Wire, queue: bytes) -> None:
    assert wire.call("STAGE", queue, queue, "EXPIRE", "1h", "TTL", "1d", *jobs(1, 2), "DELAY", "1h", *jobs(3)) == 3
    assert wire.call("STAGE", queue, queue, *jobs(4)) == 4
    stats = pairs(wire.call("TUBE", "STATS", queue))
    assert (stats[b"staged"], stats[b"ready"], wire.call("TAKE", queue)) == (4, 0, [])
    assert [wire.call("PUBLISH", queue) for _ in range(2)] == [4, 4]
    assert bodies(wire, queue) == [b"1", b"3", b"4"]
    assert pairs(wire.call("TUBE", "STATS", queue))[b"delayed"] == 1


def test_stages_are_published_together_or_not_at_all(wire: Wire, queue: bytes) -> None:
    names = [b"%s %d" % (queue, number) for number in range(3)]
    for name in names[:2]:
        wire.call("STAGE", name, queue, *jobs(name))
    with pytest.raises(Refusal, match=r"^NOSTAGE "):
        wire.call("PUBLISH", *names)
    assert bodies(wire, queue) == []
    assert wire.call("PUBLISH", names[1], names[0]) == 2
    assert bodies(wire, queue) == [names[1], names[0]]


def test_discarded_jobs_are_never_delivered(wire: Wire, queue: bytes) -> None:
    wire.call("STAGE", queue, queue, *jobs(1, 2))
    assert [wire.call("DISCARD", queue, "never there") for _ in range(2)] == [2, 0]
    with pytest.raises(Refusal, match=r"^STAGEOVER "):
        wire.call("STAGE", queue, queue, *jobs(3))
    with pytest.raises(Refusal, match=r"^NOSTAGE "):
        wire.call("PUBLISH", queue)


def test_a_large_stage_is_published_while_others_work(wire: Wire, wires: Callable[[], Wire], queue: bytes) -> None:
    other = wires()
    for _ in range(3):
        wire.call("STAGE", queue, queue, *jobs(*range(3_000)))
    wire.send("PUBLISH", queue)
    assert other.call("PING") == b"PONG"
    assert decoded(wire.read()) == 9_000
    assert pairs(wire.call("TUBE", "STATS", queue))[b"ready"] == 9_000


def test_disque_sees_a_job_that_waits_for_its_replicas(wire: Wire, queue: bytes) -> None:
    wire.call("STAGE", queue, queue, *jobs(1))
    [id] = wire.call("JSCAN", "QUEUE", queue, "STATE", "wait-repl", "BUSYLOOP")[1]
    assert wire.state(id) == b"wait-repl" and wire.call("QLEN", queue) == 0
    assert wire.call("ACKJOB", id) == wire.call("ENQUEUE", id) == wire.call("DEQUEUE", id) == 0
    assert wire.call("DELJOB", id) == 1 and wire.call("PUBLISH", queue) == 0


def test_a_published_stage_survives_a_kill(start: Callable[..., Server]) -> None:
    server = start()
    wire = server.connect()
    wire.call("STAGE", "kept", "t", *jobs(*range(2_000)))
    wire.call("STAGE", "lost", "t", "EXPIRE", "1h", *jobs("x"))
    # The test does not wait for the second reply: all of the stage is published, or nothing.
    wire.call("PUBLISH", "kept")
    wire.send("PUBLISH", "lost")
    server.kill()
    wire = start().connect()
    assert wire.call("PUBLISH", "kept") == 2_000
    stats = pairs(wire.call("TUBE", "STATS", "t"))
    assert (stats[b"ready"], stats[b"staged"]) in ((2_000, 1), (2_001, 0))
    assert wire.call("PUBLISH", "lost") == 1
    assert pairs(wire.call("TUBE", "STATS", "t"))[b"ready"] == 2_001


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["STAGE", "s", "t"], "ERR wrong number"),
        (["STAGE", "s", "t", "JOB"], "ERR wrong number"),
        (["STAGE", "s", "t", "DELAY", "5"], "SYNTAX the command has no job"),
        (["STAGE", "s", "t", "EXPIRE", "soon", "JOB", "x"], "RANGE"),
        (["STAGE", "s", "t", "EXPIRE", "forever", "JOB", "x"], "RANGE"),
        (["STAGE", "s", "t", "DELY", "5", "JOB", "x"], "SYNTAX .*did you mean DELAY"),
        (["STAGE", "", "t", "JOB", "x"], "BADNAME"),
        (["STAGE", "s", "", "JOB", "x"], "BADNAME"),
        (["STAGE", "s", "t", "JOB", "x", "UNIQUE", "u"], "UNSUPPORTED"),
        (["STAGE", "s", "t", "JOB", "x", "DEDUP", "d"], "UNSUPPORTED"),
        (["PUBLISH"], "ERR wrong number"),
        (["PUBLISH", "no such stage"], "NOSTAGE"),
    ],
)
def test_bad_words_are_refused_and_make_nothing(wire: Wire, queue: bytes, words: list[Any], code: str) -> None:
    tube = b"made by " + queue
    with pytest.raises(Refusal, match=f"^{code}"):
        wire.call(*[tube if word == "t" else word for word in words])
    with pytest.raises(Refusal, match=r"^NOTUBE "):
        wire.call("TUBE", "INFO", tube)


def test_a_client_that_lost_the_reply_of_a_stage_can_repeat_it(wire: Wire, queue: bytes) -> None:
    with pytest.raises(Refusal, match=r"^NOTUBE "):
        wire.call("STAGE", queue, queue, "EXISTING", *jobs(1))
    wire.call("TUBE", "CREATE", queue, "TYPE", "fifo")
    assert [wire.call("STAGE", queue, queue, "EXISTING", "AFTER", 0, *jobs(1, 2)) for _ in range(2)] == [2, 2]
    assert [wire.call("STAGE", queue, queue, "AFTER", 2, *jobs(3)) for _ in range(2)] == [3, 3]
    with pytest.raises(Refusal, match=r"^STAGEOVER .* has 3 jobs, not 1;"):
        wire.call("STAGE", queue, queue, "AFTER", 1, *jobs(4))
    assert wire.call("STAGE", queue, queue, "AFTER", 3) == 3  # Without jobs, this is a query.
    with pytest.raises(Refusal, match=r"^STAGEOVER .* has 3 jobs, not 4;"):
        wire.call("STAGE", queue, queue, "AFTER", 4)
    wire.call("PUBLISH", queue)
    assert bodies(wire, queue) == [b"1", b"2", b"3"]


def test_work_that_is_done_again_is_published_once(start: Callable[..., Server]) -> None:
    server = start()
    wire = server.connect()
    for name in ("first", "second"):
        wire.call("STAGE", name, "q", *jobs(name))
    assert [wire.call("PUBLISHONCE", "batch 7", "first") for _ in range(2)] == [1, 1]
    server.kill()
    wire = start().connect()
    assert wire.call("PUBLISHONCE", "batch 7", "second", "never there") == 1
    with pytest.raises(Refusal, match=r"^STAGEOVER "):
        wire.call("STAGE", "second", "q", *jobs("late"))
    assert bodies(wire, b"q") == [b"first"]
    wire.call("STAGE", "open", "q", *jobs(1))
    with pytest.raises(Refusal, match=r"^STAGEOVER .* is a stage, not a mark"):
        wire.call("PUBLISHONCE", "open", "open")
