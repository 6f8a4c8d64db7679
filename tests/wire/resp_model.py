"""A model of RESP, written for clarity instead of speed. The parser is compared with it, and replies are read by it.

Requests are read from complete input. A command that is cut off at the end is neither a command nor an error.
"""

from __future__ import annotations

import re

LINE_MAX = 65_536
ARGS_MAX = 1_048_576
UNKNOWN_ARGS_MAX = 10
UNKNOWN_BULK_MAX = 16_384
UNKNOWN_LINE_MAX = 16_384
DISCARDED_BULK_MAX = 512 * 1024 * 1024
OVERSIZED = [b"(oversized)"]

_WORD = re.compile(
    rb"""(?P<plain>[^ \t\r\n\v\f\0"']*)
         (?:"(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:\\'|[^'\\]|\\(?!'))*)')?
         (?=[ \t\r\n\v\f\0]|$)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROL = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


class Wrong(Exception):
    """The error that the client receives before its connection is closed."""


def requests(data: bytes, bulk_max: int, known: bool = True) -> tuple[list[list[bytes]], bytes]:
    """Return the commands in these bytes, and the error in the bytes after them; empty if there is none."""
    commands: list[list[bytes]] = []
    if data[:1] == b"\x16":
        return commands, b"this looks like TLS, but this port is not encrypted; use the TLS port"
    if data[:1] == b"\xce":
        return commands, b"this looks like IPROTO, but this port speaks RESP; use the IPROTO port"
    try:
        while data:
            words, data = _multibulk(data, bulk_max, known) if data[:1] == b"*" else _inline(data, known)
            if words:
                commands.append(words)
    except EOFError:
        pass
    except Wrong as wrong:
        return commands, wrong.args[0]
    return commands, b""


def _multibulk(data: bytes, bulk_max: int, known: bool) -> tuple[list[bytes], bytes]:
    text, data = _line(data, b"too big mbulk count string", known)
    if text == b"*-1":
        return [], data
    count = _number(text[1:])
    if count is None or count > ARGS_MAX:
        raise Wrong(b"invalid multibulk length")
    if count > UNKNOWN_ARGS_MAX and not known:
        raise Wrong(b"unauthenticated multibulk length")
    words = []
    oversized = False
    for _ in range(count):
        text, data = _line(data, b"too big bulk count string", known)
        if text[:1] != b"$":
            shown = text[:1] if b" " <= text[:1] <= b"~" or not text else b"?"
            raise Wrong(b"expected '$', got '" + shown + b"'")
        length = _number(text[1:])
        if length is None or (known and length > max(bulk_max, DISCARDED_BULK_MAX)):
            raise Wrong(b"invalid bulk length")
        if not known and length > UNKNOWN_BULK_MAX:
            raise Wrong(b"unauthenticated bulk length")
        oversized = oversized or (known and length > bulk_max)
        if len(data) < length + 2:
            raise EOFError
        if data[length : length + 2] != b"\r\n":
            raise Wrong(b"expected CRLF after a bulk")
        words.append(data[:length])
        data = data[length + 2 :]
    return OVERSIZED if oversized else words, data


def _line_max(known: bool) -> int:
    return LINE_MAX if known else UNKNOWN_LINE_MAX


def _line(data: bytes, too_long: bytes, known: bool) -> tuple[bytes, bytes]:
    text, end, rest = data.partition(b"\r\n")
    if len(text) > _line_max(known) + (not end):
        raise Wrong(too_long)
    if not end:
        raise EOFError
    return text, rest


def _number(digits: bytes) -> int | None:
    return int(digits) if re.fullmatch(rb"[0-9]{1,10}", digits) else None


def _inline(data: bytes, known: bool) -> tuple[list[bytes], bytes]:
    text, end, rest = data.partition(b"\n")
    if len(text) > _line_max(known):
        raise Wrong(b"too big inline request")
    if not end:
        raise EOFError
    words = []
    text = text.lstrip(b" \t\r\n\v\f\0")
    while text:
        word = _WORD.match(text)
        if word is None:
            raise Wrong(b"unbalanced quotes in request")
        single = (word["single"] or b"").replace(b"\\'", b"'")
        words.append(word["plain"] + _ESCAPE.sub(_unescaped, word["double"] or b"") + single)
        text = text[word.end() :].lstrip(b" \t\r\n\v\f\0")
    words = [word for word in words if word]
    # The first line of an HTTP request.
    return [b"HTTP"] if len(words) == 3 and words[2][:5] == b"HTTP/" else words, rest


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode()) if found[1] else _CONTROL.get(found[2], found[2])


# Replies


def answers(data: bytes) -> list[object]:
    """Return all replies in these bytes, of either version. Fail if the last one is incomplete."""
    found = []
    while data:
        value, data = _answer(data)
        found.append(value)
    return found


def _answer(data: bytes) -> tuple[object, bytes]:
    text, end, rest = data.partition(b"\r\n")
    kind, said = text[:1], text[1:]
    assert end and kind in b"+-:$*%_" and kind, data[:80]
    if kind in b"+-":
        assert b"\r" not in said and b"\n" not in said, text
        return (said if kind == b"+" else Wrong(said)), rest
    assert re.fullmatch(rb"|-?(0|[1-9][0-9]*)", said), text
    if kind == b":":
        return int(said), rest
    if kind == b"_" or said == b"-1":
        assert kind in b"$*" or not said, text
        return None, rest
    if kind == b"$":
        assert rest[int(said) : int(said) + 2] == b"\r\n", data[:80]
        return rest[: int(said)], rest[int(said) + 2 :]
    items = []
    for _ in range(int(said) * (2 if kind == b"%" else 1)):
        item, rest = _answer(rest)
        items.append(item)
    return (dict(zip(map(repr, items[::2]), items[1::2], strict=True)) if kind == b"%" else items), rest
