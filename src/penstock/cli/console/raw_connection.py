"""A connection that sends any command to a server. It begins no session, and AUTH may be its first command."""

from __future__ import annotations

import os
import socket
from typing import Final

from penstock.client.connection import PlainConnection
from penstock.client.url import Target
from penstock.core.errors import ConnectionLost, ProtocolError, WrongServer, refusal_of
from penstock.wire.resp_client import ErrorReply, Push, encode

_RECEIVE_BYTES: Final = 1 << 16


class Status(bytes):
    """A status reply. It is shown without quotes, unlike a bulk string."""


class RawConnection(PlainConnection):
    """A connection to the first server that a target lists."""

    def __init__(self, target: Target) -> None:
        """Connect. Authenticate if the target has a user or a password."""
        self._address = str(target)
        self._answers: list[object] = []
        self._is_status = False  # The reply that is being received is a status.
        super().__init__(target, target.seeds[0], target.connect_s)

    def _greet(self, target: Target, seed: tuple[str, int]) -> None:
        if target.user or target.password:
            user = [os.fsencode(target.user)] if target.user else []
            answer = self._send_all([[b"AUTH", *user, target.password]])[0]
            if isinstance(answer, ErrorReply):
                code, _, sentence = answer.line.decode("utf-8", "backslashreplace").partition(" ")
                raise refusal_of(code, f"{target} refuses: {sentence.removesuffix('.')}; see -a and --user")

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection since its last use."""
        try:
            # Under TLS this reads encrypted bytes, which may be there before the first reply.
            return super().is_stale() and not socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except OSError:
            return True

    def call(self, words: list[bytes]) -> object:
        """Send a command and return its reply, as `receive` does."""
        self._set_timeout(None)  # A command may block for days.
        try:
            self._socket.sendall(encode(words))
        except OSError:
            # The server may have sent the reason before it closed the connection. `receive` reads it.
            pass
        return self.receive()

    def receive(self) -> object:
        """Return the next reply. Raise ConnectionLost or WrongServer if there is none."""
        try:
            while not self._answers:
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise EOFError
                if self._parser.is_idle():
                    # The parser does not tell a status from a bulk string, but the first byte does. A command has one
                    # reply, and all replies of MONITOR are statuses.
                    self._is_status = data.startswith(b"+")
                self._parser.feed(data)
                for answer in self._parser.parse():
                    if self._is_status and isinstance(answer, bytes):
                        answer = Status(answer)
                    if not isinstance(answer, Push):
                        self._answers.append(answer)
        except (EOFError, OSError):
            lost = f"{self._address} closed the connection; it is unknown whether the command ran"
            raise ConnectionLost(lost) from None
        except ProtocolError:
            raise WrongServer(f"the server at {self._address} does not speak RESP; check the address") from None
        return self._answers.pop(0)
