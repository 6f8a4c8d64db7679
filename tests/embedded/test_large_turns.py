"""A turn is one frame of the log, and a frame has a limit. Long keys and names must not exceed it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import penstock
from penstock.core.limits import BATCH_BYTES_MAX, NAME_BYTES_MAX, TURN_BYTES_MAX
from penstock.journal.real_disk import ReadOnlyDisk
from penstock.journal.segment import FrameFile, segment_names
from tests.conformance.interfaces import JOURNALS

from .test_threads import Running, asleep

KEY = b"k" * NAME_BYTES_MAX
# So large that their keys exceed one turn, but not two.
COUNT = TURN_BYTES_MAX // NAME_BYTES_MAX + 200


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=JOURNALS) as path:
        yield Path(path)


@pytest.fixture
def queue(directory: Path) -> Iterator[penstock.Queue]:
    with penstock.open(directory, fsync="never") as queue:
        yield queue


def longest_frames(directory: Path) -> list[int]:
    disk = ReadOnlyDisk(str(directory))
    found: list[int] = []
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            found += [frame.length for _, frame, _ in file.frames()]
    return sorted(found, reverse=True)


def test_a_batch_whose_keys_are_too_long_is_refused_before_anything_changed(queue: penstock.Queue) -> None:
    tube = queue.tube("t", "stube")
    with pytest.raises(penstock.CommandError) as told:
        tube.put_many([b""] * (BATCH_BYTES_MAX // NAME_BYTES_MAX + 1), key=KEY)
    assert told.value.code == "TOOBIG"
    assert tube.stats()["ready"] == 0
    assert tube.put("x", key=KEY).state == "ready"


def test_takes_and_releases_of_many_long_keys_are_several_turns(directory: Path, queue: penstock.Queue) -> None:
    tube = queue.tube("t", "stube")
    tube.put_many([b"x"] * COUNT, key=KEY)
    first = tube.take_many(COUNT, key=KEY)
    assert 0 < len(first) < COUNT
    rest = tube.take_many(COUNT, key=KEY)
    assert len(first) + len(rest) == COUNT
    assert tube.release_all() == COUNT
    queue.close()
    put, released, *taken = longest_frames(directory)
    assert put > COUNT * NAME_BYTES_MAX and released < 1_001 * NAME_BYTES_MAX
    assert max(taken) < TURN_BYTES_MAX + 2 * NAME_BYTES_MAX
    with penstock.open(directory) as again:
        assert again.tube("t").stats()["ready"] == COUNT


def test_waiting_takes_with_many_long_keys_are_served_in_several_turns(queue: penstock.Queue) -> None:
    """No other call would serve the second one."""
    tube = queue.tube("t", "stube")
    waiting = [Running(lambda: tube.take_many(COUNT, timeout=60, key=KEY)) for _ in range(2)]
    asleep(queue, 2)
    tube.put_many([b"x"] * COUNT, key=KEY)
    assert sum(len(each.answer()) for each in waiting) == COUNT
