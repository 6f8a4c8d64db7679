"""One connection to a server, with blocking calls.

It is closed at the first error and never used again, because the rest of a reply could still arrive."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Final

from penstock.client import handshake
from penstock.client.url import Target
from penstock.core.errors import ProtocolError
from penstock.wire.resp_client import Push, ReplyParser, encode

_RECEIVE_BYTES: Final = 1 << 16
# Longer data is sent in pieces of this size, each with its own time limit, because the network may be slow.
_SEND_BYTES: Final = 1 << 20
# The time limit of a reply starts again after this many bytes of it.
PROGRESS_BYTES: Final = 1 << 16
_CLOSE_S: Final = 2.0


class PlainConnection:
    """One connection without a session, used by one thread at a time."""

    def __init__(self, target: Target, seed: tuple[str, int], connect_s: float) -> None:
        self._until = time.monotonic() + connect_s
        self._parser = ReplyParser()
        self._timeout: float | None = connect_s
        self._socket = socket.create_connection(seed, connect_s)
        try:
            keep_alive(self._socket)
            if target.tls is not None:
                self._set_timeout(self._left_s())
                self._socket = target.tls.wrap_socket(self._socket, server_hostname=seed[0])
            # An idle connection is readable only if the server has closed it. TLS messages come before the first reply;
            # a later one would cost a new connection.
            self._is_readable = _readable(self._socket)
            self._greet(target, seed)
        except BaseException:
            self.close()
            raise

    def _greet(self, target: Target, seed: tuple[str, int]) -> None:
        handshake.read_plain(seed, self._send_all(handshake.plain_commands(target)))

    def _send_all(self, first: list[list[bytes]]) -> list[object]:
        return self.ask(b"".join(encode(words) for words in first), len(first), self._left_s())

    def _left_s(self) -> float:
        """Return the seconds that are left to make the connection. Raise TimeoutError if none are left."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the server does not answer")
        return left_s

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection since its last use."""
        return self._is_readable()

    def ask(self, data: bytes, count: int, timeout_s: float | None) -> list[object]:
        """Send commands and return their replies.

        `timeout_s` limits the time for each reply, for each `PROGRESS_BYTES` of a longer reply, and for each piece that
        is sent. A slow network causes no error, but a server that only sends a byte from time to time does.
        """
        connection = self._socket
        self._set_timeout(timeout_s)
        if len(data) <= _SEND_BYTES:
            connection.sendall(data)
        else:
            view = memoryview(data)
            for at in range(0, len(data), _SEND_BYTES):
                connection.sendall(view[at : at + _SEND_BYTES])
        parser = self._parser
        answers: list[object] = []
        began = time.monotonic()
        progress = 0
        while True:
            received = connection.recv(_RECEIVE_BYTES)
            if not received:
                raise EOFError("the server closed the connection")
            parser.feed(received)
            before = len(answers)
            for answer in parser.parse():
                if not isinstance(answer, Push):
                    answers.append(answer)
            if len(answers) >= count:
                if len(answers) > count or not parser.is_idle():
                    raise ProtocolError("the server sent more replies than there were commands")
                return answers
            if timeout_s is not None:
                now = time.monotonic()
                progress += len(received)
                if len(answers) > before or progress >= PROGRESS_BYTES:
                    began, progress = now, 0
                if now >= began + timeout_s:
                    raise TimeoutError("the server does not answer")
                self._set_timeout(began + timeout_s - now)

    def _set_timeout(self, timeout_s: float | None) -> None:
        if timeout_s != self._timeout:
            self._socket.settimeout(timeout_s)
            self._timeout = timeout_s

    def close(self) -> None:
        self._socket.close()

    def interrupt(self) -> None:
        """Break the connection while another thread waits for a reply on it."""
        try:
            # Not by the shutdown of TLS, after which a thread that is about to send would send in clear text.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def finish(self) -> None:
        """Close this side and wait until the server has closed its side and dropped the state of the connection."""
        until = time.monotonic() + _CLOSE_S
        try:
            if not isinstance(self._socket, ssl.SSLSocket):
                self._socket.shutdown(socket.SHUT_WR)
                while (left := until - time.monotonic()) > 0:
                    self._socket.settimeout(left)
                    if not self._socket.recv(_RECEIVE_BYTES):
                        break
        except OSError:
            pass
        self.close()


class Connection(PlainConnection):
    """A connection of a session."""

    def __init__(self, target: Target, seed: tuple[str, int], token: str, grace_ms: int, connect_s: float) -> None:
        """Connect within `connect_s`. Join the session that has this token, or begin one if the token is empty."""
        self.token = token
        self._grace_ms = grace_ms
        super().__init__(target, seed, connect_s)

    def _greet(self, target: Target, seed: tuple[str, int]) -> None:
        greeted = handshake.read_session(
            seed, self._send_all(handshake.session_commands(target, self.token, self._grace_ms))
        )
        self.token = greeted.token
        self.number = greeted.number
        self.max_body = greeted.max_body
        self.nodes = greeted.nodes


def keep_alive(connection: socket.socket) -> None:
    """Let the socket send without delay and detect a dead server within a minute, because a take can wait for days."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _readable(connection: socket.socket) -> Callable[[], bool]:
    """Return a function that returns whether a connection has bytes to read, or was closed by the other side."""
    if sys.platform == "win32":
        return lambda: bool(select.select([connection], [], [], 0)[0])
    else:
        # select() refuses descriptors from 1,024 on.
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return lambda: bool(poll.poll(0))
