"""The change feed: subscribers and watchers get every change once, in order."""

from __future__ import annotations

import threading

import pytest

from penstock.changes import Change
from penstock.core import policy
from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed
from penstock.core.ids import IdForms
from penstock.core.job import Draft, Job
from penstock.core.outbox import Outbox
from penstock.host.change_feed import ChangeFeed, WatchedChange

NOW = 1_000_000


class FakeHost:
    """Counts the commits, or fails them."""

    def __init__(self) -> None:
        self.flushes = 0
        self.fails = False

    def flush(self) -> None:
        self.flushes += 1
        if self.fails:
            raise JournalFailed("the disk is broken")

    def visible_body(self, job: Job) -> bytes:
        body = job.user_body()
        assert isinstance(body, bytes)
        return body


class Fed:
    """An engine whose changes are fed."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.engine = Engine(1, NOW, Outbox())
        self.feed = ChangeFeed(self.host, IdForms(b"01234567", b"k" * 32))
        self.engine.watch = self.feed.moved
        self.tubes = [self.engine.create_tube(name, policy.FIFO, NOW) for name in (b"a", b"b")]

    def put(self, tube: int = 0, body: bytes = b"body") -> None:
        self.engine.put(self.tubes[tube], Draft(body), NOW)

    def end(self) -> None:
        """Deliver all changes so far."""
        self.feed.stop()
        self.feed._thread.join()


@pytest.fixture
def fed() -> Fed:
    return Fed()


def test_subscribers_get_the_changes_of_their_tube_in_order(fed: Fed) -> None:
    one: list[Change] = []
    every: list[Change] = []
    fed.feed.subscribe(one.append, b"a")
    fed.feed.subscribe(every.append, None)
    for tube in (0, 1, 0):
        fed.put(tube)
    fed.end()
    assert [change.tube for change in every] == ["a", "b", "a"] and [change.tube for change in one] == ["a", "a"]
    assert every[0].event == "put" and every[0].time == NOW / 1000


def test_a_cancelled_subscription_gets_nothing_more(fed: Fed) -> None:
    got: list[object] = []
    cancels = [fed.feed.subscribe(got.append, None), fed.feed.watch(got.append, b"a")]
    for cancel in cancels:
        cancel()
        cancel()
    fed.put()
    fed.end()
    assert got == []


@pytest.mark.filterwarnings("ignore:subscriber failed")
def test_the_error_of_a_subscriber_does_not_concern_the_others(fed: Fed) -> None:
    got: list[Change] = []

    def fail(change: Change) -> None:
        raise ValueError("a defect")

    fed.feed.subscribe(fail, None)
    fed.feed.subscribe(got.append, None)
    fed.put()
    fed.end()
    assert len(got) == 1


def test_a_watcher_gets_a_change_after_its_commit_and_before_wait_returns(fed: Fed) -> None:
    got: list[tuple[bytes | None, int]] = []

    def watch(seen: WatchedChange) -> None:
        got.append((seen.body, fed.host.flushes))

    fed.feed.watch(watch, b"a")
    fed.put(0, b"x")
    fed.put(1, b"y")
    fed.feed.wait()
    assert got == [(b"x", 1)]
    fed.end()


def test_a_watcher_does_not_get_a_change_that_could_not_be_committed(fed: Fed) -> None:
    got: list[WatchedChange] = []
    fed.host.fails = True
    fed.feed.watch(got.append, b"a")
    fed.put()
    fed.feed.wait()
    assert got == []
    fed.end()


def test_a_watcher_that_calls_the_queue_does_not_wait_for_itself(fed: Fed) -> None:
    done = threading.Event()

    def watch(seen: WatchedChange) -> None:
        fed.feed.wait()
        done.set()

    fed.feed.watch(watch, b"a")
    fed.put()
    fed.feed.wait()
    assert done.is_set()
    fed.feed.stop()
    fed.feed.join()


def test_wait_returns_at_once_without_watchers(fed: Fed) -> None:
    fed.put()
    fed.feed.wait()
    fed.end()
