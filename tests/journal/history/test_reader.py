"""A reader returns the history by position, and never more than is durable."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import penstock
from penstock.core.errors import CommandError, DamagedJournal
from penstock.journal.history.reader import Reader
from penstock.journal.real_disk import ReadOnlyDisk, RealFile
from penstock.journal.segment import FrameFile, segment_names
from penstock.testing.disk import MemoryDisk
from tests.journal.shortened_queue import busy


def test_each_event_is_returned_once_and_in_order(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with penstock.open(tmp_path) as queue:
            tube = queue.tube("emails", "fifottl")
            tube.put("hello", priority=3)
            job = tube.take()
            assert job is not None
            job.bury("no such address")
            tube.kick()
            job.delete()
            seen.append(job.id)
    events = list(Reader(ReadOnlyDisk(str(tmp_path))).events())
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    story = [(event.job, event.event, event.before, event.after, event.reason) for event in events if event.job]
    assert story == [
        line
        for id in seen
        for line in [
            (id, "put", "gone", "ready", None),
            (id, "taken", "ready", "taken", None),
            (id, "buried", "taken", "buried", "no such address"),
            (id, "kicked", "buried", "ready", "no such address"),
            (id, "deleted", "ready", "gone", "no such address"),
        ]
    ]
    assert {event.tube for event in events if event.job} == {"emails"}
    assert [event.body for event in events if event.event == "put"] == [b"hello", b"hello"]


def test_reading_can_begin_and_end_at_any_position(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put_many(range(5))
    reader = Reader(ReadOnlyDisk(str(tmp_path)))
    everything = list(reader.events())
    for start in range(1, len(everything) + 2):
        for end in range(start, len(everything) + 2):
            assert list(reader.events(start, end)) == everything[start - 1 : end - 1]


def test_a_finished_job_still_has_its_history(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t")
        job, other = tube.put("x"), tube.put("y")
        taken = tube.take()
        assert taken == job
        taken.ack()
        assert job.state == "gone"
        assert [event.event for event in job.history()] == ["put", "taken", "acked"]
        assert [event.event for event in other.history()] == ["put"]
        assert job.history()[1].session is not None


def test_a_reader_never_returns_events_that_are_not_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = penstock.open(tmp_path, fsync="never")
    tube = queue.tube("t")
    tube.put("x")  # Durable, because it is the first job of its tube and reserves integers.
    log = queue._host.journal.log
    assert log is not None
    before = list(queue.events())
    looked, sync = threading.Event(), RealFile.sync

    def later(self: RealFile) -> None:
        # The background sync may run at any time. It ends after the test has looked.
        assert looked.wait(20)
        sync(self)

    monkeypatch.setattr(RealFile, "sync", later)
    tube.put("y")
    assert list(queue.events()) == before and log.written > log.durable
    looked.set()
    log.make_durable(log.written)
    assert len(list(queue.events())) == len(before) + 1
    queue.close()


def test_a_queue_in_memory_has_no_history() -> None:
    with penstock.open() as queue, pytest.raises(CommandError) as refused:
        queue.events()
    assert refused.value.code == "NOJOURNAL"


def test_an_open_queue_can_be_read_and_reading_changes_nothing(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("x")
        queue._host.require_journal()._maintenance.stop()  # It creates files ahead of time.
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert [event.event for event in Reader(ReadOnlyDisk(str(tmp_path))).events()][-1] == "put"
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damage_in_the_middle_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    for _ in range(2):
        with penstock.open(tmp_path) as queue:
            queue.tube("t").put("x")
    path = tmp_path / "segment-0000000001.log"
    data = bytearray(path.read_bytes())
    data[4_200] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedJournal, match=r"segment-0000000001\.log is damaged at offset 4096"):
        list(Reader(ReadOnlyDisk(str(tmp_path))).events())


def test_a_reader_reaches_the_end_of_a_segment_that_is_truncated_meanwhile() -> None:
    """The unused space of a segment is cut off when the next one is written to, or when the queue is closed."""
    disk = MemoryDisk()
    opened = busy(disk)
    name = segment_names(disk)[0]
    with FrameFile(disk, name) as file:
        read, reads = file.file.read, 0

        def counted(offset: int, length: int) -> bytes:
            nonlocal reads
            reads += 1
            assert reads < 100, "the reader makes no progress"
            return read(offset, length)

        file.file.read = counted  # type: ignore[method-assign]
        del disk.files[name][opened.log.writer.offset :]
        assert sum(piece.frames[-1].rows for piece in file.pieces()) > 0


def test_a_reader_continues_with_kept_history_if_older_files_are_removed(tmp_path: Path) -> None:
    with penstock.open(tmp_path, history_bytes=None) as queue:
        tube = queue.tube("t")
        for number in range(3):
            tube.put(number)
            queue.checkpoint()
        newest = list(queue.events())[-1].position
        events = queue.events()
        assert next(events).position == 1
        for name in segment_names(ReadOnlyDisk(str(tmp_path)))[:2]:
            (tmp_path / name).unlink()
        assert [event.position for event in events][-1] == newest
