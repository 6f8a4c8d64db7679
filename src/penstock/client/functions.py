"""Calls of the functions that a server has for clients of Tarantool. The session of a queue makes these calls.

The session holds the jobs that a function delivers, as if `tube.take` had taken them. A call that changes something is
not repeated if its reply was lost, because it may have been executed.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from penstock import api
from penstock.client.commands import NO_REPEAT, REPEAT, Call, Reply
from penstock.client.queue import Queue
from penstock.core.errors import WrongType
from penstock.core.limits import NEVER
from penstock.wire.msgpack import pack, unpack

# The number of bytes that an argument may have in addition to a body: the names and numbers of a row.
_BESIDE_BODY_BYTES: Final = 32 * 1024

# The index of the first argument, after CALL and the name.
_FIRST: Final = 2


class Called(NamedTuple):
    """The values that a function returned."""

    results: list[Any]
    ids: list[str]  # The ids of the jobs that were delivered.


class FunctionCall(Call[Called]):
    """A call of a function."""

    __slots__ = ()

    def __init__(self, name: bytes, args: tuple[Any, ...], repeat: int, wait_ms: int) -> None:
        super().__init__([b"CALL", name, *(pack(arg) for arg in args)], _read, repeat, wait_ms)
        # The server accepts arguments that are a little larger than a body, and itself refuses a body that is too long.
        self.largest = max(len(word) - _BESIDE_BODY_BYTES for word in self.words)

    def wait_word(self) -> bytes:
        """Return `wait_ms` in the form in which functions expect a timeout: seconds, encoded in msgpack."""
        return pack(self.wait_ms / 1000)


class Functions:
    """The functions of one server."""

    def __init__(self, queue: api.Queue) -> None:
        if not isinstance(queue, Queue):
            raise WrongType(f"give a queue that penstock.open or penstock.connect returned, not {type(queue).__name__}")
        self._session = queue._session

    def call(self, name: bytes, *args: Any, only_reads: bool = False, wait_ms: int = 0) -> list[Any]:
        """Call a function that delivers no job. Its reply can take up to `wait_ms` longer than usual."""
        return self._session.call(FunctionCall(name, args, REPEAT if only_reads else NO_REPEAT, wait_ms)).results

    def take(self, name: bytes, *args: Any, timeout_at: int, wait_ms: int) -> list[Any]:
        """Call a function that delivers a job. `args[timeout_at]` is its longest wait for a job."""
        end = time.monotonic() + wait_ms / 1000
        while True:
            call = FunctionCall(name, args, REPEAT, wait_ms)
            call.delivered = lambda called: dict.fromkeys(called.ids, 0)
            call.timeout_at, call.empty = _FIRST + timeout_at, [pack([]), []]
            if wait_ms:
                call.wait_at_most(wait_ms)
            results = self._session.call(call).results
            # The server ends a take early if another call asks which jobs this session holds.
            if wait_ms != NEVER:
                wait_ms = max(0, int((end - time.monotonic()) * 1000))
            if results or wait_ms == 0:
                return results


def _read(answer: Reply) -> Called:
    results = unpack(answer[0])
    assert isinstance(results, list)
    return Called(results, [id.decode() for id in answer[1]])
