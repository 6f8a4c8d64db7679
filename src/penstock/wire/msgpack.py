"""msgpack: decodes and encodes values, and finds the ends of values without decoding them.

For any bytes, the reader returns values or raises a `ProtocolError`. It allocates memory for a value only when the
bytes of the value have arrived. It limits the number of values, and their nesting to DEPTH_MAX. Values that are only
passed on (bodies, extensions of any type) are skipped instead of decoded, so they stay byte for byte the same. (The
msgpack package was rejected: it does not distinguish binary from text that it could not decode, it raises six classes
of errors, and it decodes values that need no decoding.)
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from penstock.core.errors import ProtocolError, WrongType

# The maximum depth of a task's data or of a field of a row.
VALUE_DEPTH_MAX: Final = 64

# The maximum depth of a packet: a value, and around it a row, a list of rows, the results of a call and so on. The
# stack is large enough for this, even in interpreted code.
DEPTH_MAX: Final = VALUE_DEPTH_MAX + 8

_TOO_DEEP: Final = f"values are nested more than {VALUE_DEPTH_MAX} deep"

# The maximum number of values in a packet. They are skipped in some milliseconds and need at most 100 MB when decoded.
VALUES_MAX: Final = 1024 * 1024

NIL: Final = b"\xc0"
NO_VALUES: Final = b"\x90"

_U64: Final = 1 << 64


class Ext:
    """A value of an extension type: Tarantool's decimal is 1, uuid 2, datetime 4."""

    code: int  # -128 to 127.
    data: bytes

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ext) and self.code == other.code and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.code, self.data))

    def __repr__(self) -> str:
        return f"Ext({self.code}, {self.data!r})"


