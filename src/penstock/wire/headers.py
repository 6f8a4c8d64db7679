"""Headers: metadata that a producer sends with a body, as names and values. Pure and compiled.

A job stores its headers encoded, one after the other: the length of the name u16, the length of the value u16 (both
little-endian), the name in UTF-8, the value. Names are unique and not empty. A job without headers stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.errors import BadHeaders
from penstock.core.limits import HEADER_BYTES_MAX, HEADERS_MAX

_LENGTHS_BYTES: Final = 4
ENCODED_BYTES_MAX: Final = HEADER_BYTES_MAX + HEADERS_MAX * _LENGTHS_BYTES


def encode_headers(headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the encoded headers. Raise BadHeaders if they are too many or too long, or if a name is not valid."""
    parts: list[bytes] = []
    seen: set[str] = set()
    length = 0
    for name, value in headers:
        if name == "":
            raise BadHeaders("the name of a header must not be empty")
        if name in seen:
            raise BadHeaders(f"the header {name[:60]!r} is given twice; each name can have one value")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise BadHeaders("the name of a header must be UTF-8 text; its value can be any bytes") from None
        seen.add(name)
        length += len(raw) + len(value)
        if len(seen) > HEADERS_MAX:
            raise BadHeaders(f"a job can have at most {HEADERS_MAX} headers")
        if length > HEADER_BYTES_MAX:
            raise BadHeaders(
                f"the names and values of a job's headers can have at most {HEADER_BYTES_MAX} bytes together; "
                "put large data in the body"
            )
        parts.append(len(raw).to_bytes(2, "little") + len(value).to_bytes(2, "little") + raw + value)
    return b"".join(parts)


def add_header(headers: dict[str, bytes], name: bytes, value: bytes) -> None:
    """Add a header from a protocol to `headers`. Raise BadHeaders if it is one too many, or if its name is not valid.

    `encode_headers` checks the total length.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise BadHeaders("the name of a header must be UTF-8 text; its value can be any bytes") from None
    if text in headers:
        raise BadHeaders(f"the header {text[:60]!r} is given twice; each name can have one value")
    if len(headers) == HEADERS_MAX:
        raise BadHeaders(f"a job can have at most {HEADERS_MAX} headers")
    headers[text] = value


def decode_headers(encoded: bytes) -> dict[str, bytes]:
    """Return the headers by name, in the order in which they were given."""
    headers: dict[str, bytes] = {}
    at = 0
    while at < len(encoded):
        name_at = at + _LENGTHS_BYTES
        value_at = name_at + int.from_bytes(encoded[at : at + 2], "little")
        at = value_at + int.from_bytes(encoded[at + 2 : name_at], "little")
        headers[encoded[name_at:value_at].decode()] = encoded[value_at:at]
    return headers


def printable_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return headers for JSON. Surrogate escapes, which stand for bytes that are not UTF-8, become text like \\xff."""
    return {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        for name, value in headers.items()
    }


def are_valid(encoded: bytes) -> bool:
    """Return whether these bytes are encoded headers within the limits. A faulty peer can send any bytes."""
    try:
        return encode_headers(list(decode_headers(encoded).items())) == encoded
    except (BadHeaders, UnicodeDecodeError):
        return False
