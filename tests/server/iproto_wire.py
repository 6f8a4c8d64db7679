"""An IPROTO connection that shows the raw bytes. Its msgpack is a third-party library."""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from .serving import PATIENCE_S

SELECT, CALL_16, AUTH, EVAL, CALL, PING, ID = 1, 6, 7, 8, 10, 64, 73


class Refusal(Exception):
    """An error of the server: its number and its text."""


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def packet(header: Any, body: Any = None, *, prefix: str = ">BI") -> bytes:
    """Return a packet as asynctnt and net.box send it."""
    rest = pack(header) + (b"" if body is None else pack(body))
    return struct.pack(prefix, 0xCE, len(rest)) + rest


def request(code: int, body: Any = None, sync: int = 0) -> bytes:
    return packet({0: code, 1: sync}, body)


def call(name: str | bytes, args: Sequence[Any] = (), sync: int = 0, code: int = CALL) -> bytes:
    name = name if isinstance(name, str) else name.decode()
    return request(code, {0x22: name, 0x21: list(args)}, sync)


def scrambled(password: str, salt: bytes) -> bytes:
    """Return the chap-sha1 scramble of a password."""
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(salt + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


class IprotoWire:
    """An IPROTO connection."""

    def __init__(self, port: int, *, greets: bool = True, source: str = "") -> None:
        """Connect to a port, from any address or from the address `source`."""
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (source, 0) if source else None)
        self._file = self.socket.makefile("rb")
        self._sync = 0
        self._early: dict[int, tuple[int, Any]] = {}  # Replies that were read while waiting for another one.
        if greets:
            self.greeting = self._file.read(128)
            self.salt = base64.b64decode(self.greeting[64:108])[:20]

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> tuple[int, int, Any]:
        """Return the next reply: its code, its sync and its body. The code is -1 at the end of the connection."""
        head = self._file.read(5)
        if len(head) < 5:
            return -1, -1, None
        assert head[0] == 0xCE
        unpacker = msgpack.Unpacker(strict_map_key=False, raw=False)
        unpacker.feed(self._file.read(struct.unpack(">I", head[1:])[0]))
        header = unpacker.unpack()
        assert set(header) == {0, 1, 5}
        return header[0], header[1], unpacker.unpack()

    def start(self, name: str | bytes, *args: Any, code: int = CALL) -> int:
        """Send a call without waiting for the reply. Return its sync."""
        self._sync += 1
        self.send_raw(call(name, args, self._sync, code))
        return self._sync

    def result(self, sync: int) -> list[Any]:
        """Return or raise the result of the call with this sync. Other replies may come first."""
        while sync not in self._early:
            code, got, body = self.read()
            assert code >= 0, "the server has closed"
            self._early[got] = code, body
        code, body = self._early.pop(sync)
        if code:
            raise Refusal(code & 0x7FFF, body[0x31])
        data: list[Any] = body[0x30]
        return data

    def call(self, name: str | bytes, *args: Any, code: int = CALL) -> list[Any]:
        return self.result(self.start(name, *args, code=code))

    def ask(self, code: int, body: Any = None) -> tuple[int, Any]:
        """Return the code and the body of the reply to any request."""
        self._sync += 1
        self.send_raw(request(code, body, self._sync))
        got, sync, answer = self.read()
        assert sync == self._sync
        return got, answer

    def log_in(self, user: str, password: str) -> tuple[int, Any]:
        return self.ask(AUTH, {0x23: user, 0x21: ["chap-sha1", scrambled(password, self.salt)]})

    def is_silent(self, other: IprotoWire) -> bool:
        """Return whether there is no reply, after the server has answered another connection twice."""
        other.ask(PING)
        other.ask(PING)
        return not select.select([self.socket], [], [], 0)[0]

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection, after reading what it sent."""
        try:
            while self._file.read(65_536):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()
