"""After a power cut while a log is shortened, the queue opens with a prefix that has all acknowledged changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import islice

import pytest

from penstock._build import is_compiled
from penstock.core import policy
from penstock.core import states as s
from penstock.core.job import Draft
from penstock.journal.history.reader import Event, Reader
from penstock.journal.log import ALWAYS, NEVER_SYNC
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk, crashes
from penstock.testing.invariants import check
from tests.journal.engine_state import picture
from tests.journal.shortened_queue import SEGMENT, WALL, Known, Life, busy, put, reopen

# Test one in this many writes, and one in this many ways in which a write can be torn. All other effects on the disk
# are always tested. The compiled build has time for more.
WRITES_LOOKED_AT = 4 if is_compiled() else 12
TORN_LOOKED_AT = 30 if is_compiled() else 90


def life_of_a_shortened_log(disk: MemoryDisk, seed: int, fsync: str) -> Life:
    """Return a life with snapshots of a busy and of an idle queue, some abandoned, and with various histories."""
    life = Life(disk, seed, fsync, f"boot {seed}")
    chance = life.chance
    for _ in range(4):
        life.work(chance.randrange(10))
        life.take_snapshot(chance.choice([1, 3]), abandoned=chance.random() < 0.2)
        life.tidy(chance.choice([0, 0, 50_000, 150_000]), bodies=chance.random() < 0.5)
    life.work(5)
    return life


def moments(disk: MemoryDisk) -> Iterator[int]:
    """Yield the numbers of effects after which the power is cut."""
    writes = 0
    for count, effect in enumerate(disk.effects, 1):
        writes += effect.what == "write"
        if effect.what != "write" or writes % WRITES_LOOKED_AT == 0:
            yield count


def losses(disk: MemoryDisk, count: int) -> Iterator[MemoryDisk]:
    """Yield disks after a power cut: only synced bytes, all bytes, and some with torn or partial writes."""
    left = crashes(disk, count)
    yield from islice(left, 2)
    yield from islice(left, count % TORN_LOOKED_AT, None, TORN_LOOKED_AT)


def check_goes_on(disk: MemoryDisk, opened: Opened, known: Known) -> None:
    """Check that a recovered queue can be used: integers continue after those issued, and new jobs are kept."""
    engine, log = opened.engine, opened.log
    for tube in engine.tubes.values():
        assert tube.next_local >= known.integers.get(tube.number, 0), "an integer would be issued twice"
    check(engine)
    engine.put(engine.create_tube(b"after", policy.FIFO, engine.now), Draft(b"put after the crash"), engine.now)
    log.commit(engine.now, WALL)
    log.make_durable(log.written)
    expected = picture(engine, restarted=True)
    again = reopen(disk)
    assert picture(again.engine, restarted=False) == expected
    assert again.warnings == []
    check_history(disk)


def nameless(event: Event) -> Event:
    return dataclasses.replace(event, actor_name=None, actor_user=None)


def check_history(disk: MemoryDisk) -> None:
    """Check that the history of each job equals its events in the log.

    A client that changes its name within a segment has its last name there in the history.
    """
    reader = Reader(disk)
    told: dict[str, list[Event]] = {}
    for event in reader.events():
        if event.job is not None:
            told.setdefault(event.job, []).append(nameless(event))
    for job, events in told.items():
        found = [nameless(event) for event in reader.history(reader._ids.parse_long(job.encode()))]
        assert found and found == events[-len(found) :]


@pytest.mark.parametrize("fsync", [ALWAYS, NEVER_SYNC])
@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_while_the_log_is_shortened_leaves_everything_acknowledged(fsync: str, seed: int) -> None:
    disk = MemoryDisk()
    cases = 0
    seen: set[str] = set()
    for number in range(3):
        life = life_of_a_shortened_log(disk, seed + 10 * number, fsync)
        known = life.known
        for count in moments(disk):
            done = [index for index, moment in enumerate(known) if moment.effects <= count]
            least = max((index for index in done if known[index].acknowledged), default=0)
            allowed = [moment.state for moment in known[least : len(done) + 1]]
            effect = disk.effects[count - 1]
            seen.add(effect.what)
            where = f"life {number}, effect {count}: {effect.what} {effect.name}"
            for way, crashed in enumerate(losses(disk, count)):
                if way == 1:
                    # Nothing was lost, as if the process had been killed while the machine continued.
                    killed = reopen(crashed.copy(), life.boot)
                    assert picture(killed.engine, restarted=False) in allowed, where
                opened = reopen(crashed)
                assert picture(opened.engine, restarted=False) in allowed, where
                if done and cases % 3 == 0:
                    check_goes_on(crashed, opened, known[len(done) - 1])
                cases += 1
        disk = disk.copy()
    assert seen == {"create", "write", "sync", "truncate", "rename", "names", "remove"}
    assert cases > (300 if is_compiled() else 150)


def test_a_segment_made_ahead_whose_frames_are_lost_is_no_gap_before_the_next() -> None:
    disk = MemoryDisk()
    opened = busy(disk)
    while opened.log.segment == 1:
        put(opened, bytes(3_000))
    opened.log.begin_snapshot(WALL, WALL)
    # The second segment has no position in its header, but the third has, because it was created when it was needed.
    assert opened.log.segment == 3
    engine = reopen(next(crashes(disk, len(disk.effects)))).engine
    assert [engine.outbox.body_of(job) for job in engine.jobs.scan(0, 10)] == [b"first"]


def test_two_snapshots_of_an_idle_queue_leave_no_gap() -> None:
    disk = MemoryDisk()
    opened = busy(disk)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    expected = picture(opened.engine, restarted=True)
    assert picture(reopen(disk.copy()).engine, restarted=False) == expected
    # This also holds if the newer of the two was abandoned.
    disk.remove(snapshot_names(disk)[-1])
    assert picture(reopen(disk).engine, restarted=False) == expected


@pytest.mark.parametrize("history", ["kept", "removed"])
def test_a_job_put_after_a_snapshot_and_a_crash_is_kept(history: str) -> None:
    """The segment of the snapshot was created ahead and has no frame yet. The next open must not start before it."""
    disk = MemoryDisk()
    opened = busy(disk)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    if history == "removed":
        disk.remove(segment_names(disk)[0])
    again = reopen(disk)
    put(again, b"second")
    again.log.make_durable(again.log.written)
    engine = reopen(disk, "a third boot").engine
    assert [engine.outbox.body_of(job) for job in engine.jobs.scan(0, 10)] == [b"first", b"second"]


@pytest.mark.parametrize("orderly", [0, 1, 2])
def test_integers_issued_after_a_snapshot_and_lost_are_not_issued_again(orderly: int) -> None:
    """This also holds after lives that ended in order and issued no integers."""
    disk = MemoryDisk()
    opened = busy(disk, NEVER_SYNC)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    given = [put(opened, b"lost") for _ in range(5)]
    disk = next(crashes(disk, len(disk.effects)))
    for life in range(orderly):
        open_log(disk, lambda: WALL, f"boot {life}", fsync=NEVER_SYNC, segment_bytes=SEGMENT).log.close(WALL, WALL)
    assert put(reopen(disk), b"next") > max(given)


def test_an_at_most_once_job_is_doubtful_even_if_no_row_follows_the_snapshot() -> None:
    disk = MemoryDisk()
    opened = busy(disk, NEVER_SYNC)
    engine = opened.engine
    job = engine.put(engine.create_tube(b"once", policy.DISQUE, WALL), Draft(b"x", once=True), WALL)
    opened.log.commit(WALL, WALL)
    take_snapshot(disk, opened.log, engine, WALL, WALL)
    taken = engine.take(engine.connect(b"c" * 16).session, engine.tubes[b"once"], WALL)
    assert taken is job
    opened.log.commit(WALL, WALL)
    found = reopen(next(crashes(disk, len(disk.effects)))).engine.find(job.id, WALL)
    assert found is not None and s.STATE_NAMES[found.state] == "buried"
