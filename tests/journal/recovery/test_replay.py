"""A replay of the log equals the engine that wrote it, with any number of tubes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core import policy
from penstock.core.job import Draft
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.maintenance.walk import SLICE_ROWS, SLICE_TUBES, EngineWalk
from penstock.journal.recovery.opening import open_log
from penstock.journal.rows import RowWriter
from penstock.testing.disk import MemoryDisk
from tests.journal.shortened_queue import WALL, reopen

COUNTED = replace(policy.UTUBETTL, key_stats=("a", "b"))


@pytest.mark.parametrize("snapshots", [[], [0], [1], [2], [0, 1, 2]])
def test_a_job_that_returns_with_another_key_is_counted_for_both_keys(snapshots: list[int]) -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    session = engine.connect(b"session").session
    tube = engine.create_tube(b"t", COUNTED, WALL)
    engine.put(tube, Draft(b"x", key=b"a"), WALL)
    # From a counted key to another, to one that is not counted, and back; and once while it is buried and dug up.
    for step, key in enumerate((b"b", b"c", b"a")):
        job = engine.take(session, tube, WALL)
        assert job is not None
        engine.release(session, job, WALL, key=key)
        job = engine.take(session, tube, WALL)
        assert job is not None
        engine.bury(session, job, WALL)
        engine.dig(job, WALL, key=b"b" if step == 1 else None)
        log.commit(WALL, WALL)
        if step in snapshots:
            take_snapshot(disk, log, engine, WALL, WALL)
    log.make_durable(log.written)
    restored = reopen(disk).engine.tubes[b"t"]
    for name, stats in tube.key_stats.items():
        known = restored.key_stats[name]
        assert [before + now for before, now in zip(known.counts_before, known.counts, strict=True)] == stats.counts
        assert known.states == stats.states


def test_a_walk_needs_no_slice_for_tubes_without_remembered_puts() -> None:
    engine = open_log(MemoryDisk(), lambda: WALL, "boot").engine
    for number in range(3_000):
        engine.create_tube(b"%d" % number, policy.FIFO, WALL)
    engine.put(engine.tubes[b"7"], Draft(b"x", dedup=b"once"), WALL)
    writer = RowWriter(1)
    walk = EngineWalk(engine, writer, WALL)
    slices = 0
    while walk.slice(1, WALL):
        slices += 1
    assert slices < 3_000 // SLICE_ROWS + 3_000 // SLICE_TUBES + 10


def test_tubes_that_were_dropped_leave_no_remembered_put_behind() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    for _ in range(2):
        tube = engine.create_tube(b"t", policy.FIFO, WALL)
        engine.put(tube, Draft(b"x", dedup=b"once"), WALL)
        assert tube.total() == 1
        engine.drop(tube, WALL)
    log.commit(WALL, WALL)
    engine = reopen(disk).engine
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    engine.put(tube, Draft(b"x", dedup=b"once"), WALL)
    assert tube.total() == 1
