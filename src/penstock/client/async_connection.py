"""One connection to a server, for asyncio. Any number of commands can wait for their replies, which come in order.

All commands of one turn of the event loop go out in one write. If a caller is cancelled, its entry stays in the queue
of pending replies, so that the replies behind it reach their callers. A reply to a cancelled take goes to `on_unseen`,
because it may contain jobs.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from penstock.client import handshake
from penstock.client.connection import PROGRESS_BYTES, keep_alive
from penstock.client.url import Target
from penstock.core.errors import ProtocolError
from penstock.wire.resp_client import Push, ReplyParser, encode

_CLOSE_S: Final = 2.0


class AsyncConnection(asyncio.Protocol):
    """One connection. It is closed at the first error, and `lost` is that error."""

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
        self._parser = ReplyParser()
        self._pending: deque[tuple[asyncio.Future[Any], bool]] = deque()  # Pending replies; True for those of takes.
        self._out: list[bytes] = []
        self._progress_at = (
            0.0  # The time of the last progress: a reply, enough bytes of one, or the first pending command.
        )
        self._progress = 0  # The number of bytes received since the last progress.
        self._written = 0  # The number of bytes written to the transport.
        self._sent = 0  # The number of bytes that had left the transport at the last check of the time limit.
        self._limit_s: float | None = None  # How long there may be no progress; None: no limit.
        self._watching: asyncio.TimerHandle | None = None
        self._full: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.lost: Exception | None = None
        self.token = ""
        self.number = 0
        self.max_body = 0

    async def open(self, target: Target, seed: tuple[str, int], token: str, grace_ms: int, connect_s: float) -> None:
        """Connect within `connect_s`. Join the session that has this token, or begin one if the token is empty."""
        try:
            async with asyncio.timeout(connect_s):
                await self._loop.create_connection(
                    lambda: self, *seed, ssl=target.tls, server_hostname=seed[0] if target.tls else None
                )
                answers = [self.send(encode(words)) for words in handshake.session_commands(target, token, grace_ms)]
                greeted = handshake.read_session(seed, list(await asyncio.gather(*answers)))
        except BaseException:
            self.abort(ConnectionAbortedError("the handshake failed"))
            if not hasattr(self, "transport"):
                self._on_gone(self)
            raise
        self.token = greeted.token
        self.number = greeted.number
        self.max_body = greeted.max_body
        self.nodes = greeted.nodes

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            keep_alive(connection)

    def data_received(self, data: bytes) -> None:
        """Parse replies and hand them to their callers."""
        self._progress += len(data)
        parser = self._parser
        line = self._pending
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
                        raise ProtocolError("the server sent more replies than there were commands")
                    waiting, is_take = line.popleft()
                    if not waiting.done():
                        waiting.set_result(answer)
                    elif is_take:
                        self._on_unseen(answer)
        except ProtocolError as error:
            self.abort(error)

    def _note_progress(self) -> None:
        """Restart the time limit, because the server has sent a reply, or PROGRESS_BYTES of a long one."""
        self._progress_at = self._loop.time()
        self._progress = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all pending commands."""
        self._fail(error or EOFError("the server closed the connection"))
        self._closed.set_result(None)
        self._on_gone(self)

    def pause_writing(self) -> None:
        """Make callers wait, because the server does not read."""
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let callers send again."""
        self._progress_at = self._loop.time()
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    # Called by the session

    def send(self, data: bytes, is_take: bool = False, wait_s: float | None = 0) -> asyncio.Future[Any]:
        """Send a command together with the other commands of this turn of the event loop. Return a future of its reply.

        `wait_s` is the longest time for which the server delays the reply. None means no limit.
        """
        waiting: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None:
            waiting.set_exception(self.lost)
            return waiting
        if not self._pending:
            self._expect(wait_s)
        self._pending.append((waiting, is_take))
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        return waiting

    async def drained(self) -> None:
        """Wait until the write buffer has room."""
        if self._full is not None:
            await asyncio.shield(self._full)

    def is_full(self) -> bool:
        """Return whether the write buffer is full, so that a caller should wait before it sends."""
        return self._full is not None

    def is_idle(self) -> bool:
        return not self._pending

    def can_close_write(self) -> bool:
        """Return whether replies can still arrive after this side is closed. With TLS they cannot."""
        return self.lost is None and self.transport.can_write_eof()

    def close_write(self) -> None:
        """Close this side. The server then replies to all commands without waiting, and closes the connection."""
        self._flush()
        self.transport.write_eof()

    async def wait_closed(self) -> None:
        """Wait until both sides are closed."""
        await asyncio.shield(self._closed)

    async def finish(self) -> None:
        """Close this side and wait until the server has closed its side and dropped the state of the connection."""
        try:
            if self.can_close_write():
                self.close_write()
            else:
                self.abort(ConnectionAbortedError("it was closed"))
            async with asyncio.timeout(_CLOSE_S):
                await self.wait_closed()
        except (OSError, TimeoutError):
            self.abort(ConnectionAbortedError("it was closed"))

    def abort(self, error: Exception) -> None:
        """Close the connection immediately. Pending commands raise `error`."""
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
        line, self._pending = self._pending, deque()
        self._out.clear()
        for waiting, is_take in line:
            if not waiting.done():
                waiting.set_exception(error)
            elif is_take:
                # The caller was cancelled, and the lost reply may have contained jobs.
                self._on_doubt()

    def _expect(self, wait_s: float | None) -> None:
        """Start the time limit of a reply. `wait_s` is added to the usual limit. None means no limit."""
        self._progress_at = self._loop.time()
        self._limit_s = None if self._answer_s is None or wait_s is None else self._answer_s + wait_s
        self._watch_on()

    def _watch_on(self) -> None:
        """Set a timer that calls `_watch` at the end of the time limit.

        If an earlier timer is set, keep it. `_watch` then sets the next one.
        """
        if self._limit_s is None:
            return
        due = self._progress_at + self._limit_s
        if self._watching is None or self._watching.when() > due:
            if self._watching is not None:
                self._watching.cancel()
            self._watching = self._loop.call_at(due, self._watch)

    def _watch(self) -> None:
        """Close the connection if a reply is pending and the server has neither read nor sent anything in time."""
        self._watching = None
        if not self._pending or self._limit_s is None:
            return
        if self._loop.time() >= self._progress_at + self._limit_s:
            unsent = self.transport.get_write_buffer_size()
            sent = self._written - unsent
            if unsent == 0 or sent <= self._sent:
                self.abort(TimeoutError("the server does not answer"))
                return
            # The network may be slow. Bytes that have left the buffer count as progress.
            self._sent = sent
            self._progress_at = self._loop.time()
        self._watch_on()
