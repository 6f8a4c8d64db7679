"""Repair salvages what precedes damage and what follows it, says what it dropped, and keeps the damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.core import states as s
from penstock.core.errors import DamagedJournal, NoJournal
from penstock.host import boot_id, wall_ms
from penstock.journal.disk import RealDisk
from penstock.journal.recovery import examine, open_log
from penstock.journal.repair import Repaired, repair
from penstock.journal.segment import FrameFile
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.test_snapshot import WALL, Life, reopen


def fix(directory: Path) -> Repaired:
    return repair(RealDisk(str(directory)), wall_ms(), boot_id())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A queue with 30 jobs in 3 segments, the first ten of them acked."""
    for life in range(3):
        with penstock.open(tmp_path / "queue") as queue:
            tube = queue.tube("t", "fifottl")
            for number in range(10):
                tube.put(f"{life} {number}")
            if life == 2:
                for _ in range(10):
                    taken = tube.take()
                    assert taken is not None
                    taken.ack()
    return tmp_path / "queue"


def spoil(path: Path, row: int) -> None:
    """Flip a bit in the frame of a put, by the order of the puts."""
    disk = RealDisk(str(path.parent))
    with FrameFile(disk, path.name) as file:
        # The last row of a frame; the first may name the tube.
        puts = [found for found in file.frames() if found.data[found.frame.var_at - 16] == s.PUT]
        offset = puts[row].base + puts[row].frame.at + 70
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def bodies(directory: Path) -> list[str]:
    with penstock.open(directory) as queue:
        return [job.body for job in queue.tube("t").jobs("ready")]


def test_what_precedes_and_what_follows_is_there_and_the_rest_is_told(directory: Path) -> None:
    spoil(directory / "segment-0000000002.log", 4)
    with pytest.raises(DamagedJournal, match="repair"):
        penstock.open(directory)
    done = fix(directory)
    assert any("segment-0000000002.log" in problem for problem in done.problems)
    assert done.kept_aside == ["segment-0000000002.log.damaged"]
    expected = [f"{life} {number}" for life in (1, 2) for number in range(10) if (life, number) != (1, 4)]
    assert done.jobs == len(expected)
    assert bodies(directory) == expected
    with penstock.open(directory) as queue:
        events = list(queue.events())
    assert sum(event.event == "put" for event in events) == 29
    assert fix(directory) == Repaired([], [], 0)


def test_jobs_whose_end_was_lost_are_there_again(directory: Path) -> None:
    segment = directory / "segment-0000000003.log"
    data = bytearray(segment.read_bytes())
    data[-600] ^= 1  # Among the acks.
    segment.write_bytes(data)
    done = fix(directory)
    assert done.jobs == 21
    assert len(set(bodies(directory))) == 21


@pytest.mark.parametrize("name", ["segment-0000000001.log", "segment-0000000002.log"])
def test_a_segment_without_a_header_is_lost_and_the_others_are_not(directory: Path, name: str) -> None:
    path = directory / name
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    done = fix(directory)
    assert done.kept_aside == [f"{name}.damaged"]
    lost = int(name[17]) - 1
    # Of jobs that were put in the lost one, what came later says that they are gone, or that their bodies are.
    assert bodies(directory) == [f"{life} {number}" for life in (1, 2) for number in range(10) if life != lost]


def test_a_lost_identity_is_made_anew(directory: Path) -> None:
    (directory / "node.json").unlink()
    done = fix(directory)
    assert "node.json" in done.problems[0] and done.jobs == 20
    assert len(bodies(directory)) == 20


def test_there_has_to_be_something_to_repair(tmp_path: Path) -> None:
    with pytest.raises(NoJournal):
        fix(tmp_path)


def test_a_job_for_one_delivery_is_not_delivered_after_a_repair(directory: Path) -> None:
    with penstock.open(directory) as queue:
        tube = queue.tube("d", "disque")
        once = tube.put("once", once=True)
        for number in range(5):
            tube.put(f"{number}")
        assert tube.take() == once
    segment = directory / "segment-0000000004.log"
    with FrameFile(RealDisk(str(directory)), segment.name) as file:
        taken = [found for found in file.frames() if found.data[found.frame.var_at - 14] == s.TAKEN][-1]
        offset = taken.base + taken.frame.at + 80
    data = bytearray(segment.read_bytes())
    data[offset] ^= 1
    segment.write_bytes(data)
    fix(directory)
    with penstock.open(directory) as queue:
        assert [job.body for job in queue.tube("d").jobs("buried")] == ["once"]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_damaged_a_repair_gives_a_queue_that_opens(seed: int) -> None:
    disk = MemoryDisk()
    life = Life(disk, seed)
    life.work(60)
    life.take_snapshot(3)
    life.work(60)
    names = [name for name in disk.names() if name.endswith(".log")]
    for name in names:
        for place in range(0, disk.size(name), max(1, disk.size(name) // 25)):
            damaged = disk.copy()
            damaged.files[name][place : place + 50] = b"\x5a" * 50
            problems = examine(damaged, "boot")
            assert damaged.files == damaged.copy().files
            done = repair(damaged, WALL, "boot")
            assert done.problems == problems
            again = reopen(damaged)
            check(again.engine)
            assert open_log(damaged, WALL, "boot").engine.jobs.count == again.engine.jobs.count
