"""RESP for clients: encodes commands and parses replies of version 2 and 3.

For any bytes, the parser returns replies or raises ProtocolError. After an error the connection is unusable. A refusal
is returned as a value like any other reply, so that a client that sent ten commands gets all ten replies. The parser
keeps incomplete replies, so no item of a long array is parsed twice.

    +OK  -ERR no  :7  $3 abc  *2 …          version 2; $-1 and *-1 are null
    _  #t  ,1.5  (123  !3 ERR  =7 txt:abc  %1 …  ~2 …  >2 …  |1 …      added by version 3
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.errors import ProtocolError
from penstock.wire.input_buffer import InputBuffer

# The maximum depth of nested arrays. No server's replies come near it. Without a limit, two bytes per level would be
# enough to use up the memory.
DEPTH_MAX: Final = 32

# The maximum number of items in an array: ten times the number of jobs that one command can take.
ITEMS_MAX: Final = 1024 * 1024

# The maximum length of a bulk string: that of the longest possible body.
BULK_BYTES_MAX: Final = 512 * 1024 * 1024

# The maximum number of items in all arrays and maps of one reply. The longest replies of a server, 64 MB of jobs, have
# 5 million. An empty map takes 4 bytes on the wire and 64 in memory, so a reply needs less than about 1 GB of memory.
ANSWER_ITEMS_MAX: Final = 8 * 1024 * 1024

# The maximum length of a reply, including pushes before it: the longest body and its surroundings.
ANSWER_BYTES_MAX: Final = BULK_BYTES_MAX + 128 * 1024 * 1024

# The maximum length of a line: a number, a length or a short text. Errors with a long name are the longest.
LINE_BYTES_MAX: Final = 256 * 1024

_SMALL: Final = 1_024
_BULKS: Final = [b"$%d\r\n" % length for length in range(_SMALL)]
_ARRAYS: Final = [b"*%d\r\n" % length for length in range(_SMALL)]

_PLUS: Final = 43
_MINUS: Final = 45
_COLON: Final = 58
_DOLLAR: Final = 36
_ASTERISK: Final = 42
_UNDERSCORE: Final = 95
_HASH: Final = 35
_COMMA: Final = 44
_PARENTHESIS: Final = 40
_EXCLAMATION: Final = 33
_EQUALS: Final = 61
_PERCENT: Final = 37
_TILDE: Final = 126
_GREATER: Final = 62
_BAR: Final = 124


def encode(words: list[bytes]) -> bytes:
    writer = BytesWriter()
    count: i64 = len(words)
    writer.write(_ARRAYS[count] if count < _SMALL else b"*%d\r\n" % count)
    for word in words:
        size: i64 = len(word)
        writer.write(_BULKS[size] if size < _SMALL else b"$%d\r\n" % size)
        writer.write(word)
        writer.write(b"\r\n")
    return writer.getvalue()


class ErrorReply:
    """The error reply to a refused command. Its text begins with the error code."""

    line: bytes

    def __init__(self, line: bytes) -> None:
        self.line = line


class Push:
    """A message that the server sends without a request."""

    items: list[object]

    def __init__(self, items: list[object]) -> None:
        self.items = items


class _Open:
    """An array, map, set, push or attribute whose items are not complete yet."""

    kind: i64
    missing: i64
    items: list[object]

    def __init__(self, kind: i64, missing: i64) -> None:
        self.kind = kind
        self.missing = missing
        self.items = []


class ReplyParser(InputBuffer):
    """Parses the replies on one connection."""

    _bulk: i64  # The length of the bulk string that is next; -1 if it is not known yet.
    _bulk_kind: i64
    _open: list[_Open]  # The innermost is last.
    _items: i64  # The number of items of the current reply, according to the arrays that have begun.
    _bytes: i64  # The number of bytes received since the last reply was complete.
    _has_answer: bool  # The current call of `parse` has completed a reply.
    _wrong: str  # The error in the bytes after the replies that were returned; empty if there is none.

    def __init__(self) -> None:
        super().__init__()
        self._bulk = -1
        self._bulk_kind = 0
        self._open = []
        self._items = 0
        self._bytes = 0
        self._has_answer = False
        self._wrong = ""

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        self._append(data)

    def is_idle(self) -> bool:
        """Return whether all received bytes were returned as replies, so that no reply is incomplete."""
        return self._pos == len(self._buffer) and not self._open and self._bulk < 0

    def parse(self) -> list[object]:
        """Return the complete replies. Raise ProtocolError if the bytes that follow them are not RESP."""
        answers: list[object] = []
        if self._wrong:
            raise ProtocolError(self._wrong)
        if self._bytes > ANSWER_BYTES_MAX:
            self._wrong = "the reply is too long"
            raise ProtocolError(self._wrong)
        if self._need > 0 and not self._join():
            return answers
        try:
            while self._parse_item(answers) or (self._pending and self._join()):
                pass
            self._free_consumed()
            if self._has_answer:
                self._has_answer = False
                self._bytes = len(self._buffer) - self._pos + len(self._pending)
        except ProtocolError as error:
            self._wrong = str(error)
            if not answers:
                raise
        return answers

    def _parse_item(self, answers: list[object]) -> bool:
        """Parse one item, or the head of an array. Return whether it was complete. Complete replies go to `answers`."""
        if self._bulk >= 0:
            return self._parse_bulk(answers)
        buffer = self._buffer
        start = self._pos
        if start == len(buffer):
            return False
        end: i64 = buffer.find(b"\r\n", start, start + LINE_BYTES_MAX)
        if end < 0:
            if len(buffer) - start >= LINE_BYTES_MAX:
                raise ProtocolError("the reply has a line that is too long")
            # Other protocols are recognised at once, because they may never send a line end.
            if buffer[start] not in b"+-:$*_#,(!=%~>|":
                raise ProtocolError(_strange(buffer[start : start + 16]))
            self._await_line(b"\r\n", LINE_BYTES_MAX)
            return False
        if end == start:
            raise ProtocolError(_strange(buffer[start : start + 16]))
        kind: i64 = buffer[start]
        line = buffer[start + 1 : end]
        self._pos = end + 2
        if kind in (_DOLLAR, _EQUALS, _EXCLAMATION):
            if line == b"-1" and kind == _DOLLAR:
                self._add(None, answers)
                return True
            self._bulk = _length(line, BULK_BYTES_MAX)
            self._bulk_kind = kind
            return self._parse_bulk(answers)
        if kind == _COLON:
            self._add(_integer(line), answers)
        elif kind == _PLUS:
            self._add(line, answers)
        elif kind == _MINUS:
            self._add(ErrorReply(line), answers)
        elif kind in (_ASTERISK, _PERCENT, _TILDE, _GREATER, _BAR):
            self._begin(kind, line, answers)
        else:
            self._add(_scalar(kind, line, buffer[start : start + 16]), answers)
        return True

    def _parse_bulk(self, answers: list[object]) -> bool:
        end = self._pos + self._bulk
        buffer = self._buffer
        if len(buffer) < end + 2:
            # Received bytes are put aside until the bulk string is complete, so a long body is copied only once.
            self._need = self._bulk + 2
            return False
        if buffer[end] != 13 or buffer[end + 1] != 10:
            raise ProtocolError("the reply has a bulk string that does not end with CRLF")
        data = buffer[self._pos : end]
        self._pos = end + 2
        self._bulk = -1
        if self._bulk_kind == _DOLLAR:
            self._add(data, answers)
        elif self._bulk_kind == _EXCLAMATION:
            self._add(ErrorReply(data), answers)
        else:
            # Three letters and a colon name the format of the text.
            if data[3:4] != b":":
                raise ProtocolError("the reply has a verbatim string without its format")
            self._add(data[4:], answers)
        return True

    def _begin(self, kind: i64, line: bytes, answers: list[object]) -> None:
        if line == b"-1" and kind == _ASTERISK:
            self._add(None, answers)
            return
        count = _length(line, ITEMS_MAX)
        if kind in (_PERCENT, _BAR):
            count *= 2
        if count == 0:
            if kind != _BAR:
                self._add(_closed(kind, []), answers)
            return
        self._items += count
        if self._items > ANSWER_ITEMS_MAX:
            raise ProtocolError("the reply has too many items")
        if len(self._open) >= DEPTH_MAX:
            raise ProtocolError("the reply has too deeply nested arrays")
        self._open.append(_Open(kind, count))

    def _add(self, value: object, answers: list[object]) -> None:
        """Add a complete item to the innermost open array, or to `answers`. Close the arrays that it completes."""
        while self._open:
            innermost = self._open[-1]
            innermost.items.append(value)
            innermost.missing -= 1
            if innermost.missing > 0:
                return
            self._open.pop()
            if innermost.kind == _BAR:
                # Attributes describe the reply that follows. They are ignored.
                return
            value = _closed(innermost.kind, innermost.items)
        self._items = 0
        self._has_answer = self._has_answer or not isinstance(value, Push)
        answers.append(value)


def _closed(kind: i64, items: list[object]) -> object:
    if kind == _GREATER:
        return Push(items)
    if kind != _PERCENT:
        return items
    pairs: dict[object, object] = {}
    at: i64 = 0
    while at < len(items):
        key = items[at]
        if not isinstance(key, (bytes, int, float)):
            raise ProtocolError("the reply has a map with keys that are neither text nor numbers")
        pairs[key] = items[at + 1]
        at += 2
    return pairs


def _scalar(kind: i64, line: bytes, start: bytes) -> object:
    """Parse a one-line type that version 3 added. `start` is the type byte."""
    if kind == _UNDERSCORE and not line:
        return None
    if kind == _HASH and line in (b"t", b"f"):
        return line == b"t"
    if kind == _PARENTHESIS:
        return _integer(line)
    if kind == _COMMA and len(line) <= 64 and b"_" not in line:
        try:
            return float(line)
        except ValueError:
            pass
    raise ProtocolError(_strange(start))


def _strange(start: bytes) -> str:
    return f"the reply is not RESP: it begins with {start!r}"


def _length(digits: bytes, most: int) -> i64:
    """Parse a length of one to ten digits, at most `most`. Raise ProtocolError for signs, spaces and underscores."""
    if not digits.isdigit() or len(digits) > 10 or int(digits) > most:
        raise ProtocolError(f"the reply has the invalid length {digits[:16]!r}")
    return int(digits)


def _integer(digits: bytes) -> int:
    # At most 400 digits, because Python refuses to parse 4,300. No server sends more than 20.
    unsigned = digits[1:] if digits[:1] in (b"-", b"+") else digits
    if not unsigned.isdigit() or len(unsigned) > 400:
        raise ProtocolError(f"the reply has the invalid number {digits[:16]!r}")
    return int(digits)
