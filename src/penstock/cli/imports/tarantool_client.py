"""Reads the spaces of a running Tarantool over IPROTO. It sends only AUTH and SELECT, so it changes nothing."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock.cli.errors import ERROR, REFUSED, TEMPORARY, USAGE
from penstock.cli.imports.tarantool_spaces import BadSource, Row, Space, fields_of, read_spaces
from penstock.core.errors import ProtocolError
from penstock.wire import iproto
from penstock.wire.msgpack import Reader, pack, unpack

SCHEME: Final = "tarantool://"
DEFAULT_PORT: Final = 3301

# A server that does not answer for this long is treated as unreachable.
_PATIENCE_S: Final = 30.0
# Rows per request: a page of small tasks is about 100 KB.
_PAGE_ROWS: Final = 500
_PACKET_BYTES_MAX: Final = 1 << 31
_GREETING_BYTES: Final = 128

# Tarantool's views of its catalogue, which show the spaces that the user may read.
_VSPACE, _VINDEX = 281, 289
_IT_ALL, _IT_LE, _IT_GT = 2, 4, 6

_GREETING: Final = re.compile(rb"Tarantool (\S+) \(Binary\) ([0-9a-fA-F-]{36})")


class TarantoolServer:
    """A connection to a Tarantool."""

    id: str
    label: str
    spaces: dict[str, Space]

    def __init__(self, url: str) -> None:
        """Connect, log in and read the catalogue. Raise BadSource if that is not possible."""
        host, port, user, password = _address(url)
        self.label = f"{SCHEME}{host}:{port}"
        self._sync = 0
        try:
            self._socket = socket.create_connection((host, port), _PATIENCE_S)
        except OSError as error:
            raise BadSource(f"cannot connect to {self.label}: {error.strerror or error}", TEMPORARY) from None
        self._file = self._socket.makefile("rb")
        try:
            self._log_in(user, password)
        except BaseException:
            self.close()
            raise

    def _log_in(self, user: str, password: str) -> None:
        salt = self._greet()
        if user:
            self._authenticate(user, password, salt)
        try:
            spaces = [unpack(raw) for raw in self._all(_VSPACE)]
            indexes = [unpack(raw) for raw in self._all(_VINDEX)]
            self.spaces = read_spaces(spaces, indexes)
        except (LookupError, TypeError, ProtocolError) as error:
            raise self._invalid_answer(error) from None

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def rows(self, space: Space, after: Any = None) -> Iterator[Row]:
        if 0 in space.indexes and space.indexes[0].type != "tree":
            raise BadSource(
                f"{self.label}: the primary index of space {space.name} is a {space.indexes[0].type} index, which has "
                "no order; give it a tree index",
                ERROR,
            )
        key = b"\x90" if after is None else base64.b64decode(after)
        while page := self._select(space.id, _IT_ALL if key == b"\x90" else _IT_GT, key, _PAGE_ROWS):
            for raw in page:
                key = self._key(space, raw)
                yield Row(raw, base64.b64encode(key).decode())

    def last(self, space: Space) -> bytes | None:
        found = self._select(space.id, _IT_LE, b"\x90", 1)
        return found[0] if found else None

    def _key(self, space: Space, raw: bytes) -> bytes:
        try:
            fields = fields_of(raw)
            parts = [fields[at] for at in space.key]
        except (ProtocolError, LookupError) as error:
            raise self._invalid_answer(error) from None
        return bytes([0x90 | len(parts)]) + b"".join(parts)

    def _all(self, space: int) -> list[bytes]:
        return self._select(space, _IT_ALL, b"\x90", 0xFFFFFFFF)

    def _select(self, space: int, iterator: int, key: bytes, limit: int) -> list[bytes]:
        body = pack({0x10: space, 0x11: 0, 0x12: limit, 0x13: 0, 0x14: iterator})
        # The key is already msgpack, so it is appended after the other pairs.
        answer = self._ask(iproto.SELECT, bytes([body[0] + 1]) + body[1:] + b"\x20" + key)
        try:
            reader = Reader(answer)
            for _ in range(reader.length_of_map()):
                if reader.unsigned() == 0x30:
                    return [reader.raw() for _ in range(reader.length_of_array())]
                reader.skip()
        except ProtocolError as error:
            raise self._invalid_answer(error) from None
        return []

    def _greet(self) -> bytes:
        """Read the greeting. Return the salt with which the password is hashed."""
        greeting = self._read(_GREETING_BYTES)
        found = _GREETING.match(greeting)
        if found is None:
            raise BadSource(f"{self.label} is not a Tarantool server: its greeting is different", ERROR)
        self.id = found[2].decode().lower()
        try:
            return base64.b64decode(greeting[64:].strip())[: iproto.SALT_BYTES]
        except ValueError as error:
            raise self._invalid_answer(error) from None

    def _authenticate(self, user: str, password: str, salt: bytes) -> None:
        once = hashlib.sha1(password.encode()).digest()
        mask = hashlib.sha1(salt + hashlib.sha1(once).digest()).digest()
        scramble = bytes(a ^ b for a, b in zip(once, mask))
        self._ask(iproto.AUTH, pack({0x23: user, 0x21: ["chap-sha1", scramble]}))

    def _ask(self, code: int, body: bytes) -> bytes:
        self._sync += 1
        packet = pack({0: code, 1: self._sync}) + body
        try:
            self._socket.sendall(b"\xce" + len(packet).to_bytes(4, "big") + packet)
        except OSError as error:
            raise self._lost(error) from None
        head = self._read(5)
        length = int.from_bytes(head[1:], "big")
        if head[0] != 0xCE or length > _PACKET_BYTES_MAX:
            raise self._invalid_answer(None)
        answer = self._read(length)
        try:
            reader = Reader(answer)
            header = reader.value()
            status = header[0] if isinstance(header, dict) else 0
            if status & 0x8000:
                error_map = reader.value()
                text = error_map.get(0x31, "") if isinstance(error_map, dict) else ""
                raise BadSource(f"{self.label} refused the request: {text}", REFUSED)
        except (LookupError, TypeError, ProtocolError) as error:
            raise self._invalid_answer(error) from None
        return answer[reader.at :]

    def _read(self, length: int) -> bytes:
        try:
            data = self._file.read(length)
        except OSError as error:
            raise self._lost(error) from None
        if len(data) < length:
            raise self._lost(None)
        return data

    def _lost(self, error: OSError | None) -> BadSource:
        why = "it closed the connection" if error is None else error.strerror or str(error)
        return BadSource(f"lost the connection to {self.label}: {why}", TEMPORARY)

    def _invalid_answer(self, error: Exception | None) -> BadSource:
        return BadSource(f"{self.label} sent an answer that is not valid IPROTO{f' ({error})' if error else ''}", ERROR)


def _address(url: str) -> tuple[str, int, str, str]:
    wrong = BadSource("write the URL as tarantool://user:password@host:3301", USAGE)
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise wrong from None
    if not url.startswith(SCHEME) or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise wrong
    return parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or "")
