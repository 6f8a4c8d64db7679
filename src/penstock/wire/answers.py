"""RESP from the side of a client: commands to bytes, and answers of version 2 and 3 out of bytes.

Any bytes give answers, or a ProtocolError after which the connection is of no more use. A refusal is an answer like any
other, and comes out as a value: whoever has sent ten commands wants all ten answers. What came in part is kept, so that
no item of a long array is read twice.

    +OK  -ERR no  :7  $3 abc  *2 …          version 2; $-1 and *-1 are nothing
    _  #t  ,1.5  (123  !3 ERR  =7 txt:abc  %1 …  ~2 …  >2 …  |1 …      and what version 3 has more
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.errors import ProtocolError
from penstock.wire.intake import Intake

# How deep arrays may stand in arrays. Nobody's answers come near it; without a bound, two bytes a level would be enough
# to use up memory.
DEPTH_MAX: Final = 32

# An array may have so many items: ten times as many as one command can take jobs.
ITEMS_MAX: Final = 1024 * 1024

# A bulk may have so many bytes: the longest body that there can be.
BULK_BYTES_MAX: Final = 512 * 1024 * 1024

# All arrays and maps of one answer may have so many items together. The longest answers of a server, 64 MB of jobs,
# have 5 million. An empty map is 4 bytes on the wire and 64 in memory, so an answer stays below about 1 GB of memory.
ANSWER_ITEMS_MAX: Final = 8 * 1024 * 1024

# One answer may have so many bytes, with all that a server pushes before it: the longest body, and what is around it.
ANSWER_BYTES_MAX: Final = BULK_BYTES_MAX + 128 * 1024 * 1024

# A line of a number, a length or a short text. Errors that tell of a long name are the longest.
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
    """A command as it is sent."""
    writer = BytesWriter()
    count: i64 = len(words)
    writer.write(_ARRAYS[count] if count < _SMALL else b"*%d\r\n" % count)
    for word in words:
        size: i64 = len(word)
        writer.write(_BULKS[size] if size < _SMALL else b"$%d\r\n" % size)
        writer.write(word)
        writer.write(b"\r\n")
    return writer.getvalue()


class Refusal:
    """A command was refused: the line says why, its code first."""

    line: bytes

    def __init__(self, line: bytes) -> None:
        self.line = line


class Push:
    """What a server says without being asked."""

    items: list[object]

    def __init__(self, items: list[object]) -> None:
        self.items = items


class _Open:
    """An array, map, set, push or attribute whose items are still coming."""

    kind: i64
    missing: i64
    items: list[object]

    def __init__(self, kind: i64, missing: i64) -> None:
        self.kind = kind
        self.missing = missing
        self.items = []


class AnswerParser(Intake):
    """The answers on one connection."""

    _bulk: i64  # The length of the bulk that is next; -1 while that is not known.
    _bulk_kind: i64
    _open: list[_Open]  # The innermost is last.
    _items: i64  # How many items the answer that is read now has, as far as its arrays have begun.
    _bytes: i64  # How many bytes came since the last answer was complete.
    _has_answer: bool  # An answer was complete when it was parsed last.
    _wrong: str  # What is wrong with what came behind the answers that were given out; empty if nothing is.

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
        """Bytes came in."""
        self._bytes += len(data)
        self._came(data)

    def is_idle(self) -> bool:
        """Whether everything that came was given out: nothing is half-read."""
        return self._pos == len(self._buffer) and not self._open and self._bulk < 0

    def parse(self) -> list[object]:
        """The answers that are complete. A ProtocolError says that what came behind them all is no RESP."""
        answers: list[object] = []
        if self._wrong:
            raise ProtocolError(self._wrong)
        if self._bytes > ANSWER_BYTES_MAX:
            self._wrong = "the answer is too long"
            raise ProtocolError(self._wrong)
        if self._need > 0 and not self._join():
            return answers
        try:
            while self._parse_item(answers) or (self._behind and self._join()):
                pass
            self._let_go()
            if self._has_answer:
                self._has_answer = False
                self._bytes = len(self._buffer) - self._pos + len(self._behind)
        except ProtocolError as error:
            self._wrong = str(error)
            if not answers:
                raise
        return answers

    def _parse_item(self, answers: list[object]) -> bool:
        """Read one item, or the head of an array; tell whether it was there."""
        if self._bulk >= 0:
            return self._parse_bulk(answers)
        buffer = self._buffer
        start = self._pos
        if start == len(buffer):
            return False
        end: i64 = buffer.find(b"\r\n", start, start + LINE_BYTES_MAX)
        if end < 0:
            if len(buffer) - start >= LINE_BYTES_MAX:
                raise ProtocolError("the answer has a line that is too long")
            # Nonsense is told at once: it may never come to a line end.
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
            self._add(Refusal(line), answers)
        elif kind in (_ASTERISK, _PERCENT, _TILDE, _GREATER, _BAR):
            self._begin(kind, line, answers)
        else:
            self._add(_scalar(kind, line, buffer[start : start + 16]), answers)
        return True

    def _parse_bulk(self, answers: list[object]) -> bool:
        end = self._pos + self._bulk
        buffer = self._buffer
        if len(buffer) < end + 2:
            # Whatever comes is put aside until this is complete, so that a long body is copied once.
            self._need = self._bulk + 2
            return False
        if buffer[end] != 13 or buffer[end + 1] != 10:
            raise ProtocolError("the answer has a bulk without an end")
        data = buffer[self._pos : end]
        self._pos = end + 2
        self._bulk = -1
        if self._bulk_kind == _DOLLAR:
            self._add(data, answers)
        elif self._bulk_kind == _EXCLAMATION:
            self._add(Refusal(data), answers)
        else:
            # Three letters say what kind of text it is.
            if data[3:4] != b":":
                raise ProtocolError("the answer has a text that does not say of what kind it is")
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
            raise ProtocolError("the answer has too many items")
        if len(self._open) >= DEPTH_MAX:
            raise ProtocolError("the answer has arrays in arrays that go too deep")
        self._open.append(_Open(kind, count))

    def _add(self, value: object, answers: list[object]) -> None:
        """An item is complete, and perhaps what it is the last of."""
        while self._open:
            innermost = self._open[-1]
            innermost.items.append(value)
            innermost.missing -= 1
            if innermost.missing > 0:
                return
            self._open.pop()
            if innermost.kind == _BAR:
                # Attributes are said about the answer that follows; nobody here asks for them.
                return
            value = _closed(innermost.kind, innermost.items)
        self._items = 0
        self._has_answer = self._has_answer or not isinstance(value, Push)
        answers.append(value)


def _closed(kind: i64, items: list[object]) -> object:
    """What an array of this kind is."""
    if kind == _GREATER:
        return Push(items)
    if kind != _PERCENT:
        return items
    pairs: dict[object, object] = {}
    at: i64 = 0
    while at < len(items):
        key = items[at]
        if not isinstance(key, (bytes, int, float)):
            raise ProtocolError("the answer has a map with keys that are neither text nor numbers")
        pairs[key] = items[at + 1]
        at += 2
    return pairs


def _scalar(kind: i64, line: bytes, start: bytes) -> object:
    """What else version 3 has on one line."""
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
    return f"the answer is no RESP: it begins with {start!r}"


def _length(digits: bytes, most: int) -> i64:
    """A length: one to ten digits and nothing else. Python's int is too kind."""
    if not digits.isdigit() or len(digits) > 10 or int(digits) > most:
        raise ProtocolError(f"the answer has the length {digits[:16]!r}")
    return int(digits)


def _integer(digits: bytes) -> int:
    # 400 digits: Python refuses to read 4,300, and nobody sends 20.
    unsigned = digits[1:] if digits[:1] in (b"-", b"+") else digits
    if not unsigned.isdigit() or len(unsigned) > 400:
        raise ProtocolError(f"the answer has the number {digits[:16]!r}")
    return int(digits)
