"""Statistics in the form that clients of the originals read. Each event is counted once."""

from __future__ import annotations

import dataclasses

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Draft
from penstock.core.outbox import Outbox
from penstock.core.states import OK
from penstock.dialects.tarantool import queue15_functions, queue_functions
from penstock.dialects.xqueue import statuses

NOW = 1_000_000


def test_the_stats_of_a_space_are_those_of_xqueues_own_example() -> None:
    """The example counts since start and has one task from before: six were put, and seven ended."""
    engine = Engine(1, NOW, Outbox())
    policy = dataclasses.replace(p.XQUEUE, keys=p.KEYS_TAGGED, key_stats=("B", "A", "C"))
    space = engine.create_tube(b"queue", policy, NOW)
    session = engine.connect(b"t" * 16).session
    engine.put(space, Draft(b"", key=b"B"), NOW)
    for counted in (space, *space.key_stats.values()):
        counted.counts_before, counted.counts = counted.counts, [0] * s.RULES_COUNT

    for _ in range(6):
        engine.put(space, Draft(b"", key=b"B"), NOW)
    for number in range(7):
        job = engine.take(session, space, NOW, b"B")
        assert job is not None
        done = engine.ack(session, job, NOW) if number < 4 else engine.release(session, job, NOW, key=b"C")
        assert done == OK
    for number in range(19):
        job = engine.take(session, space, NOW, b"C")
        assert job is not None
        assert (engine.release(session, job, NOW) if number < 16 else engine.ack(session, job, NOW)) == OK

    nothing = {"R": 0, "T": 0, "W": 0, "B": 0, "D": 0, "Z": 0}
    assert statuses.space_stats(space) == {
        "counts": nothing,
        "transition": {"X-R": 6, "R-T": 26, "T-R": 19, "T-X": 7},
        "tube": {
            "A": {"counts": nothing, "transition": {}},
            "B": {"counts": nothing, "transition": {"X-R": 6, "R-T": 7, "T-S": 3, "T-X": 4}},
            "C": {"counts": nothing, "transition": {"R-T": 19, "T-R": 16, "S-R": 3, "T-X": 3}},
        },
    }


def test_a_move_between_tubes_counts_as_s_in_both() -> None:
    engine = Engine(1, NOW, Outbox())
    here, there = (engine.create_tube(name, p.FIFO, NOW) for name in (b"here", b"there"))
    session = engine.connect(b"t" * 16).session
    engine.put(here, Draft(b"x"), NOW)
    job = engine.take(session, here, NOW)
    assert job is not None and engine.move(session, job, there, NOW) == OK
    assert statuses.space_stats(here)["transition"] == {"X-R": 1, "R-T": 1, "T-S": 1}
    assert statuses.space_stats(there)["transition"] == {"S-R": 1}
    assert statuses.space_stats(there, pretty=True)["transition"] == {"S-R": 1}


def test_tarantools_statistics_count_each_event_once() -> None:
    engine = Engine(1, NOW, Outbox())
    tube = engine.create_tube(b"q", p.FIFOTTL, NOW)
    session = engine.connect(b"t" * 16).session
    for ttl_ms in (10, 10_000, 10_000, 10_000):
        engine.put(tube, Draft(b"x", ttl_ms=ttl_ms), NOW)
    engine.advance(NOW + 10)  # The first expires.
    job = engine.take(session, tube, NOW + 10)
    assert job is not None
    engine.touch(session, job, NOW + 10, 1_000)
    engine.ack(session, job, NOW + 10)
    job = engine.take(session, tube, NOW + 10)
    assert job is not None
    engine.delete(job, NOW + 10)
    assert queue_functions.statistics(tube) == {
        "tasks": {"ready": 1, "taken": 0, "buried": 0, "delayed": 0, "total": 1, "done": 3},
        "calls": {
            "put": 4,
            "take": 2,
            "ack": 1,
            "release": 0,
            "bury": 0,
            "kick": 0,
            "delete": 1,
            "touch": 1,
            "ttl": 1,
            "ttr": 0,
            "delay": 0,
        },
    }


def test_the_statistics_of_the_15_api_are_a_flat_list_of_strings() -> None:
    engine = Engine(1, NOW, Outbox())
    tube = engine.create_tube(b"q", p.QUEUE15, NOW)
    session = engine.connect(b"t" * 16).session
    assert queue15_functions.statistics(0, "q", tube, {}) == []
    engine.put(tube, Draft(b"a", ttl_ms=10), NOW)
    engine.put(tube, Draft(b"b", urgent=True), NOW)
    job = engine.take(session, tube, NOW)
    assert job is not None and job.body == b"b"
    engine.done(session, job, b"result", 0, NOW)
    engine.advance(NOW + 10)
    flat = queue15_functions.statistics(0, "q", tube, {"peek": 2, "meta": 0})
    assert all(isinstance(item, str) for item in flat)
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == {
        "space0.q.put": "1",
        "space0.q.urgent": "1",
        "space0.q.take": "1",
        "space0.q.done": "1",
        "space0.q.peek": "2",
        "space0.q.ttl.total": "1",
        "space0.q.ttl.ready": "1",
        "space0.q.tasks.total": "1",
        "space0.q.tasks.ready": "0",
        "space0.q.tasks.delayed": "0",
        "space0.q.tasks.taken": "0",
        "space0.q.tasks.buried": "0",
        "space0.q.tasks.done": "1",
    }


def test_a_priority_of_the_15_api_comes_back_as_it_was_set() -> None:
    assert [
        queue15_functions.from_engine_priority(queue15_functions.to_engine_priority(pri)) for pri in range(256)
    ] == list(range(256))
