"""The change feed: notifies subscribers and watchers of changes to jobs."""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.changes import Change
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.core.ids import IdForms
from penstock.core.job import Job
from penstock.core.tube import Tube
from penstock.options import to_text


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """A change of a job, with the body and the name that the job had at that moment."""

    change: Change
    name: bytes  # Empty if the job has no name.
    body: bytes | None  # None if it could not be read.
    body_kind: int


class Committing(Protocol):
    """The methods of a host that a change feed needs."""

    def flush(self) -> None: ...
    def visible_body(self, job: Job) -> bytes: ...


class ChangeFeed:
    """Calls subscribers for each change, in order, in one separate thread. Subscribers can use the queue.

    A watcher is a subscriber that other calls wait for. It is called after a change was committed and before the call
    that made the change returns.
    """

    def __init__(self, host: Committing, ids: IdForms) -> None:
        self._host = host
        self._ids = ids
        self._subscribers: dict[object, tuple[Callable[[Change], None], bytes | None]] = {}
        self._watchers: dict[object, tuple[Callable[[WatchedChange], None], bytes]] = {}
        self._changes: queue.SimpleQueue[tuple[bytes, WatchedChange] | None] = queue.SimpleQueue()
        self._posted = 0  # Number of changes so far.
        self._delivered = 0  # Number of changes for which all callbacks have returned.
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-subscribers", daemon=True)
        self._thread.start()

    def moved(self, job: Job, tube: Tube, rule: int, now: int) -> None:
        """Queue a change for the subscribers."""
        event, before, after = s.TRANSITIONS[rule]
        change = Change(
            self._ids.long(job.id, job.ttl_minutes).decode(),
            to_text(tube.name),
            s.EVENT_NAMES[event],
            s.STATE_NAMES[before],
            s.STATE_NAMES[after],
            now / 1000,
            int(job.local) if job.local >= 0 else None,
        )
        name = b"" if job.extra is None else job.extra.name
        body: bytes | None = None
        if any(tube.name == watched for _, watched in list(self._watchers.values())):
            with contextlib.suppress(CommandError):
                body = self._host.visible_body(job)
        self._posted += 1
        self._changes.put((tube.name, WatchedChange(change, name, body, job.user_body_kind())))

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        """Call `callback` on every change in a tube, or in all tubes if `tube` is None.

        Return a function that cancels the subscription.
        """
        ticket = object()
        self._subscribers[ticket] = (callback, tube)

        def cancel() -> None:
            self._subscribers.pop(ticket, None)

        return cancel

    def watch(self, callback: Callable[[WatchedChange], None], tube: bytes) -> Callable[[], None]:
        """Call `callback` on every change in a tube, before the call that made the change returns.

        Return a function that cancels the subscription.
        """
        ticket = object()
        self._watchers[ticket] = (callback, tube)

        def cancel() -> None:
            self._watchers.pop(ticket, None)

        return cancel

    def wait(self) -> None:
        """Wait until watchers have received every change so far. The caller does not hold the lock."""
        if self._delivered == self._posted or not self._watchers or threading.current_thread() is self._thread:
            return
        posted = self._posted
        with self._progress:
            self._progress.wait_for(lambda: self._delivered >= posted)

    def stop(self) -> None:
        """End the thread after it has delivered the changes so far."""
        self._changes.put(None)

    def join(self) -> None:
        """If there are watchers, wait until the thread has ended. The caller does not hold the lock."""
        if self._watchers and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (item := self._changes.get()) is not None:
            try:
                self._notify(*item)
            finally:
                with self._progress:
                    self._delivered += 1
                    self._progress.notify_all()

    def _notify(self, name: bytes, seen: WatchedChange) -> None:
        for callback, tube in list(self._subscribers.values()):
            if tube is None or tube == name:
                _call(lambda callback=callback: callback(seen.change))  # type: ignore[misc]
        watching = [callback for callback, tube in list(self._watchers.values()) if tube == name]
        if watching:
            try:
                self._host.flush()
            except CommandError:
                return  # The journal failed, so the change was not committed.
        for watcher in watching:
            _call(lambda watcher=watcher: watcher(seen))  # type: ignore[misc]


def _call(callback: Callable[[], None]) -> None:
    """Call a subscriber. Its exceptions become warnings.

    If warnings are errors in this process, the exceptions are dropped.
    """
    try:
        callback()
    except Exception as error:
        with contextlib.suppress(Warning):
            warnings.warn(f"subscriber failed: error={error!r}", RuntimeWarning, stacklevel=1)
