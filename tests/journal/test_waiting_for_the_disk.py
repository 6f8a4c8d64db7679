"""Threads that wait for the disk share syncs. None is left waiting when another one is interrupted or fails."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.core import policy
from penstock.core.errors import JournalFailed
from penstock.core.job import Draft
from penstock.journal.log import FILL_BYTES
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import segment_name
from penstock.testing.disk import MemoryDisk, MemoryFile


class Story:
    """A log on a disk whose syncs wait until they are released, and threads that wait for them."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.opened: Opened = open_log(self.disk, lambda: 1_000, "boot", segment_bytes=4 * FILL_BYTES)
        self.log = self.opened.log
        self.tube = self.opened.engine.create_tube(b"t", policy.DISQUE, 1_000)
        self.lock = threading.Lock()
        self.may_sync = threading.Event()
        self.syncs = 0
        self.ended: list[Exception | None] = []
        self.threads: list[threading.Thread] = []

    def put_and_wait(self) -> None:
        """Commit a change and wait for its sync, as a call does."""
        with self.lock:
            self.opened.engine.put(self.tube, Draft(b"x"), 1_000)
            self.log.commit(1_000, 1_000)
            position = self.log.written
        self.log.make_durable(position)
        assert self.log.durable >= position

    def start(self) -> None:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        self.threads.append(thread)

    def _run(self) -> None:
        try:
            self.put_and_wait()
            self.ended.append(None)
        except JournalFailed as error:
            self.ended.append(error)

    def asleep(self, count: int) -> None:
        eventually(lambda: self.syncs == 1 and len(self.log._asleep) == count)

    def end(self) -> list[Exception | None]:
        self.may_sync.set()
        for thread in self.threads:
            thread.join(10)
        assert len(self.ended) == len(self.threads)
        return self.ended


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    story = Story()
    sync = MemoryFile.sync

    def slow(file: MemoryFile) -> None:
        story.syncs += 1
        assert story.may_sync.wait(10)
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", slow)
    yield story
    story.may_sync.set()


def test_calls_that_arrive_during_a_sync_share_the_next_one(story: Story) -> None:
    story.start()
    eventually(lambda: story.syncs == 1)
    for _ in range(10):
        story.start()
    story.asleep(10)
    assert story.end() == [None] * 11
    assert story.syncs == 2


def test_an_interrupted_sleeper_leaves_no_other_asleep(story: Story) -> None:
    story.start()
    eventually(lambda: story.syncs == 1)

    def interrupt() -> None:
        story.asleep(1)
        story.start()
        story.asleep(2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    # The main thread sleeps first, so it would become the next leader.
    with pytest.raises(KeyboardInterrupt):
        story.put_and_wait()
    helper.join()
    assert story.end() == [None, None]
    assert story.log.durable == story.log.writer.position


def test_a_failed_sync_fails_all_calls_that_wait_for_it_or_the_next(story: Story) -> None:
    story.start()
    eventually(lambda: story.syncs == 1)
    for _ in range(5):
        story.start()
    story.asleep(5)
    story.disk.sync_error = OSError(errno.EIO, "broken")
    assert all(isinstance(error, JournalFailed) for error in story.end())
    assert story.syncs == 1


def test_a_thread_that_holds_the_lock_can_wait_behind_others(story: Story) -> None:
    story.start()
    eventually(lambda: story.syncs == 1)
    story.start()
    story.asleep(1)
    with story.lock:
        # As a commit does that needs a durable reservation.
        story.may_sync.set()
        story.log.make_durable(story.log.written)
    assert story.end() == [None, None]


def test_the_next_segment_is_filled_a_slice_at_a_time_and_only_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "fill", lambda self, offset, length: slices.append((offset, length)))
    story.log.prepare()
    for _ in range(2):
        story.log.fill()
    assert [offset for offset, _ in slices] == [4_096 + i * FILL_BYTES for i in range(4)]
    assert sum(length for _, length in slices) == 4 * FILL_BYTES - 4_096


def test_a_segment_that_cannot_be_filled_is_dropped(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: MemoryFile, offset: int, length: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(MemoryFile, "fill", broken)
    story.log.prepare()
    assert story.log.room.spare_body_bytes
    story.log.fill()
    assert not story.log.room.spare_body_bytes
    assert segment_name(2) not in story.disk.names()
    assert not story.log.failed
