"""One connection to a server, for threads: commands out, answers in. Whatever goes wrong on it, it is closed then:
a connection with half an answer on it is never used again."""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Final

from penstock.client import greeting
from penstock.client.url import Target
from penstock.core.errors import ProtocolError
from penstock.wire.answers import AnswerParser, Push, encode

_RECEIVE_BYTES: Final = 1 << 16
# What is longer is sent in such pieces: a slow way is no silent server, as long as something gets on.
_SEND_BYTES: Final = 1 << 20
# Who sends an answer is given the time of another one for so many bytes of it.
PROGRESS_BYTES: Final = 1 << 16
_CLOSE_S: Final = 2.0


class Line:
    """One connection, used by one thread at a time. It has no session: what it asks leaves no trace."""

    def __init__(self, target: Target, seed: tuple[str, int], connect_s: float) -> None:
        """Connect and authenticate, within `connect_s`."""
        self._until = time.monotonic() + connect_s
        self._parser = AnswerParser()
        self._timeout: float | None = connect_s
        self._socket = socket.create_connection(seed, connect_s)
        try:
            keep_alive(self._socket)
            if target.tls is not None:
                self._set_timeout(self._left_s())
                self._socket = target.tls.wrap_socket(self._socket, server_hostname=seed[0])
            # What waits to be read on an idle connection is its end. What TLS has to say of its own comes before the
            # first answer; if it ever says more, there will be a new connection for it.
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._greet(target, seed)
        except BaseException:
            self.close()
            raise

    def _greet(self, target: Target, seed: tuple[str, int]) -> None:
        greeting.read_plain(seed, self._say(greeting.plain_words(target)))

    def _say(self, first: list[list[bytes]]) -> list[object]:
        return self.ask(b"".join(encode(words) for words in first), len(first), self._left_s())

    def _left_s(self) -> float:
        """Return how long making the connection may still take."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the server does not answer")
        return left_s

    def is_stale(self) -> bool:
        """Whether the server has hung up since it was used last."""
        return bool(self._poll.poll(0))

    def ask(self, data: bytes, count: int, timeout_s: float | None) -> list[object]:
        """Send commands, and return their answers.

        Each answer may take so long, and so may each `PROGRESS_BYTES` of a longer one: a slow network is no silent
        server, but one that sends a byte from time to time is. Each piece that is sent may take as long.
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
                raise EOFError("the server hung up")
            parser.feed(received)
            before = len(answers)
            for answer in parser.parse():
                if not isinstance(answer, Push):
                    answers.append(answer)
            if len(answers) >= count:
                if len(answers) > count or not parser.is_idle():
                    raise ProtocolError("the server said more than it was asked")
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
        """Hang up."""
        self._socket.close()

    def interrupt(self) -> None:
        """Hang up on whoever waits for an answer in another thread."""
        try:
            # Not as TLS does it, which first stops to encipher: whoever is about to send would then do so in clear.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def finish(self) -> None:
        """Hang up, and see the server do so too: then it has let go of everything that this connection had."""
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


class Connection(Line):
    """A connection of a session."""

    def __init__(self, target: Target, seed: tuple[str, int], token: str, grace_ms: int, connect_s: float) -> None:
        """Connect within `connect_s`, and join the session of a token, or begin one."""
        self.token = token
        self._grace_ms = grace_ms
        super().__init__(target, seed, connect_s)

    def _greet(self, target: Target, seed: tuple[str, int]) -> None:
        greeted = greeting.read(seed, self._say(greeting.words(target, self.token, self._grace_ms)))
        self.token = greeted.token
        self.number = greeted.number
        self.max_body = greeted.max_body
        self.nodes = greeted.nodes


def keep_alive(connection: socket.socket) -> None:
    """Send at once, and notice within a minute that a silent server is gone: who waits for a job may wait for days."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
