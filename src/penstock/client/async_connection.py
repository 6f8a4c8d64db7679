"""One connection to a server, for asyncio: any number of commands under way, answered in their order.

What is sent in one turn of the loop goes out in one write. A caller that is cancelled leaves its place in the line to
its answer, so that the answers behind it still find theirs; jobs in an answer that nobody waits for are handed to
`on_unseen`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.client import greeting
from penstock.client.connection import PROGRESS_BYTES, keep_alive
from penstock.client.url import Target
from penstock.core.errors import ProtocolError
from penstock.wire.answers import AnswerParser, Push, encode

_CLOSE_S: Final = 2.0


class AsyncConnection(asyncio.Protocol):
    """One connection. Whatever goes wrong on it, it is closed then, and `lost` says why."""

    transport: asyncio.Transport

    def __init__(
        self,
        on_unseen: Callable[[Any], None],
        on_doubt: Callable[[], None],
        on_gone: Callable[[AsyncConnection], None],
        answer_s: float | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._on_unseen = on_unseen
        self._on_doubt = on_doubt
        self._answer_s = answer_s
        self._parser = AnswerParser()
        self._line: deque[tuple[asyncio.Future[Any], bool]] = deque()  # Who waits, and whether for jobs.
        self._out: list[bytes] = []
        self._heard = 0.0  # When the server last sent an answer or enough of one, or began to owe an answer.
        self._progress = 0  # How many bytes came since.
        self._written = 0  # How many bytes were to be sent to it,
        self._sent = 0  # and had been when its time was over last.
        self._patience_s: float | None = None  # How long it may be silent while it owes one; None: for ever.
        self._watching: asyncio.TimerHandle | None = None
        self._full: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.lost: Exception | None = None
        self.token = ""
        self.number = 0
        self.max_body = 0

    async def open(self, target: Target, seed: tuple[str, int], token: str, grace_ms: int, connect_s: float) -> None:
        """Connect within `connect_s`, and join the session of a token, or begin one."""
        try:
            async with asyncio.timeout(connect_s):
                await self._loop.create_connection(
                    lambda: self, *seed, ssl=target.tls, server_hostname=seed[0] if target.tls else None
                )
                answers = [self.send(encode(words)) for words in greeting.words(target, token, grace_ms)]
                greeted = greeting.read(seed, list(await asyncio.gather(*answers)))
        except BaseException:
            self.abort(ConnectionAbortedError("it was not greeted"))
            if not hasattr(self, "transport"):
                self._on_gone(self)
            raise
        self.token = greeted.token
        self.number = greeted.number
        self.max_body = greeted.max_body
        self.nodes = greeted.nodes

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            keep_alive(connection)

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        self._progress += len(data)
        parser = self._parser
        line = self._line
        if self._progress >= PROGRESS_BYTES:
            self._note_progress()
        try:
            parser.feed(data)
            while answers := parser.parse():
                self._note_progress()
                for answer in answers:
                    if isinstance(answer, Push):
                        continue
                    if not line:
                        raise ProtocolError("the server said more than it was asked")
                    waiting, is_take = line.popleft()
                    if not waiting.done():
                        waiting.set_result(answer)
                    elif is_take:
                        self._on_unseen(answer)
        except ProtocolError as error:
            self.abort(error)

    def _note_progress(self) -> None:
        """Let the server's time begin anew: it has sent an answer, or enough of a long one."""
        self._heard = self._loop.time()
        self._progress = 0

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._fail(error or EOFError("the server hung up"))
        self._gone.set_result(None)
        self._on_gone(self)

    def pause_writing(self) -> None:
        """The server does not read what it is sent."""
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        """It reads again."""
        self._heard = self._loop.time()
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    # What the session calls

    def send(self, data: bytes, is_take: bool = False, wait_s: float | None = 0) -> asyncio.Future[Any]:
        """Send a command with what else is sent in this turn; give a future of its answer."""
        waiting: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None:
            waiting.set_exception(self.lost)
            return waiting
        if not self._line:
            self._expect(wait_s)
        self._line.append((waiting, is_take))
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        return waiting

    async def drained(self) -> None:
        """Wait until there is room to send."""
        if self._full is not None:
            await asyncio.shield(self._full)

    def is_full(self) -> bool:
        """Whether who has more to send should wait."""
        return self._full is not None

    def is_idle(self) -> bool:
        """Whether nobody waits for an answer on it."""
        return not self._line

    def can_hang_up_politely(self) -> bool:
        """Whether the server can be told that nothing more will be sent, and still be heard."""
        return self.lost is None and self.transport.can_write_eof()

    def hang_up(self) -> None:
        """Say that nothing more will be sent. The server answers what it was sent, lets no take wait, and hangs up."""
        self._flush()
        self.transport.write_eof()

    async def gone(self) -> None:
        """Wait until both sides have hung up."""
        await asyncio.shield(self._gone)

    async def finish(self) -> None:
        """Hang up, and see the server do so too: then it has let go of everything that this connection had."""
        try:
            if self.can_hang_up_politely():
                self.hang_up()
            else:
                self.abort(ConnectionAbortedError("it was closed"))
            async with asyncio.timeout(_CLOSE_S):
                await self.gone()
        except (OSError, TimeoutError):
            self.abort(ConnectionAbortedError("it was closed"))

    def abort(self, error: Exception) -> None:
        """Close it at once; whoever waits is told why."""
        self._fail(error)
        if hasattr(self, "transport"):
            self.transport.abort()

    def _flush(self) -> None:
        if self._out and self.lost is None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._written += len(data)
            self.transport.write(data)

    def _fail(self, error: Exception) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self.resume_writing()
        line, self._line = self._line, deque()
        self._out.clear()
        for waiting, is_take in line:
            if not waiting.done():
                waiting.set_exception(error)
            elif is_take:
                # Whoever wanted it was cancelled, and its answer will not come: perhaps it had jobs in it.
                self._on_doubt()

    def _expect(self, wait_s: float | None) -> None:
        """From now on the server owes an answer, which may take so long beside its usual time; None: for ever."""
        self._heard = self._loop.time()
        self._patience_s = None if self._answer_s is None or wait_s is None else self._answer_s + wait_s
        self._watch_on()

    def _watch_on(self) -> None:
        """Look again when the server's time is over. A timer that comes sooner finds out, and is set anew."""
        if self._patience_s is None:
            return
        due = self._heard + self._patience_s
        if self._watching is None or self._watching.when() > due:
            if self._watching is not None:
                self._watching.cancel()
            self._watching = self._loop.call_at(due, self._watch)

    def _watch(self) -> None:
        """Close it if the server owes an answer, and has neither read nor said anything for too long."""
        self._watching = None
        if not self._line or self._patience_s is None:
            return
        if self._loop.time() >= self._heard + self._patience_s:
            unsent = self.transport.get_write_buffer_size()
            sent = self._written - unsent
            if unsent == 0 or sent <= self._sent:
                self.abort(TimeoutError("the server does not answer"))
                return
            # A slow way is no silent server, as long as something gets on.
            self._sent = sent
            self._heard = self._loop.time()
        self._watch_on()
