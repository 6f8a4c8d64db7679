"""After a failed sync, the system has unwritten bytes in memory only, and regards them as written."""

from __future__ import annotations

import errno

import pytest

from penstock.core.errors import JournalFailed
from penstock.journal.log import FSYNC_CHOICES
from penstock.journal.recovery.opening import Opened
from penstock.journal.segment import segment_names
from penstock.testing.disk import MemoryDisk, crashes
from tests.journal.shortened_queue import busy, put, reopen


def fail(opened: Opened, disk: MemoryDisk) -> None:
    disk.sync_error = OSError(errno.EIO, "the disk is broken")
    with pytest.raises(JournalFailed):
        opened.log.make_durable(opened.log.written)
    opened.log.close(0, 0)
    disk.sync_error = None


def count(opened: Opened) -> int:
    return opened.engine.jobs.count


@pytest.mark.parametrize("fsync", FSYNC_CHOICES)
@pytest.mark.parametrize("bodies", [[10], [10, 30_000, 30_000, 10], [30_000] * 9], ids=["a frame", "two files", "many"])
def test_rows_found_under_the_same_boot_are_on_disk_after_an_open(fsync: str, bodies: list[int]) -> None:
    disk = MemoryDisk()
    opened = busy(disk, fsync)
    for length in bodies:
        put(opened, bytes(length))
    fail(opened, disk)
    again = reopen(disk, "boot")
    assert count(again) == 1 + len(bodies)
    for cut in crashes(disk, len(disk.effects)):
        assert count(reopen(cut, "another boot")) == 1 + len(bodies)


def test_rows_found_after_a_failed_sync_are_not_damage_after_a_power_cut() -> None:
    disk = MemoryDisk()
    opened = busy(disk)
    put(opened, b"second")
    fail(opened, disk)
    again = reopen(disk, "boot")
    put(again, b"third")
    again.log.make_durable(again.log.written)
    assert count(reopen(next(crashes(disk, len(disk.effects))))) == 3


def test_a_queue_whose_disk_still_fails_does_not_open() -> None:
    disk = MemoryDisk()
    opened = busy(disk)
    put(opened, b"second")
    fail(opened, disk)
    before = {name: disk.read(name).rstrip(b"\0") for name in segment_names(disk)}
    disk.sync_error = OSError(errno.EIO, "the disk is broken")
    with pytest.raises(JournalFailed, match="the disk is broken"):
        reopen(disk, "boot")
    assert before == {name: disk.read(name).rstrip(b"\0") for name in segment_names(disk)}
