"""A connection that reconnects, for clients that take no jobs: readers of the log and of claims.

It has no session, so it cannot hold jobs. One thread uses it at a time.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

from penstock.client.backoff import Backoff
from penstock.client.commands import NO_REPEAT, Call
from penstock.client.connection import PlainConnection
from penstock.client.handshake import LOST, no_answer, refusal
from penstock.client.url import Target, address
from penstock.core.errors import BadAnswer, ConnectionLost, NoServer
from penstock.core.limits import NEVER
from penstock.wire.resp_client import ErrorReply, encode

T = TypeVar("T")


class ReconnectingConnection:
    """A connection to a server that is made again when it is lost."""

    def __init__(self, target: Target) -> None:
        """Connect. Retry an unreachable server only if the target has the option `retry_for`."""
        self.target = target
        self._seed = 0  # The index of the address that answered last.
        self._connection: PlainConnection | None = None
        self._connection = self._open(Backoff(target.first_s), is_first=True)

    def call(self, call: Call[T]) -> T:
        """Send a call and return its result. Repeat it if its reply was lost and that is safe."""
        search: Backoff | None = None
        while True:
            try:
                answer = self._ask(call)
            except NoServer:
                raise
            except LOST as error:
                if call.repeat == NO_REPEAT:
                    raise ConnectionLost() from error
                search = search or Backoff(self.target.retry_s)
                pause_s = search.pause()
                if pause_s is None:
                    raise ConnectionLost("the connection was lost again and again, until time was over") from error
                time.sleep(pause_s)
                continue
            if isinstance(answer, ErrorReply):
                raise refusal(answer)
            try:
                return call.read(answer)
            except BadAnswer:
                self.close()
                raise

    def _ask(self, call: Call[Any]) -> object:
        if self._connection is None or self._connection.is_stale():
            self.close()
            self._connection = self._open(Backoff(self.target.retry_s))
        answer_s = self.target.answer_s
        patience = None if answer_s is None or call.wait_ms == NEVER else answer_s + call.wait_ms / 1000
        try:
            return self._connection.ask(encode(call.words), 1, patience)[0]
        except BaseException:
            self.close()
            raise

    def _open(self, search: Backoff, is_first: bool = False) -> PlainConnection:
        """Connect to one of the addresses. Retry after each pause of `search`, until it has none left."""
        while True:
            for _ in self.target.seeds:
                seed = self.target.seeds[self._seed]
                try:
                    line = PlainConnection(self.target, seed, self.target.connect_s)
                    self.target.reach.found(address(*seed))
                    return line
                except LOST as error:
                    wrong = no_answer(self.target, seed, error)
                    self._seed = (self._seed + 1) % len(self.target.seeds)
            pause_s = search.pause()
            if pause_s is not None or not is_first:
                self.target.reach.lost(wrong)
            if pause_s is None:
                raise wrong
            time.sleep(pause_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
