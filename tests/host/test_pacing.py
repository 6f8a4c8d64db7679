"""Pacing of maintenance: pauses follow the foreground work, and a closing queue ends them."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest

from penstock.host.maintenance.pacing import PAUSE_BUSY, PAUSE_IDLE, PAUSE_MIN_S, Pacing, Stopped


class FakeQueue:
    """A queue as far as pacing uses it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.log = self
        self.written = 0


class FakeStop(threading.Event):
    """Records the pauses instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        return self.is_set()


@pytest.fixture
def queue() -> Any:
    return FakeQueue()


@pytest.fixture
def stop() -> FakeStop:
    return FakeStop()


def test_a_pause_is_as_long_as_the_work_while_the_log_does_not_grow(queue: Any, stop: FakeStop) -> None:
    pacing = Pacing(weakref.ref(queue), stop)
    pacing.pause(0.5)
    assert stop.pauses == [0.5 * PAUSE_IDLE]


def test_a_pause_is_longer_while_the_log_grows(queue: Any, stop: FakeStop) -> None:
    pacing = Pacing(weakref.ref(queue), stop)
    queue.written = 1
    pacing.pause(0.5)
    pacing.pause(0.5)
    queue.written = 2
    pacing.pause(0.5, 3)
    assert stop.pauses == [0.5 * PAUSE_BUSY, 0.5 * PAUSE_IDLE, 1.5]


def test_a_pause_has_a_minimum(queue: Any, stop: FakeStop) -> None:
    Pacing(weakref.ref(queue), stop).pause(0)
    assert stop.pauses == [PAUSE_MIN_S]


def test_a_closing_queue_ends_pauses_and_gives_no_lock(queue: Any, stop: FakeStop) -> None:
    pacing = Pacing(weakref.ref(queue), stop)
    with pacing.locked(queue):
        assert queue.lock.locked()
    assert not queue.lock.locked()
    stop.set()
    with pytest.raises(Stopped):
        pacing.pause(0)
    with pytest.raises(Stopped), pacing.locked(queue):
        pytest.fail("the queue is being closed")
    assert not queue.lock.locked()
    queue.lock.acquire()
    with pytest.raises(Stopped), pacing.locked(queue):
        pytest.fail("the closing thread holds the lock")
