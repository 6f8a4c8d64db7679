"""A session of a host. Synchronous and asyncio callers use the host through it."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import NoReturn

from penstock.core.errors import Closed, Forked
from penstock.host.calls import NOTHING, Refusal
from penstock.host.host import Host


class Session:
    """One session on a host. `with session:` is a turn, the part of a call that runs under the lock.

    A call is `with session.durable, session.lock, session:`. Hot paths inline these three steps. `session.lock` is the
    host's lock. When the session is closed, when the queue fails, and in the child of a fork, it becomes a `Refusal`.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.closed = False
        self.revoked = False  # Whether `lock` is a Refusal.
        self.lock: threading.Lock | Refusal = host.lock
        self.durable = host.durable
        self.syncs = host.syncs or host.has_watchers  # Whether calls wait for the disk or for watchers.
        self.shares_frames = False  # Whether turns may share a frame. See Host.settle.
        with host.durable, host.lock, host:
            self.connection = host.join()
            host.sessions.add(self)
        # Weak references, so that an unused queue is freed immediately and not by a later run of the garbage collector.
        self._twins = [weakref.ref(self)]
        _sessions.add(self)

    def for_tasks(self) -> Session:
        """Return a view of this session for asyncio.

        Its calls return before their changes are durable. The caller awaits `until_durable` after them.
        """
        twin = Session.__new__(Session)
        twin.host, twin.connection, twin._twins = self.host, self.connection, self._twins
        twin.closed, twin.revoked, twin.lock = self.closed, self.revoked, self.lock
        twin.durable, twin.syncs, twin.shares_frames = NOTHING, False, True
        self._twins.append(weakref.ref(twin))
        if not self.closed:
            self.host.sessions.add(twin)
        _sessions.add(twin)
        return twin

    def __enter__(self) -> None:
        # The session may have been closed while this thread waited for the lock.
        if self.revoked:
            self.refuse()
        self.host.engine.outbox.actor = self.connection.session

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.host.settle(self.shares_frames)
        else:
            self.host.settle_after(error)

    def refuse(self) -> NoReturn:
        """Raise the error with the reason why this session can no longer be used."""
        assert isinstance(self.lock, Refusal)
        self.lock.refuse()

    def revoke(self, refusal: Refusal) -> None:
        """Refuse every later call on this session."""
        self.lock = refusal
        self.revoked = True

    def wait_for_watchers(self) -> None:
        """Make each later call return only after watchers have received the changes that the call made."""
        if not self.shares_frames:
            self.durable, self.syncs = self.host.durable, True

    def close(self) -> None:
        """End the session and return its taken jobs to their tubes. An interrupted call can be repeated."""
        if self.host.shut:
            # This also holds in the child of a fork, where the lock may be held for ever.
            return
        with self.host.lock:
            if self.closed:
                return
            twins = [twin for weak in self._twins if (twin := weak()) is not None]
            for twin in twins:
                twin.revoke(Refusal(Closed))
                self.host.sessions.discard(twin)
            self.host.leave(self.connection)
            for twin in twins:
                twin.closed = True
        if self.host.failure is None:
            self.host.flush()
        self.host.join_watchers()


# All sessions of this process. In the child of a fork, their calls are refused.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for session in list(_sessions):
        session.closed = True
        session.revoke(Refusal(Forked))
        session.host.abandon_after_fork()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_refuse_in_child)