class Reader:
    """Reads msgpack values from a part of a buffer. Raises ProtocolError for malformed values."""

    data: bytes
    at: i64
    end: i64
    left: i64  # The number of values that may still be read.

    def __init__(self, data: bytes, at: i64 = 0, end: i64 = -1) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end < 0 else end
        self.left = VALUES_MAX

    def skip(self, depth: i64 = DEPTH_MAX) -> None:
        """Skip the next value without decoding it."""
        byte = self._first()
        if byte < 0x80 or byte >= 0xE0:
            return
        if byte < 0x90:
            self._skip_many(2 * (byte & 0x0F), depth)
        elif byte < 0xA0:
            self._skip_many(byte & 0x0F, depth)
        elif byte < 0xC0:
            self._pass(byte & 0x1F)
        elif byte in (0xDC, 0xDD):
            self._skip_many(self._number(2 if byte == 0xDC else 4), depth)
        elif byte in (0xDE, 0xDF):
            self._skip_many(2 * self._number(2 if byte == 0xDE else 4), depth)
        else:
            self._pass(self._scalar_bytes(byte))

    def _skip_many(self, count: i64, depth: i64) -> None:
        if depth == 0:
            raise ProtocolError(_TOO_DEEP)
        # Each value has at least one byte, so a wrong length is detected without work.
        if count > self.end - self.at:
            raise ProtocolError("a value is cut off")
        for _ in range(count):
            self.skip(depth - 1)

    def _scalar_bytes(self, byte: i64) -> i64:
        """Return how many bytes follow the type byte `byte` of a value without nested values.

        If the value has a length field, read it.
        """
        if byte < 0xC4:
            if byte == 0xC1:
                raise ProtocolError("0xc1 is not a value")
            return 0
        if byte < 0xC7:
            return self._number(1 << (byte - 0xC4))
        if byte < 0xCA:
            return self._number(1 << (byte - 0xC7)) + 1
        if byte < 0xCC:
            return 4 << (byte - 0xCA)
        if byte < 0xD0:
            return 1 << (byte - 0xCC)
        if byte < 0xD4:
            return 1 << (byte - 0xD0)
        if byte < 0xD9:
            return (1 << (byte - 0xD4)) + 1
        return self._number(1 << (byte - 0xD9))

    def value(self, depth: i64 = DEPTH_MAX) -> object:
        """Decode the next value. Bytes of text that are not UTF-8 become lone surrogates, as in Python's file names."""
        byte = self._first()
        if byte < 0x80:
            return byte
        if byte >= 0xE0:
            return byte - 256
        if byte < 0x90:
            return self._map(byte & 0x0F, depth)
        if byte < 0xA0:
            return self._array(byte & 0x0F, depth)
        if byte < 0xC0:
            return self._bytes(byte & 0x1F).decode("utf-8", "surrogateescape")
        if byte == 0xC0:
            return None
        if byte in (0xC2, 0xC3):
            return byte == 0xC3
        if byte in (0xDC, 0xDD):
            return self._array(self._number(2 if byte == 0xDC else 4), depth)
        if byte in (0xDE, 0xDF):
            return self._map(self._number(2 if byte == 0xDE else 4), depth)
        length = self._scalar_bytes(byte)
        if byte >= 0xD9:
            return self._bytes(length).decode("utf-8", "surrogateescape")
        if byte < 0xC7:
            return self._bytes(length)
        if byte < 0xCA or byte >= 0xD4:
            raw = self._bytes(length)
            code = int(raw[0])
            return Ext(code - 256 if code > 127 else code, raw[1:])
        at = self.at
        self._pass(length)
        if byte == 0xCA:
            return read_f32_be(self.data, at)
        if byte == 0xCB:
            return read_f64_be(self.data, at)
        if length == 8:
            wide = int(read_i64_be(self.data, at))
            return wide + _U64 if wide < 0 and byte == 0xCF else wide
        return self._integer(at, length, byte >= 0xD0)

    def _integer(self, at: i64, length: i64, signed: bool) -> int:
        if length == 1:
            one: i64 = self.data[at]
            return one - 256 if signed and one > 127 else one
        if length == 2:
            two = i64(read_i16_be(self.data, at))
            return two if signed else two & 0xFFFF
        four = i64(read_i32_be(self.data, at))
        return four if signed else four & 0xFFFFFFFF

    def _array(self, count: i64, depth: i64) -> list[object]:
        self._check_many(count, depth)
        return [self.value(depth - 1) for _ in range(count)]

    def _map(self, count: i64, depth: i64) -> dict[object, object]:
        self._check_many(2 * count, depth)
        found: dict[object, object] = {}
        for _ in range(count):
            key = self.value(depth - 1)
            if isinstance(key, (list, dict)):
                key = _frozen(key)
            found[key] = self.value(depth - 1)
        return found

    def _check_many(self, count: i64, depth: i64) -> None:
        if depth == 0:
            raise ProtocolError(_TOO_DEEP)
        if count > self.end - self.at:
            raise ProtocolError("a value is cut off")

    def length_of_array(self) -> i64:
        """Read the head of an array and return the number of its values. The values are read next."""
        byte = self._first()
        if byte & 0xF0 == 0x90:
            return byte & 0x0F
        if byte == 0xDC or byte == 0xDD:
            return self._number(2 if byte == 0xDC else 4)
        raise ProtocolError("expected an array")

    def length_of_map(self) -> i64:
        """Read the head of a map and return the number of its pairs. The pairs are read next."""
        byte = self._first()
        if byte & 0xF0 == 0x80:
            return byte & 0x0F
        if byte == 0xDE or byte == 0xDF:
            return self._number(2 if byte == 0xDE else 4)
        raise ProtocolError("expected a map")

    def unsigned(self) -> i64:
        """Read an unsigned integer. Return its 64 bits as a signed integer: 2**63 and more become negative."""
        byte = self._first()
        if byte < 0x80:
            return byte
        if byte < 0xCC or byte > 0xCF:
            raise ProtocolError("expected an unsigned integer")
        if byte == 0xCF:
            at = self.at
            self._pass(8)
            return read_i64_be(self.data, at)
        return self._number(1 << (byte - 0xCC))

    def raw(self) -> bytes:
        """Return the bytes of the next value without decoding it."""
        start = self.at
        self.skip(VALUE_DEPTH_MAX + 1)
        return self.data[start : self.at]

    def string(self) -> bytes:
        """Read a text or binary value. Return its bytes."""
        byte = self._first()
        if byte & 0xE0 == 0xA0:
            return self._bytes(byte & 0x1F)
        if 0xD9 <= byte <= 0xDB or 0xC4 <= byte <= 0xC6:
            return self._bytes(self._scalar_bytes(byte))
        raise ProtocolError("expected a string")

    def _first(self) -> i64:
        if self.at >= self.end:
            raise ProtocolError("a value is cut off")
        self.left -= 1
        if self.left < 0:
            raise ProtocolError(f"there are more than {VALUES_MAX} values")
        byte: i64 = self.data[self.at]
        self.at += 1
        return byte

    def _number(self, size: i64) -> i64:
        at = self.at
        self._pass(size)
        if size == 1:
            return self.data[at]
        if size == 2:
            two = i64(read_i16_be(self.data, at))
            return two & 0xFFFF
        four = i64(read_i32_be(self.data, at))
        return four & 0xFFFFFFFF

    def _pass(self, length: i64) -> None:
        if length > self.end - self.at:
            raise ProtocolError("a value is cut off")
        self.at += length

    def _bytes(self, length: i64) -> bytes:
        start = self.at
        self._pass(length)
        return self.data[start : self.at]


def _frozen(value: object) -> object:
    """Convert an array or a map to a tuple, so that it can be a key in a Python dict."""
    if isinstance(value, list):
        return tuple([_frozen(each) for each in value])
    if isinstance(value, dict):
        return tuple([(key, _frozen(each)) for key, each in value.items()])
    return value


def unpack(data: bytes) -> object:
    """Decode bytes that are exactly one value."""
    reader = Reader(data)
    value = reader.value()
    if reader.at != len(data):
        raise ProtocolError("there are bytes after the value")
    return value


# `values_in` returns this for a value that is nested too deep.
TOO_DEEP: Final = -2


