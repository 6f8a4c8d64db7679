"""A session of a host: whoever has one may call it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NoReturn

from penstock.core.errors import Closed, Forked
from penstock.host.calls import NOTHING, Refusal
from penstock.host.host import Host


class Session:
    """One session on a host, and one turn of it; with the lock around that, and what is around the lock.

    A call is `with session.durable, session.lock, session:`. The lock is the host's, until the session is closed or
    forked or its queue failed. Hot paths do by hand what these do, and no more.
    """

    lock: threading.Lock | Refusal

    def __init__(self, host: Host) -> None:
        self.host = host
        self.closed = False
        self.barred = False  # Whether its lock is a refusal.
        self.lock = host.lock
        self.durable = host.durable
        self.syncs = host.syncs or host.tells  # Whether its calls wait for the disk, or for watchers.
        self.shares = False  # Whether its turns may share a frame: see Host.settle.
        with host.durable, host.lock, host:
            self.connection = host.join()
            host.sessions.add(self)
        # No strong references: a queue that is forgotten goes at once, and not when the garbage collector comes.
        self._twins = [weakref.ref(self)]
        _sessions.add(self)

    def for_tasks(self) -> Session:
        """The same session for asyncio: its calls return at once, and `until_durable` is awaited after them."""
        twin = Session.__new__(Session)
        twin.host, twin.connection, twin._twins = self.host, self.connection, self._twins
        twin.closed, twin.barred, twin.lock = self.closed, self.barred, self.lock
        twin.durable, twin.syncs, twin.shares = NOTHING, False, True
        self._twins.append(weakref.ref(twin))
        if not self.closed:
            self.host.sessions.add(twin)
        _sessions.add(twin)
        return twin

    def __enter__(self) -> None:
        # It may have been closed while we waited for the lock.
        if self.barred:
            self.refuse()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.host.settle(self.shares)
        else:
            self.host.settle_after(error)

    def refuse(self) -> NoReturn:
        """Say why this session may not be used any more."""
        assert isinstance(self.lock, Refusal)
        self.lock.refuse()

    def bar(self, refusal: Refusal) -> None:
        """Let nobody use this session any more."""
        self.lock = refusal
        self.barred = True

    def wait_for_watchers(self) -> None:
        """Let its calls return when watchers have been called with what they did."""
        if not self.shares:
            self.durable, self.syncs = self.host.durable, True

    def close(self) -> None:
        """End the session: what it has taken goes back to its tubes. Interrupted, it can be called again."""
        if self.host.shut:
            # Also in the child of a fork, where the lock may be held for ever.
            return
        with self.host.lock:
            if self.closed:
                return
            twins = [twin for weak in self._twins if (twin := weak()) is not None]
            for twin in twins:
                twin.bar(Refusal(Closed))
                self.host.sessions.discard(twin)
            self.host.leave(self.connection)
            for twin in twins:
                twin.closed = True
        if self.host.failure is None:
            self.host.flush()
        self.host.finish_telling()


# Sessions of this process, for the child of a fork to be told that they are not its own.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for session in list(_sessions):
        session.closed = True
        session.bar(Refusal(Forked))
        session.host.leave_to_parent()


os.register_at_fork(after_in_child=_refuse_in_child)
