"""A queue on a disk in memory whose log is shortened all the time: work, snapshots in slices, retention, rewriting.

It performs the steps of the host and its maintenance one after the other, and records the state of the queue after
each. A test can then cut the power anywhere and compare the recovered state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.core import policy
from penstock.core.job import Draft
from penstock.core.tube import Tube
from penstock.journal.history.index import SegmentIndex
from penstock.journal.log import ALWAYS
from penstock.journal.maintenance.retention import Retention, trim, without_bodies
from penstock.journal.maintenance.snapshot import Snapshot, use_snapshot
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import FrameFile, index_name, number_of, segment_names
from penstock.testing.disk import MemoryDisk
from tests.journal.engine_state import picture
from tests.journal.random_commands import Script

WALL = 1_700_000_000_000
SEGMENT = 64 * 1024


class Known(NamedTuple):
    """The state of a queue after `effects` effects on the disk, and whether all of it was acknowledged."""

    effects: int
    state: dict[str, Any]
    acknowledged: bool
    integers: dict[int, int]  # The next integer of each tube, by tube number.


class LargeBodies(Script):
    """The commands of Script with bodies that soon fill a segment."""

    once = True  # Whether at-most-once jobs may be put.

    def draft(self, tube: Tube) -> Draft:
        draft = super().draft(tube)
        draft.body = self.chance.randbytes(self.chance.choice([0, 200, 2_000, 9_000]))
        draft.once = draft.once and self.once
        return draft


class Life:
    """One open of a queue on a disk, with the known state after each step."""

    def __init__(self, disk: MemoryDisk, seed: int, fsync: str = ALWAYS, boot: str = "boot") -> None:
        self.disk = disk
        self.boot = boot
        self.known: list[Known] = []
        opened = open_log(disk, lambda: WALL, boot, fsync=fsync, segment_bytes=SEGMENT)
        self.engine, self.log = opened.engine, opened.log
        self.script = LargeBodies(self.engine, seed)
        # After a power cut it is unknown whether they were delivered, and then they are buried.
        self.script.once = fsync == ALWAYS
        self.chance = self.script.chance
        self.now = self.engine.now
        self._remember(acknowledged=True)

    def work(self, steps: int) -> None:
        """Execute some steps, each with its own commit, as the host does."""
        log = self.log
        for _ in range(steps):
            self.now += self.chance.choice([0, 0, 1, 100])
            self.engine.advance(self.now)
            self.script.step(self.now)
            log.commit(self.now, self.now)
            self._remember(acknowledged=False)
            if self.chance.random() < 0.3:
                log.prepare()
            # A host that has not acknowledged anything yet has not synced yet: other calls come in between.
            if self.chance.random() < (0.7 if log.fsync == ALWAYS else 0.1):
                self.sync()

    def sync(self) -> None:
        """Make everything so far durable."""
        self.log.make_durable(self.log.written)
        self._remember(acknowledged=True)

    def take_snapshot(self, steps: int, abandoned: bool = False) -> None:
        """Take a snapshot in slices of a few rows, with work between them."""
        snapshot = Snapshot(self.disk, self.log, self.engine, self.now, self.now, rows_max=6)
        more = True
        while more:
            more = snapshot.slice(self.now, self.now)
            snapshot.write(self.now, self.now, last=not more)
            self.work(self.chance.randrange(steps))
        if abandoned:
            snapshot.abandon()
            return
        snapshot.finish()
        for _ in use_snapshot(self.disk, self.engine, snapshot.number):
            self.work(self.chance.randrange(steps))

    def tidy(self, history_bytes: int, bodies: bool) -> None:
        """Delete history that need not be kept, and index the rest, as maintenance does."""
        trim(self.disk, self.log, Retention(bytes_max=history_bytes), self.now)
        while not bodies and without_bodies(self.disk, self.log):
            pass
        for name in segment_names(self.disk):
            if number_of(name) < self.log.segment and index_name(number_of(name)) not in self.disk.names():
                write_index(self.disk, name)

    def _remember(self, acknowledged: bool) -> None:
        integers = {tube.number: tube.next_local for tube in self.engine.tubes.values() if not tube.temporary}
        state = picture(self.engine, restarted=True)
        self.known.append(Known(len(self.disk.effects), state, acknowledged, integers))


def write_index(disk: MemoryDisk, name: str) -> None:
    """Create the index of a full segment."""
    with FrameFile(disk, name) as file:
        index = SegmentIndex(file.header)
        for piece in file.pieces():
            index.add(piece)
    disk.replace(index_name(number_of(name)), index.encode(lambda: None))


def reopen(disk: MemoryDisk, boot: str = "another boot", memory_max: int = 1 << 40) -> Opened:
    """Open the queue on a disk."""
    return open_log(disk, lambda: WALL, boot, segment_bytes=SEGMENT, memory_max=memory_max)


def busy(disk: MemoryDisk, fsync: str = ALWAYS) -> Opened:
    """Return a queue with one durable job in its first segment, and with the second segment created ahead."""
    opened = open_log(disk, lambda: WALL, "boot", fsync=fsync, segment_bytes=SEGMENT)
    put(opened, b"first")
    opened.log.make_durable(opened.log.written)
    opened.log.prepare()
    return opened


def put(opened: Opened, body: bytes, wall: int = WALL) -> int:
    """Put a job, and return its integer."""
    engine = opened.engine
    job = engine.put(engine.create_tube(b"t", policy.FIFO, engine.now), Draft(body), engine.now)
    opened.log.commit(engine.now, wall)
    return job.local
