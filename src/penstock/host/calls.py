"""Context managers around a call: one waits for the disk after the call, and one refuses the call."""

from __future__ import annotations

import contextlib
from typing import Any, Final, NoReturn, Protocol

from penstock.core.errors import CommandError


class Refusal:
    """Replaces the lock of a session that can no longer be used: entering it with `with` raises an error."""

    def __init__(self, error: type[CommandError], why: str | None = None) -> None:
        self._error = error
        self._why = why

    def refuse(self) -> NoReturn:
        raise self._error(self._why)

    def __enter__(self) -> None:
        self.refuse()

    def __exit__(self, *_: object) -> None: ...


class Revocable(Protocol):
    """A session that can be revoked. A revoked session refuses all calls."""

    def revoke(self, refusal: Refusal) -> None: ...
    def wait_for_watchers(self) -> None: ...


class Context(Protocol):
    """A context manager around a part of a call."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


class Syncing(Protocol):
    """A host whose calls return after the log was synced."""

    def make_durable(self) -> None: ...


class Durable:
    """A context manager around the lock: it makes a call return only after its changes are durable.

    This also holds for reads and refusals, because they can reveal the changes of other calls.
    """

    def __init__(self, host: Syncing) -> None:
        self._host = host

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._host.make_durable()


# Surrounds the lock where calls do not wait for the disk.
NOTHING: Final[Context] = contextlib.nullcontext()
