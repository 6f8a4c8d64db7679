"""IPROTO, Tarantool's protocol: parses requests and encodes replies.

    length  header map {0: request, 1: sync, …}  body map {…}            a packet; the length is a msgpack integer

Requests are answered in the order in which they finish. A reply has the sync number of its request. For any bytes, the
parser returns requests, or sets `error` and reads no more. For a packet with an invalid body, it returns a request
`BROKEN`, and reads the packets after it normally. A packet longer than `packet_max` is discarded while it arrives. For
this packet the parser returns a request `OVERSIZED` with its sync number. The arguments of a call stay in msgpack,
separated from each other. Functions decode the arguments that they need. Job bodies are never decoded.
"""

from __future__ import annotations

import base64
from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from penstock.core.errors import ProtocolError
from penstock.core.limits import BODY_BYTES_HARD_MAX, NEVER
from penstock.wire.input_buffer import RequestBuffer
from penstock.wire.msgpack import VALUES_MAX, Reader, write_array, write_integer, write_text
from penstock.wire.reply import Reply

# Request codes.
SELECT: Final = 1
CALL_16: Final = 6
AUTH: Final = 7
EVAL: Final = 8
CALL: Final = 10
PING: Final = 64
ID: Final = 73

# Our own code: a packet with an invalid body. The name of the request has the reason.
BROKEN: Final = -1

# Our own code: a packet longer than `packet_max`.
OVERSIZED: Final = -2

# Keys of the body map.
_SPACE: Final = 0x10
_INDEX: Final = 0x11
_LIMIT: Final = 0x12
_OFFSET: Final = 0x13
_ITERATOR: Final = 0x14
_KEY: Final = 0x20
_TUPLE: Final = 0x21
_FUNCTION: Final = 0x22
_USER: Final = 0x23
_EXPRESSION: Final = 0x27

# Tarantool's error numbers.
ER_INVALID_MSGPACK: Final = 20
ER_PROC_LUA: Final = 32
ER_NO_SUCH_SPACE: Final = 36
ER_ACCESS_DENIED: Final = 42
ER_PASSWORD: Final = 47
ER_UNKNOWN_REQUEST: Final = 48
ER_LOADING: Final = 116

# Clients read the schema again when its version changes. It never does: see dialects/spaces/schema.py.
_SCHEMA_VERSION: Final = 1

# A reply packet without its length: a map of code, sync and schema version, in the widths that Tarantool uses.
_HEADER_BYTES: Final = 23
_SYNC_AT: Final = 14  # The position of the sync number in a reply packet, counted with the length.

# The maximum length of a packet before authentication: enough for AUTH.
UNKNOWN_PACKET_BYTES_MAX: Final = 16 * 1024

# A longer packet is a protocol error and is not even discarded, because no setting allows a longer body.
DISCARDED_PACKET_BYTES_MAX: Final = BODY_BYTES_HARD_MAX

# The sync number of a discarded packet is searched in this many of its first bytes. A header has up to 60.
_HEADER_BYTES_MAX: Final = 256

# The length of the salt for a scrambled password.
SALT_BYTES: Final = 20


def greeting(version: str, uuid: str, salt: bytes) -> bytes:
    """Return the 128 bytes that a server sends first: two lines of 64."""
    first = f"Tarantool {version} (Binary) {uuid}".encode().ljust(63)
    return first + b"\n" + base64.b64encode(salt).ljust(63) + b"\n"


class Request:
    """One request of an IPROTO client."""

    code: i64
    sync: i64  # Any 64 bits.
    name: bytes  # The name of a function or a user, or the text of an EVAL; empty if there is none.
    args: list[bytes]  # Each in msgpack.
    # The other fields are only for SELECT.
    space: i64  # -1 if it is missing.
    index: i64
    iterator: i64
    limit: i64
    offset: i64

    def __init__(self, code: i64, sync: i64) -> None:
        self.code = code
        self.sync = sync
        self.name = b""
        self.args = []
        self.space = -1
        self.index = 0
        self.iterator = 0
        self.limit = NEVER
        self.offset = 0


