"""Conversion of bodies, so that a job that is put through one dialect can be taken through another.

A job stores bytes and their kind: bytes, text, JSON or msgpack (`core/job.py`). A msgpack body is an array of fields:
one field in the present API of Tarantool's queue, any number in the 1.5 API.

                   over IPROTO                   by Disque's commands       in Python
    bytes, text    binary, text                  the same bytes             bytes, str
    JSON           its value                     its text                   its value
    one field      the value                     its JSON text              the value
    several        an array of them              their JSON text            a list of them
    none           nil (1.5: no field)           nothing                    None

A body of kind JSON may be invalid, because long ones are not checked when they are put, or it may have values that
msgpack cannot represent. Such a body is delivered as text, because a consumer must get every job.
"""

from __future__ import annotations

import json
import uuid
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.errors import ProtocolError, WrongType
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT
from penstock.wire.msgpack import (
    NIL,
    VALUE_DEPTH_MAX,
    Ext,
    Reader,
    pack,
    unpack,
    write_array,
    write_binary,
    write_text,
)

_ONE_FIELD: Final = 0x91
_UUID: Final = 2  # Tarantool's extension type.


class Body:
    """The body of a job: its bytes and their kind, as the job stores them."""

    data: bytes
    kind: int

    def __init__(self, data: bytes, kind: int) -> None:
        self.data = data
        self.kind = kind


def from_value(raw: bytes) -> Body:
    """Convert one msgpack value to a body. Raise an error if the value is nested too deep."""
    first: i64 = raw[0]
    if first & 0xE0 == 0xA0 or 0xD9 <= first <= 0xDB:
        text = Reader(raw).string()
        # Lua has only one type for text and bytes. A string that is not UTF-8 is stored as bytes.
        return Body(text, BODY_TEXT if is_utf8(text) else BODY_BYTES)
    if 0xC4 <= first <= 0xC6:
        return Body(Reader(raw).string(), BODY_BYTES)
    _check_depth(raw)
    return Body(b"\x91" + raw, BODY_MSGPACK)


def _check_depth(raw: bytes) -> None:
    # Each level takes at least one byte, and most bodies are shorter.
    if len(raw) > VALUE_DEPTH_MAX:
        Reader(raw).skip(VALUE_DEPTH_MAX)


def from_fields(fields: list[bytes]) -> Body:
    """Convert any number of msgpack values to one body."""
    if len(fields) == 1:
        return from_value(fields[0])
    writer = BytesWriter()
    write_array(writer, len(fields))
    for field in fields:
        _check_depth(field)
        writer.write(field)
    return Body(writer.getvalue(), BODY_MSGPACK)


def to_value(data: bytes, kind: int) -> bytes:
    """Convert a body to one msgpack value."""
    if kind == BODY_MSGPACK:
        if data[0] == _ONE_FIELD:
            return data[1:]
        return NIL if len(data) == 1 else data
    writer = BytesWriter()
    if kind == BODY_TEXT:
        write_text(writer, data)
    elif kind == BODY_BYTES:
        write_binary(writer, data)
    else:
        try:
            return pack(to_python(data, kind), VALUE_DEPTH_MAX)
        except WrongType:
            write_name(writer, data)
    return writer.getvalue()


def fields_count(data: bytes, kind: int) -> i64:
    return Reader(data).length_of_array() if kind == BODY_MSGPACK else 1


def to_fields(data: bytes, kind: int) -> bytes:
    """Convert a body to consecutive msgpack values, one for each field."""
    if kind != BODY_MSGPACK:
        return to_value(data, kind)
    reader = Reader(data)
    reader.length_of_array()
    return data[reader.at :]


def to_python(data: bytes, kind: int) -> object:
    """Convert a body to a Python value."""
    if kind == BODY_BYTES:
        return data
    if kind == BODY_TEXT:
        return data.decode()
    if kind == BODY_JSON:
        try:
            return json.loads(data.decode())
        except (ValueError, RecursionError):
            return name_value(data)
    fields = unpack(data)
    assert isinstance(fields, list)
    if len(fields) == 1:
        return fields[0]
    return fields if fields else None


def to_plain(data: bytes, kind: int) -> bytes:
    """Convert a body to plain bytes, for dialects without types."""
    if kind != BODY_MSGPACK:
        return data
    value = to_python(data, kind)
    if value is None and fields_count(data, kind) == 0:
        return b""
    return json.dumps(_json_value(value), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def is_fields(data: bytes) -> bool:
    """Return whether bytes are a valid body of kind msgpack: exactly one array that can be decoded."""
    reader = Reader(data)
    try:
        return isinstance(reader.value(VALUE_DEPTH_MAX + 1), list) and reader.at == len(data)
    except ProtocolError:
        return False


def write_name(writer: BytesWriter, name: bytes) -> None:
    """Write a name as text, or as binary if it is not UTF-8. Many clients fail on text that is not UTF-8."""
    if is_utf8(name):
        write_text(writer, name)
    else:
        write_binary(writer, name)


def name_value(name: bytes) -> object:
    """Return a name as str, or as bytes if it is not valid UTF-8."""
    return name.decode() if is_utf8(name) else name


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_value(value: object) -> object:
    """Convert a value for JSON: bytes, uuids and the keys of maps become text, NaN and infinity become null."""
    if isinstance(value, (list, tuple)):
        return [_json_value(each) for each in value]
    if isinstance(value, dict):
        return {_json_key(key): _json_value(each) for key, each in value.items()}
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, (str, int)) or value is None:
        return value
    return _json_key(value)


def _json_key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8", "backslashreplace")
    if not isinstance(key, Ext):
        return json.dumps(_json_value(key))
    return str(uuid.UUID(bytes=key.data)) if key.code == _UUID and len(key.data) == 16 else key.data.hex()
