"""A snapshot that was taken during work, together with the log since its start, equals the whole log."""

from __future__ import annotations

import dataclasses
import random

import pytest

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.job import Draft
from penstock.journal.maintenance.snapshot import Snapshot, use_snapshot
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.engine_state import picture
from tests.journal.random_commands import Script

WALL = 1_700_000_000_000
SEGMENT = 64 * 1024


def reopen(disk: MemoryDisk, memory_max: int = 1 << 40) -> Opened:
    return open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT, memory_max=memory_max)


class Life:
    """One open of a queue: random work, with snapshots between its steps."""

    def __init__(self, disk: MemoryDisk, seed: int, memory_max: int = 1 << 40) -> None:
        self.disk = disk
        self.opened = reopen(disk, memory_max)
        self.script = Script(self.opened.engine, seed)
        self.chance = random.Random(seed)
        self.memory_max = memory_max
        self.now = self.opened.engine.now

    def work(self, steps: int) -> None:
        """Execute some steps, each with its own commit."""
        engine, log = self.opened.engine, self.opened.log
        for _ in range(steps):
            self.now += self.chance.choice([0, 0, 1, 100])
            log.writer.memory_left = self.memory_max - engine.resident_bytes
            engine.advance(self.now)
            self.script.step(self.now)
            log.commit(self.now, self.now)
        log.make_durable(log.written)

    def take_snapshot(self, steps: int) -> None:
        """Take a snapshot in slices of a few rows, with work between them."""
        snapshot = Snapshot(self.disk, self.opened.log, self.opened.engine, self.now, self.now, rows_max=3)
        more = True
        while more:
            more = snapshot.slice(self.now, self.now)
            snapshot.write(self.now, self.now, last=not more)
            self.work(self.chance.randrange(steps))
        snapshot.finish()
        for _ in use_snapshot(self.disk, self.opened.engine, snapshot.number):
            self.work(self.chance.randrange(steps))


def without_newest(disk: MemoryDisk) -> MemoryDisk:
    """Remove the newest snapshot, as if it had never been taken."""
    bare = disk.copy()
    bare.remove(snapshot_names(bare)[-1])
    return bare


def trim(disk: MemoryDisk) -> MemoryDisk:
    """Remove all files that the newest snapshot replaces."""
    newest = snapshot_names(disk)[-1]
    trimmed = disk.copy()
    for name in segment_names(disk):
        if name.replace("segment", "snapshot") < newest:
            trimmed.remove(name)
    for name in snapshot_names(disk)[:-1]:
        trimmed.remove(name)
    return trimmed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("memory_max", [1 << 40, 2_000])
def test_a_snapshot_and_the_log_since_it_began_are_the_whole_log(seed: int, memory_max: int) -> None:
    disk = MemoryDisk()
    for life in range(3):
        alive = Life(disk, seed * 10 + life, memory_max)
        alive.work(60)
        alive.take_snapshot(4)
        alive.work(20)
        known = picture(alive.opened.engine, restarted=True)
        trimmed = trim(disk)
        whole, from_snapshot = reopen(without_newest(disk)), reopen(trimmed, memory_max)
        assert picture(whole.engine, restarted=False) == known
        assert picture(from_snapshot.engine, restarted=False) == known
        assert from_snapshot.warnings == []
        check(from_snapshot.engine)
        assert from_snapshot.engine.next_front <= whole.engine.next_front
        assert from_snapshot.engine.last_creation >= whole.engine.last_creation
        assert from_snapshot.engine.next_number >= whole.engine.next_number
        disk = trimmed.copy()


def test_a_tube_that_is_dropped_at_any_moment_of_a_snapshot_leaves_the_dedup_ids_of_other_tubes_in_it() -> None:
    moment, complete = 0, False
    while not complete:
        disk = MemoryDisk()
        opened = reopen(disk)
        engine = opened.engine
        for name in (b"a", b"b"):
            tube = engine.create_tube(name, p.FIFO, WALL)
            for number in range(3):
                engine.delete(engine.put(tube, Draft(b"", dedup=b"%d" % number), WALL), WALL)
        snapshot = Snapshot(disk, opened.log, engine, WALL, WALL, rows_max=1)
        slices, more = 0, True
        while more:
            if slices == moment:
                engine.drop(engine.tubes[b"a"], WALL)
            more = snapshot.slice(WALL, WALL)
            snapshot.write(WALL, WALL, last=not more)
            slices += 1
        snapshot.finish()
        dedups = reopen(disk).engine.tubes[b"b"].dedups
        assert dedups is not None and [dedup for dedup, _, _ in dedups.entries()] == [b"0", b"1", b"2"]
        complete = slices <= moment
        moment += 1
    assert moment > 10


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("snapshot", [True, False])
def test_numbers_that_jobs_brought_and_their_states_survive(ended: bool, snapshot: bool) -> None:
    """A crash uses up the integers that the tube had reserved, but none of the numbers that jobs may bring."""
    disk = MemoryDisk()
    life = Life(disk, 1)
    engine, log = life.opened.engine, life.opened.log
    policy = dataclasses.replace(p.FIFO, first_integer=1_000, after_ack=p.KEPT)
    tube = engine.create_tube(b"moved", policy, life.now)
    states = {3: s.READY, 7: s.BURIED, 256: s.DONE, 999: s.READY}
    for number, state in states.items():
        engine.put(tube, Draft(b"%d" % number, number=number, arrives=state), life.now)
    assert engine.put(tube, Draft(b"counted"), life.now).local == 1_000
    log.commit(life.now, life.now)
    if snapshot:
        life.take_snapshot(1)
    log.make_durable(log.written)
    if ended:
        log.close(life.now, life.now)
    engine = reopen(disk).engine
    check(engine)
    tube = engine.tube(b"moved")
    found = {number: engine.find_local(tube, number, engine.now) for number in states}
    assert {number: (job.body, int(job.state)) for number, job in found.items() if job} == {
        number: (b"%d" % number, state) for number, state in states.items()
    }
    assert engine.put(tube, Draft(b"late", number=4), engine.now).local == 4
    assert engine.put(tube, Draft(b"counted, too"), engine.now).local >= 1_001
    check(engine)