def values_in(data: bytes, most: i64) -> i64:
    """Return the number of values in an argument of a call, nested values included.

    Return -1 if the bytes are not exactly one value, or if it has more than `most` values. Return TOO_DEEP if it is
    nested too deep.
    """
    reader = Reader(data)
    reader.left = most
    try:
        reader.raw()
    except ProtocolError as error:
        return TOO_DEEP if str(error) == _TOO_DEEP else -1
    return most - reader.left if reader.at == len(data) else -1


def pack(value: object, depth: i64 = DEPTH_MAX) -> bytes:
    """Encode a value, with each number as short as possible. Raise an error for types that msgpack does not have."""
    writer = BytesWriter()
    write_value(writer, value, depth)
    return writer.getvalue()


def write_value(writer: BytesWriter, value: object, depth: i64) -> None:
    """Write a value that is nested at most `depth` deep."""
    if value is None:
        writer.append(0xC0)
    elif isinstance(value, bool):
        writer.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        write_integer(writer, value)
    elif isinstance(value, str):
        write_text(writer, _encoded(value))
    elif isinstance(value, bytes):
        write_binary(writer, value)
    elif isinstance(value, float):
        writer.append(0xCB)
        write_f64_be(writer, value)
    elif depth == 0:
        raise WrongType(_TOO_DEEP)
    elif isinstance(value, (list, tuple)):
        write_array(writer, len(value))
        for each in value:
            write_value(writer, each, depth - 1)
    elif isinstance(value, dict):
        write_map(writer, len(value))
        for key, each in value.items():
            write_value(writer, key, depth - 1)
            write_value(writer, each, depth - 1)
    elif isinstance(value, Ext):
        _write_ext(writer, value)
    elif isinstance(value, (bytearray, memoryview)):
        write_binary(writer, bytes(value))
    else:
        raise WrongType(f"a value of type {type(value).__name__} cannot be written as msgpack")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise WrongType("a text cannot be written as UTF-8 (a lone surrogate)") from None


def write_integer(writer: BytesWriter, number: int) -> None:
    """Write a signed or unsigned integer of at most 64 bits."""
    if -32 <= number < 0x80:
        writer.append(number & 0xFF)
    elif 0 < number < 1 << 32:
        if number < 0x100:
            writer.append(0xCC)
            writer.append(number)
        elif number < 0x10000:
            writer.append(0xCD)
            _write_i16(writer, number)
        else:
            writer.append(0xCE)
            _write_i32(writer, number)
    elif -(1 << 31) <= number < 0:
        if number >= -0x80:
            writer.append(0xD0)
            writer.append(number & 0xFF)
        elif number >= -0x8000:
            writer.append(0xD1)
            _write_i16(writer, number)
        else:
            writer.append(0xD2)
            _write_i32(writer, number)
    elif -(1 << 63) <= number < 1 << 63:
        writer.append(0xCF if number > 0 else 0xD3)
        write_i64_be(writer, i64(number))
    elif 0 < number < _U64:
        writer.append(0xCF)
        write_i64_be(writer, i64(number - _U64))
    else:
        raise WrongType("a whole number must have at most 64 bits")


def _write_i16(writer: BytesWriter, number: i64) -> None:
    write_i16_be(writer, i16(number - 0x10000 if number > 0x7FFF else number))


def _write_i32(writer: BytesWriter, number: i64) -> None:
    write_i32_be(writer, i32(number - 0x100000000 if number > 0x7FFFFFFF else number))


def write_text(writer: BytesWriter, text: bytes) -> None:
    """Write text that is encoded in UTF-8."""
    length: i64 = len(text)
    if length < 32:
        writer.append(0xA0 | length)
    else:
        _write_length(writer, length, 0xD9, 0xDA, 0xDB)
    writer.write(text)


def write_binary(writer: BytesWriter, data: bytes) -> None:
    _write_length(writer, len(data), 0xC4, 0xC5, 0xC6)
    writer.write(data)


def write_array(writer: BytesWriter, count: i64) -> None:
    """Begin an array. `count` values must follow."""
    if count < 16:
        writer.append(0x90 | count)
    else:
        _write_length(writer, count, 0, 0xDC, 0xDD)


def write_map(writer: BytesWriter, count: i64) -> None:
    """Begin a map. `count` pairs of values must follow."""
    if count < 16:
        writer.append(0x80 | count)
    else:
        _write_length(writer, count, 0, 0xDE, 0xDF)


def _write_ext(writer: BytesWriter, ext: Ext) -> None:
    length: i64 = len(ext.data)
    if length in (1, 2, 4, 8, 16):
        writer.append({1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}[length])
    else:
        _write_length(writer, length, 0xC7, 0xC8, 0xC9)
    writer.append(ext.code & 0xFF)
    writer.write(ext.data)


def _write_length(writer: BytesWriter, length: i64, one: int, two: int, four: int) -> None:
    """Write a length, after the type byte for its size.

    `one`, `two` and `four` are the type bytes for lengths of 1, 2 and 4 bytes. `one` is 0 if there is no such type.
    """
    if length < 0x100 and one:
        writer.append(one)
        writer.append(length)
    elif length < 0x10000:
        writer.append(two)
        _write_i16(writer, length)
    else:
        writer.append(four)
        _write_i32(writer, length)
