"""What surrounds a call: the wait for the disk, and the lock, or the refusal that stands where the lock was."""

from __future__ import annotations

import contextlib
from typing import Any, Final, NoReturn, Protocol

from penstock.core.errors import CommandError


class Refusal:
    """What stands where a session's lock was, once the session may not be used any more."""

    def __init__(self, error: type[CommandError], why: str | None = None) -> None:
        self._error = error
        self._why = why

    def refuse(self) -> NoReturn:
        """Say why."""
        raise self._error(self._why)

    def __enter__(self) -> None:
        self.refuse()

    def __exit__(self, *_: object) -> None: ...


class Barred(Protocol):
    """One who can be refused every call from now on."""

    def bar(self, refusal: Refusal) -> None:
        """Let nobody use it any more."""

    def wait_for_watchers(self) -> None:
        """Let its calls return when watchers have been called with what they did."""


class Context(Protocol):
    """Something that surrounds part of a call."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


class Syncing(Protocol):
    """A host whose log is synced before a call returns."""

    def make_durable(self) -> None:
        """Return when everything that was done so far is on disk. Without the lock."""


class Durable:
    """Around the lock: what was done is durable before the call returns; an answer, a read or a refusal too."""

    def __init__(self, host: Syncing) -> None:
        self._host = host

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._host.make_durable()


# What surrounds the lock where nobody waits for the disk.
NOTHING: Final[Context] = contextlib.nullcontext()