class IprotoParser(RequestBuffer):
    """Parses the requests of one connection."""

    packet_max: i64

    _reader: Reader
    _is_known: bool
    _oversized: Request | None  # The request of a packet that is being discarded.
    _discard: i64  # The number of bytes that are still to be discarded.

    def __init__(self, packet_max: i64, buffer_max: i64, known: bool = True) -> None:
        """Create a parser. If `known` is not set, the client has lower limits until it has authenticated."""
        super().__init__(buffer_max)
        self.packet_max = packet_max if known else UNKNOWN_PACKET_BYTES_MAX
        self._reader = Reader(b"")
        self._is_known = known
        self._oversized = None
        self._discard = 0

    def raise_limits(self, packet_max: i64) -> None:
        self.packet_max = packet_max
        self._is_known = True

    def refuse_more(self) -> None:
        self._fail("too many requests are waiting")

    def is_unfinished(self) -> bool:
        return self._oversized is not None or self.pending() > 0

    def parse(self, requests_max: i64) -> list[Request]:
        """Return at most `requests_max` complete requests."""
        requests: list[Request] = []
        self.has_more = False
        if self._need > 0 and not self._join():
            return requests
        reader = self._reader
        reader.data = self._buffer
        reader.end = len(self._buffer)
        room = requests_max
        try:
            while self._pos < len(self._buffer):
                if room <= 0:
                    self.has_more = True
                    break
                if self._discard == 0 and self._find_packet(reader):
                    requests.append(_request(reader))
                    self._pos = reader.end
                    reader.end = len(self._buffer)
                    room -= 1
                    if self._pos < len(self._buffer):
                        continue
                if self._discard > 0:
                    room -= self._discard_some(requests)
                    if self._pos < len(self._buffer):
                        continue
                if not self._pending or not self._join():
                    self._free_consumed()
                    break
                reader.data = self._buffer
                reader.end = len(self._buffer)
        except ProtocolError as error:
            self._fail(str(error))
        reader.data = b""
        return requests

    def _find_packet(self, reader: Reader) -> bool:
        """Return whether the next packet is complete. If so, set the reader to its header and body."""
        first: i64 = self._buffer[self._pos]
        prefix: i64 = 1 if first < 0x80 else 0
        if 0xCC <= first <= 0xCF:
            prefix = 1 + (1 << (first - 0xCC))
        if prefix == 0:
            raise ProtocolError("packet length")
        there = len(self._buffer) - self._pos
        if there < prefix:
            self._need = prefix
            return False
        reader.at = self._pos
        reader.left = VALUES_MAX
        length = reader.unsigned()
        if length < 0 or length > self.packet_max:
            self._refuse_packet(reader, length)
            return False
        if there < prefix + length:
            self._need = prefix + length
            return False
        reader.end = reader.at + length
        return True

    def _refuse_packet(self, reader: Reader, length: i64) -> None:
        """Start to discard an oversized packet of `length` bytes. Wait until its sync number has arrived."""
        if length < 0 or length > DISCARDED_PACKET_BYTES_MAX or not self._is_known:
            raise ProtocolError(f"a packet may have at most {self.packet_max} bytes")
        start = reader.at
        header = min(length, _HEADER_BYTES_MAX)
        if len(self._buffer) < start + header:
            self._need = start + header - self._pos
            return
        reader.end = start + header
        self._oversized = Request(OVERSIZED, _header(reader).sync)
        reader.end = len(self._buffer)
        self._discard = length
        self._pos = start

    def _discard_some(self, requests: list[Request]) -> i64:
        """Discard the received part of an oversized packet.

        At its end, append a request OVERSIZED to `requests` and return 1. Otherwise return 0.
        """
        there = min(self._discard, len(self._buffer) - self._pos)
        self._pos += there
        self._discard -= there
        oversized = self._oversized
        if self._discard > 0 or oversized is None:
            return 0
        requests.append(oversized)
        self._oversized = None
        return 1

    def _fail(self, why: str) -> None:
        self.error = _why(why)
        self._oversized = None
        self._discard = 0
        self._clear()


def _request(reader: Reader) -> Request:
    request = _header(reader)
    try:
        _read_body(reader, request)
    except ProtocolError as error:
        why = _why(str(error))
        request = Request(BROKEN, request.sync)
        request.name = why
    return request


def _header(reader: Reader) -> Request:
    """Parse the header of a packet. Return a request with its code and sync number. Other header fields are skipped."""
    code: i64 = -1
    sync: i64 = 0
    for _ in range(reader.length_of_map()):
        key = reader.unsigned()
        if key == 0:
            code = reader.unsigned()
        elif key == 1:
            sync = reader.unsigned()
        else:
            reader.skip()
    if code < 0:
        raise ProtocolError("packet header")
    return Request(code, sync)


