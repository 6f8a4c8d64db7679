"""An incomplete snapshot is never used. An older one or the whole log is used instead, or the open is refused."""

from __future__ import annotations

import pytest

from penstock.core.errors import DamagedJournal
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.segment import SEGMENT_HEADER_BYTES, segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk
from tests.journal.shortened_queue import WALL, busy, put, reopen


def small_snapshot() -> tuple[MemoryDisk, str]:
    """Return a disk with two snapshots and the whole log, and the name of the newer snapshot, which is small."""
    disk = MemoryDisk()
    opened = busy(disk)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    put(opened, b"second")
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    put(opened, b"third")
    opened.log.close(WALL, WALL)
    return disk, snapshot_names(disk)[-1]


def without(disk: MemoryDisk, names: list[str]) -> MemoryDisk:
    left = disk.copy()
    for name in names:
        left.remove(name)
    return left.copy()


# The files that are left when the newest snapshot cannot be used.
LEFT = {
    "an older snapshot": lambda disk: without(disk, segment_names(disk)[:1]),
    "the whole log": lambda disk: without(disk, snapshot_names(disk)[:1]),
    "nothing": lambda disk: without(disk, segment_names(disk)[:2] + snapshot_names(disk)[:1]),
}


def check_not_used(disk: MemoryDisk, name: str, data: bytes, left: str) -> None:
    """Check that a damaged snapshot is not used: the open warns, or is refused if too little is left."""
    spoilt = LEFT[left](disk)
    spoilt.files[name] = bytearray(data)
    if left == "nothing":
        before = {name: bytes(content) for name, content in spoilt.files.items()}
        with pytest.raises(DamagedJournal, match=name):
            reopen(spoilt)
        assert spoilt.files == before and spoilt.effects == []
        return
    opened = reopen(spoilt)
    assert [opened.engine.outbox.body_of(job) for job in opened.engine.jobs.scan(0, 10)] == [
        b"first",
        b"second",
        b"third",
    ]
    assert [warning for warning in opened.warnings if warning.startswith(f"{name} cannot be used")]


@pytest.mark.parametrize("left", LEFT)
def test_a_complete_snapshot_is_used(left: str) -> None:
    disk, _ = small_snapshot()
    opened = reopen(LEFT[left](disk))
    assert opened.warnings == [] and opened.engine.jobs.count == 3


@pytest.mark.parametrize("left", LEFT)
def test_a_snapshot_that_is_truncated_anywhere_is_not_used(left: str) -> None:
    disk, name = small_snapshot()
    data = disk.read(name)
    for size in [*range(0, SEGMENT_HEADER_BYTES, 97), *range(SEGMENT_HEADER_BYTES, len(data), 3)]:
        check_not_used(disk, name, data[:size], left)


@pytest.mark.parametrize("left", LEFT)
def test_a_snapshot_with_bytes_after_its_end_is_not_used(left: str) -> None:
    disk, name = small_snapshot()
    data = disk.read(name)
    for more in (bytes(8), bytes(4_096), b"PENF", data[SEGMENT_HEADER_BYTES:]):
        check_not_used(disk, name, data + more, left)


@pytest.mark.parametrize("left", LEFT)
def test_a_snapshot_with_a_flipped_bit_is_not_used(left: str) -> None:
    disk, name = small_snapshot()
    data = disk.read(name)
    text_end = len(data[:SEGMENT_HEADER_BYTES].rstrip(b"\0"))
    for place in [*range(text_end), *range(SEGMENT_HEADER_BYTES, len(data))]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        check_not_used(disk, name, flipped, left)


def test_a_snapshot_of_another_number_is_not_used() -> None:
    disk, name = small_snapshot()
    older = snapshot_names(disk)[0]
    check_not_used(disk, name, disk.read(older), "the whole log")
    check_not_used(disk, name, disk.read(older), "nothing")
    check_not_used(disk, name, disk.read(segment_names(disk)[-1]), "nothing")
