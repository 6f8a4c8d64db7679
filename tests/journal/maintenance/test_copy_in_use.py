"""A directory that is copied or checked while it is in use: the copy opens, and only real damage is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core import policy
from penstock.core.job import Draft
from penstock.journal.history.reader import Reader
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.retention import Retention, trim
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.recovery.repair import examine
from penstock.journal.segment import segment_names
from penstock.testing.disk import MemoryDisk
from tests.journal.changing_disk import ChangingDisk
from tests.journal.shortened_queue import SEGMENT, WALL, reopen


class InUse:
    """An open queue with a snapshot, some history before it and a log after it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.opened: Opened = open_log(self.disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
        self.engine, self.log = self.opened.engine, self.opened.log
        self.put()
        self.snapshot()
        self.fill()
        self.log.prepare()

    def put(self, length: int = 300) -> None:
        tube = self.engine.create_tube(b"t", policy.FIFOTTL, WALL)
        self.engine.put(tube, Draft(bytes(length)), WALL)
        self.log.commit(WALL, WALL)
        self.log.make_durable(self.log.written)

    def fill(self) -> None:
        """Put until the log has reached the segment after the next one."""
        segment = self.log.segment
        while self.log.segment < segment + 2:
            self.put(20_000)
        self.log.prepare()

    def snapshot(self) -> None:
        take_snapshot(self.disk, self.log, self.engine, WALL, WALL)

    def shorten(self) -> None:
        """Take a snapshot, and delete all history."""
        self.put()
        self.snapshot()
        trim(self.disk, self.log, Retention(bytes_max=0), WALL)
        self.put()

    def puts(self) -> None:
        self.put()
        self.put()

    def close(self) -> None:
        self.log.close(WALL, WALL)

    def half(self) -> Callable[[], None]:
        """Write the first half of a frame. Return a function that writes the rest and another frame."""
        file = self.disk.files[segment_names(self.disk)[-2]]
        before = bytes(file)
        self.put(20_000)
        after = bytes(file)
        begin = len(before.rstrip(b"\0"))
        middle = (begin + len(after.rstrip(b"\0"))) // 2
        file[middle:] = before[middle:]

        def rest() -> None:
            file[:] = after
            self.puts()

        return rest


def ids(opened: Opened) -> set[int]:
    return {job.id for job in opened.engine.jobs.scan(0, 10_000)}


ACTS: dict[str, Callable[[InUse], None]] = {
    "it puts": InUse.puts,
    "it goes on to other segments": InUse.fill,
    "it shortens its log": InUse.shorten,
    "it shortens its log twice": lambda queue: (queue.shorten(), queue.fill(), queue.shorten())[0],
    "it is closed": InUse.close,
}


def every_step(act: Callable[[InUse], None], look: Callable[[InUse, ChangingDisk], None]) -> None:
    """Run a callback before each step of a reader, one after the other."""
    quiet = ChangingDisk(InUse().disk)
    look(InUse(), quiet)
    for step in range(1, quiet.steps + 1):
        queue = InUse()
        seen = ChangingDisk(queue.disk, {step: lambda queue=queue: act(queue)})  # type: ignore[misc]
        try:
            look(queue, seen)
        except BaseException as error:
            error.add_note(f"before step {step}")
            raise


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_copy_opens_and_has_everything_from_before_its_start(act: Callable[[InUse], None]) -> None:
    def look(queue: InUse, disk: ChangingDisk) -> None:
        before = ids(queue.opened)
        target = MemoryDisk()
        copied = copy_log(disk, target)
        assert copied.files == len(target.names())
        again = reopen(target)
        assert before <= ids(again)
        assert again.warnings == []
        assert len(list(Reader(target).events(copied.first))) >= copied.last - copied.first + 1

    every_step(act, look)


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_files_that_are_being_written_or_removed_are_not_reported_as_damaged(act: Callable[[InUse], None]) -> None:
    def look(queue: InUse, disk: ChangingDisk) -> None:
        assert examine(disk, "boot") == []

    every_step(act, look)


@pytest.mark.parametrize("look", [lambda disk: copy_log(disk, MemoryDisk()) and [], lambda disk: examine(disk, "boot")])
def test_an_incomplete_frame_is_not_damage_if_it_is_complete_a_moment_later(
    look: Callable[[ChangingDisk], list[str]],
) -> None:
    quiet = ChangingDisk(InUse().disk)
    look(quiet)
    for step in range(1, quiet.steps + 1):
        for later in (1, 2, 3, 5):
            queue = InUse()
            disk = ChangingDisk(queue.disk)

            def half(queue: InUse = queue, disk: ChangingDisk = disk, at: int = step + later) -> None:
                disk.happens[at] = queue.half()

            disk.happens[step] = half
            assert look(disk) == []


def test_a_copy_of_hundreds_of_segments_has_few_of_them_open_at_a_time() -> None:
    queue = InUse()
    for _ in range(250):
        queue.put()
        queue.log.begin_snapshot(WALL, WALL)
    disk = ChangingDisk(queue.disk)
    target = MemoryDisk()
    copied = copy_log(disk, target)
    assert copied.files > 250 and disk.open_files_max < 110 and disk.open_files == 0
    assert ids(reopen(target)) == ids(queue.opened)