def _read_body(reader: Reader, request: Request) -> None:
    if reader.at < reader.end:
        for _ in range(reader.length_of_map()):
            key = reader.unsigned()
            if key in (_TUPLE, _KEY):
                request.args = [reader.raw() for _ in range(reader.length_of_array())]
            elif key in (_FUNCTION, _USER, _EXPRESSION):
                request.name = reader.string()
            elif key == _SPACE:
                request.space = reader.unsigned()
            elif key == _INDEX:
                request.index = reader.unsigned()
            elif key == _ITERATOR:
                request.iterator = reader.unsigned()
            elif key == _LIMIT:
                request.limit = _bounded(reader.unsigned())
            elif key == _OFFSET:
                request.offset = _bounded(reader.unsigned())
            else:
                reader.skip()
    if reader.at != reader.end:
        raise ProtocolError("there are bytes after a packet's body")


def _bounded(bits: i64) -> i64:
    """Return an unsigned number of 64 bits, or NEVER if it is too large for a signed number of 64 bits."""
    return NEVER if bits < 0 else bits


def _why(error: str) -> bytes:
    """Return Tarantool's error text for invalid bytes."""
    return f"Invalid MsgPack - {error}".encode()


def encode(request: Request) -> bytes:
    """Encode a request that calls a function."""
    writer = BytesWriter()
    writer.append(0x82)
    writer.append(0)
    write_integer(writer, request.code)
    writer.append(1)
    # A sync number can be any 64 bits.
    writer.append(0xCF)
    write_i64_be(writer, request.sync)
    writer.append(0x82)
    writer.append(_FUNCTION)
    write_text(writer, request.name)
    writer.append(_TUPLE)
    write_array(writer, len(request.args))
    for argument in request.args:
        writer.write(argument)
    packet = writer.getvalue()
    head = BytesWriter()
    head.append(0xCE)
    write_i32_be(head, i32(len(packet)))
    return head.getvalue() + packet


class ReplyPackets:
    """Splits a stream of replies into packets. Another Penstock node has written them with `IprotoReply`."""

    _buffer: bytearray

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes. Return the packets that are complete now."""
        buffer = self._buffer
        buffer += data
        packets: list[bytes] = []
        at: i64 = 0
        while len(buffer) - at >= 5:
            end = at + 5 + i64(read_i32_be(bytes(buffer[at + 1 : at + 5]), 0))
            if len(buffer) < end:
                break
            packets.append(bytes(buffer[at:end]))
            at = end
        del buffer[:at]
        return packets


def sync_of(packet: bytes) -> i64:
    """Return the sync number of a reply that `IprotoReply` has written."""
    return read_i64_be(packet, _SYNC_AT)


class IprotoReply(Reply):
    """The output buffer of an IPROTO client: replies in the order in which the requests finished."""

    def data(self, sync: i64, values: bytes) -> None:
        """Write a reply with an array of values."""
        self._head(sync, 0, 2 + len(values))
        self._writer.append(0x81)
        self._writer.append(0x30)
        self._writer.write(values)

    def done(self, sync: i64) -> None:
        """Write a reply without a value."""
        self._head(sync, 0, 1)
        self._writer.append(0x80)

    def body(self, sync: i64, fields: bytes) -> None:
        """Write a reply. `fields` is the encoded body of the reply."""
        self._head(sync, 0, len(fields))
        self._writer.write(fields)

    def refusal(self, sync: i64, number: i64, text: bytes) -> None:
        """Write an error reply with Tarantool's error number and a sentence."""
        writer = BytesWriter()
        write_text(writer, text)
        fields = writer.getvalue()
        self._head(sync, 0x8000 | number, 2 + len(fields))
        self._writer.append(0x81)
        self._writer.append(0x31)
        self._writer.write(fields)

    def _head(self, sync: i64, code: i64, body_bytes: i64) -> None:
        writer = self._writer
        writer.append(0xCE)
        write_i32_be(writer, i32(_HEADER_BYTES + body_bytes))
        writer.append(0x83)
        writer.append(0)
        writer.append(0xCE)
        write_i32_be(writer, i32(code))
        writer.append(1)
        writer.append(0xCF)
        write_i64_be(writer, sync)
        writer.append(5)
        writer.append(0xCE)
        write_i32_be(writer, _SCHEMA_VERSION)
        self.length += 5 + _HEADER_BYTES + body_bytes
