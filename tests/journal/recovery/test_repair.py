"""A repair salvages the jobs before and after damage, reports the losses, and keeps the damaged files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import DamagedJournal, NoJournal, OutOfRange
from penstock.core.job import Draft
from penstock.host.boot import boot_id
from penstock.host.clock import wall_ms
from penstock.journal.layout import CONSUMER_CHANGED, EVENT_AT, ROW_BYTES, TO_AT
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.snapshot import Snapshot
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.check import check_log
from penstock.journal.recovery.opening import open_log
from penstock.journal.recovery.repair import RepairReport, examine, repair
from penstock.journal.segment import FrameFile, segment_names
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.maintenance.test_snapshot import WALL, Life, reopen


def fix(directory: Path) -> RepairReport:
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
    """Flip a bit in the frame of the put with a given number."""
    disk = RealDisk(str(path.parent))
    with FrameFile(disk, path.name) as file:
        # The last row of a frame, because the first may name the tube.
        puts = [found for found in file.frames() if found.data[found.frame.var_at - ROW_BYTES + EVENT_AT] == s.PUT]
        offset = puts[row].base + puts[row].frame.at + 70
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def bodies(directory: Path) -> list[str]:
    with penstock.open(directory) as queue:
        return [job.body for job in queue.tube("t").jobs("ready")]


def test_jobs_before_and_after_damage_are_kept_and_the_loss_is_reported(directory: Path) -> None:
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
    assert fix(directory) == RepairReport([], [], 0)


def test_jobs_whose_end_was_lost_exist_again(directory: Path) -> None:
    segment = directory / "segment-0000000003.log"
    data = bytearray(segment.read_bytes())
    data[-700] ^= 1  # In the frames of acks.
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
    # Later rows show that jobs of the lost segment have ended, or that their bodies are missing.
    assert bodies(directory) == [f"{life} {number}" for life in (1, 2) for number in range(10) if life != lost]


def test_a_lost_identity_is_replaced(directory: Path) -> None:
    (directory / "node.json").unlink()
    done = fix(directory)
    assert "node.json" in done.problems[0] and done.jobs == 20
    assert len(bodies(directory)) == 20


def test_a_directory_without_a_queue_is_not_repaired_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(NoJournal):
        fix(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_an_at_most_once_job_is_not_delivered_after_a_repair(directory: Path) -> None:
    with penstock.open(directory) as queue:
        tube = queue.tube("d", "disque")
        once = tube.put("once", once=True)
        for number in range(5):
            tube.put(f"{number}")
        assert tube.take() == once
    segment = directory / "segment-0000000004.log"
    with FrameFile(RealDisk(str(directory)), segment.name) as file:
        taken = [found for found in file.frames() if found.data[found.frame.var_at - ROW_BYTES + TO_AT] == s.TAKEN][-1]
        offset = taken.base + taken.frame.at + 80
    data = bytearray(segment.read_bytes())
    data[offset] ^= 1
    segment.write_bytes(data)
    fix(directory)
    with penstock.open(directory) as queue:
        assert [job.body for job in queue.tube("d").jobs("buried")] == ["once"]


def lose(directory: Path, event: int, *which: int) -> None:
    """Flip a bit in some of the frames whose last row has a given event."""
    disk = RealDisk(str(directory))
    places = []
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            places += [
                (directory / name, found.base + found.frame.at + 80)
                for found in file.frames()
                if found.data[found.frame.var_at - ROW_BYTES + EVENT_AT] == event
            ]
    for path, offset in (places[number] for number in which):
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)


def test_of_two_jobs_of_one_name_or_unique_value_the_newest_keeps_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        for tube, label in (("named", {"name": "n"}), ("unique", {"unique": "u"})):
            queue.tube(tube, "fifottl").put("first", **label)
            job = queue.tube(tube).take()
            assert job is not None
            job.ack()
            queue.tube(tube).put("second", **label)
    lose(tmp_path, s.ACKED, 0, 1)
    assert fix(tmp_path).jobs == 4
    with penstock.open(tmp_path) as queue:
        for tube, label in (("named", {"name": "n"}), ("unique", {"unique": "u"})):
            taken = [queue.tube(tube).take(timeout=0) for _ in range(2)]
            assert [job.body for job in taken if job] == ["first", "second"]
            for job in taken:
                assert job is not None
                job.ack()
            queue.tube(tube).put("third", **label)
    with penstock.open(tmp_path) as queue:
        assert [job.body for name in ("named", "unique") for job in queue.tube(name).jobs("ready")] == ["third"] * 2


def test_a_job_whose_end_was_lost_is_dropped_with_its_tube(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl")
        tube.put("x")
        job = tube.take()
        assert job is not None
        job.ack()
        tube.drop()
        queue.tube("other").put("y")
    lose(tmp_path, s.ACKED, 0)
    assert fix(tmp_path).jobs == 1
    with penstock.open(tmp_path) as queue:
        check(queue._host.engine)


def test_a_claim_whose_consumer_is_lost_ends(tmp_path: Path) -> None:
    for type in ("fifo", "disque"):
        with penstock.open(tmp_path / type) as queue:
            tube = queue.tube("t", type)
            tube.put("x")
            claimed = tube.claim("reader", 1, 10)
            assert claimed is not None
            # The job is deleted when the claim ends. The row about that also names the consumer.
            claimed[0].delete()
        lose(tmp_path / type, CONSUMER_CHANGED, 0)
        fix(tmp_path / type)
        with penstock.open(tmp_path / type) as queue:
            assert queue.tube("t").stats()["taken"] == 0
            queue.tube("t").put("y")
            claimed = queue.tube("t").claim("reader", 2, 10)
            assert claimed is not None and [job.body for job in claimed] == ["y"]


def test_of_two_taken_jobs_of_a_key_the_newest_stays_taken(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.identify(grace=600)  # Its jobs stay taken when the queue is opened again.
        tube = queue.tube("t", "utube")
        tube.put_many(["first", "second"], key="k")
        job = tube.take()
        assert job is not None
        job.ack()
        assert tube.take() is not None
    lose(tmp_path, s.ACKED, 0)
    assert fix(tmp_path).jobs == 2
    with penstock.open(tmp_path) as queue:
        check(queue._host.engine)
        tube = queue.tube("t")
        assert [job.body for job in tube.jobs("taken")] == ["second"]
        assert [job.body for job in tube.jobs("ready")] == ["first"]
        assert tube.take(timeout=0) is None


def test_of_two_claims_with_jobs_of_a_key_the_newest_keeps_its_job(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "utube")
        for key in ("a", "b"):
            tube.put_many([f"first {key}", f"second {key}"], key=key)
        claimed = tube.claim("reader", 1, 10)
        assert claimed is not None and [job.body for job in claimed] == ["first a", "first b"]
        claimed[1].delete()
        queue.ack_claims("reader", 1)
        assert tube.claim("other", 1, 10) is not None
    # The row about the acked claim is the last one of its frame.
    lose(tmp_path, CONSUMER_CHANGED, 1)
    # The deleted job does not exist again.
    assert fix(tmp_path).jobs == 3
    with penstock.open(tmp_path) as queue:
        check(queue._host.engine)
        tube = queue.tube("t")
        assert [job.body for job in tube.jobs("ready")] == ["first a"]
        claimed = tube.claim("other", 1, 10)
        assert claimed is not None and [job.body for job in claimed] == ["second a", "second b"]


def test_numbers_of_a_tube_whose_rows_are_lost_continue_after_those_of_its_jobs() -> None:
    """The tube is dropped while a snapshot is taken, and the row about that is lost."""
    disk = MemoryDisk()
    life = Life(disk, 1)
    opened, now = life.opened, life.now
    tube = opened.engine.create_tube(b"t", p.FIFO, now)
    opened.engine.put(tube, Draft(b"x"), now)
    opened.log.commit(now, now)
    snapshot = Snapshot(disk, opened.log, opened.engine, now, now, rows_max=1)
    snapshot.slice(now, now)
    snapshot.write(now, now, last=False)
    opened.engine.drop(tube, now)
    opened.log.commit(now, now)
    opened.log.make_durable(opened.log.written)
    while snapshot.slice(now, now):
        snapshot.write(now, now, last=False)
    snapshot.write(now, now, last=True)
    snapshot.finish()
    name = segment_names(disk)[-1]
    disk.files[name][:100] = bytes(100)
    assert repair(disk, WALL, "boot").jobs == 1
    engine = reopen(disk).engine
    check(engine)
    (tube,) = engine.tubes.values()
    assert engine.put(tube, Draft(b"y"), engine.now).local == 1


def test_a_repair_issues_no_integer_again_even_if_the_log_was_closed_in_order(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl")
        given = [tube.put("x").meta()["number"] for _ in range(10)]
    lose(tmp_path, s.PUT, -1)
    fix(tmp_path)
    with penstock.open(tmp_path) as queue:
        assert queue.tube("t").put("x").meta()["number"] not in given


def with_history(tmp_path: Path) -> Path:
    """Return a queue with three segments of history before its snapshot."""
    for life in range(3):
        with penstock.open(tmp_path / "queue") as queue:
            queue.tube("t", "fifottl").put(f"{life}")
            if life == 2:
                queue.checkpoint()
    assert segment_names(RealDisk(str(tmp_path / "queue"))) == [f"segment-000000000{n}.log" for n in range(1, 5)]
    return tmp_path / "queue"


def no_frame(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4_100] + bytes([data[4_100] ^ 1]) + data[4_101:])


def no_last_frame(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-192])


def no_frame_header(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4_096] + bytes(64) + data[4_160:])


def no_header(path: Path) -> None:
    path.write_bytes(bytes(100) + path.read_bytes()[100:])


@pytest.mark.parametrize("damage", [no_frame, no_last_frame, no_frame_header, no_header, Path.unlink])
def test_damaged_history_is_reported_and_repaired(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    directory = with_history(tmp_path)
    with penstock.open(directory) as queue:
        before = list(queue.events())
    damage(directory / "segment-0000000002.log")
    disk = RealDisk(str(directory))
    found = check_log(disk, boot_id())
    assert not found.refused and any(
        "segment-0000000002.log" in problem or "position" in problem for problem in found.problems
    )
    assert examine(disk, boot_id()) == found.problems
    done = fix(directory)
    assert done.problems == found.problems and done.jobs == 3
    assert not check_log(disk, boot_id()).damaged
    assert fix(directory) == RepairReport([], [], 0)
    assert bodies(directory) == ["0", "1", "2"]
    with penstock.open(directory) as queue:
        after = list(queue.events())
        assert [event for event in after if event.position <= before[-1].position] == [
            event for event in before if event in after
        ]
        assert after[0] == before[0]


def test_unreadable_history_does_not_prevent_shortening_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = with_history(tmp_path)
    for number, damage in ((1, no_frame), (2, no_header)):
        damage(directory / f"segment-000000000{number}.log")
        (directory / f"segment-000000000{number}.idx").unlink(missing_ok=True)
    with penstock.open(directory) as queue:
        for _ in range(3):
            queue.checkpoint()
    for number in (1, 2):
        name = f"segment-000000000{number}.log"
        assert sum(f"segment={name} " in record.getMessage() for record in caplog.records) == 1


def test_a_damaged_index_is_created_again(tmp_path: Path) -> None:
    directory = with_history(tmp_path)
    with penstock.open(directory) as queue:
        queue.checkpoint()
    index = directory / "segment-0000000001.idx"
    good = index.read_bytes()
    index.write_bytes(good[:-1] + b"?")
    with penstock.open(directory) as queue:
        queue.checkpoint()
    assert index.read_bytes() == good


def test_a_restore_does_not_go_back_before_a_repair(directory: Path, tmp_path: Path) -> None:
    with penstock.open(directory) as queue:
        queue.tube("t").put("last")
    no_header(directory / "segment-0000000004.log")
    fix(directory)
    with penstock.open(directory) as queue:
        queue.tube("t").put("new")
        last = [event.position for event in queue.events()][-1]
    disk = RealDisk(str(directory))
    with pytest.raises(OutOfRange, match="the first position that can be restored is"):
        copy_log(disk, RealDisk(str(tmp_path / "early")), 3)
    copy_log(disk, RealDisk(str(tmp_path / "late")), last)
    assert bodies(tmp_path / "late") == bodies(directory)


def test_examining_a_directory_without_identity_reports_problems_and_changes_nothing(directory: Path) -> None:
    spoil(directory / "segment-0000000002.log", 4)
    (directory / "node.json").unlink()
    before = sorted(path.name for path in directory.iterdir())
    problems = examine(RealDisk(str(directory)), boot_id())
    assert "node.json is lost" in problems[0] and any("segment-0000000002.log" in problem for problem in problems)
    assert sorted(path.name for path in directory.iterdir()) == before
    assert fix(directory).problems == problems


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_repair_of_any_damage_leads_to_a_queue_that_opens(seed: int) -> None:
    disk = MemoryDisk()
    life = Life(disk, seed)
    life.work(60)
    life.take_snapshot(3)
    life.work(60)
    names = [name for name in disk.names() if name.endswith(".log")]
    for name in names:
        for place in range(0, disk.size(name), max(1, disk.size(name) // 15)):
            damaged = disk.copy()
            damaged.files[name][place : place + 50] = b"\x5a" * 50
            problems = examine(damaged, "boot")
            assert damaged.files == damaged.copy().files
            assert check_log(damaged, "boot").damaged == bool(problems)
            done = repair(damaged, WALL, "boot")
            assert done.problems == problems
            assert not check_log(damaged, "boot").damaged
            again = reopen(damaged)
            check(again.engine)
            assert open_log(damaged, lambda: WALL, "boot").engine.jobs.count == again.engine.jobs.count
