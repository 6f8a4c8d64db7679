"""RESP, the protocol of Redis and Disque: commands out of bytes, however the network cut them.

Any bytes give commands, or an `error` after which nothing more is read. What there is of a command that is not complete
is kept, and looked at again when the rest came (`intake.py`). Most lengths have a digit or two: they are read as one
word of four bytes, so that a short argument costs little more than its own copy. (Splitting the buffer at CRLF was
rejected: it makes an object of every length, which is three times the work. So was hiredis: it takes no inline
commands, and 13 bytes make it ask for gigabytes.)

If an argument is longer than `bulk_max`, the parser discards the whole command while it arrives, and gives out the
command `OVERSIZED` in its place. The caller refuses that one, and the connection stays usable. (Closing the connection
was rejected: the client is still sending then, so the system resets the connection, and the error can get lost.)

    *3 CRLF  $6 CRLF ADDJOB CRLF  $1 CRLF q CRLF  $4 CRLF body CRLF        as clients send it
    ADDJOB q "a body" LF                                                    inline, as people type it
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from penstock.core.limits import BODY_BYTES_HARD_MAX
from penstock.wire.intake import Intake
from penstock.wire.quoting import split_words

# A command that people type, and the line of a length, may have so many bytes: Disque's own bound.
LINE_BYTES_MAX: Final = 64 * 1024

# A command may have so many arguments: Disque's own bound. A million ids of 40 characters stay below 100 MB.
ARGS_COUNT_MAX: Final = 1024 * 1024

# A longer argument is a protocol error, even if it would only be discarded: no setting allows a longer body, and Disque
# has the same bound.
DISCARDED_BULK_BYTES_MAX: Final = BODY_BYTES_HARD_MAX

# Before a client has said who it is, it may say no more than this: enough for HELLO with AUTH and SETNAME.
UNKNOWN_ARGS_MAX: Final = 10
UNKNOWN_BULK_BYTES_MAX: Final = 16 * 1024
UNKNOWN_LINE_BYTES_MAX: Final = 16 * 1024

_ASTERISK: Final = 42
_DOLLAR: Final = 36
_ZERO: Final = 48
_CR: Final = 13
_LF: Final = 10
_CRLF: Final = 0x0D0A

# What the first line of a request over HTTP is read as.
HTTP_REQUEST: Final = b"HTTP"

# The only word of the command that stands for one with an argument above `bulk_max`.
OVERSIZED: Final = b"(oversized)"

_NO_LENGTH: Final = -1
# How the length of a short line is told beside the number in it.
_HEAD_BITS: Final = 3
_HEAD_BYTES: Final = 7

_TLS_HANDSHAKE: Final = 0x16
_MSGPACK_U32: Final = 0xCE


class RespParser(Intake):
    """The commands of one connection."""

    args_max: i64
    bulk_max: i64
    line_max: i64
    buffer_max: i64  # How many bytes of commands that were not given out yet are kept.
    error: bytes  # Why nothing more is read; empty while all is well.
    has_more: bool  # The last `parse` has looked at as much as it was asked to, and not at everything.

    _args: list[bytes]  # What there is of a command that came in part.
    _args_bytes: i64
    _missing: i64  # How many arguments it lacks; 0: none was begun.
    _bulk: i64  # The length of the argument that is next; _NO_LENGTH while that is not known.
    _is_oversized: bool  # The command that came in part is discarded.
    _discard: i64  # How many bytes of its argument are still to be discarded, the CRLF included; 0: a length is next.
    _fresh: bool  # Nothing was read yet.

    def __init__(self, bulk_max: i64, buffer_max: i64, known: bool = True) -> None:
        """A parser for one who is known, or for one who has to say first who it is."""
        super().__init__()
        self.error = b""
        self.has_more = False
        self.args_max = UNKNOWN_ARGS_MAX
        self.bulk_max = UNKNOWN_BULK_BYTES_MAX
        self.line_max = UNKNOWN_LINE_BYTES_MAX
        self.buffer_max = buffer_max
        if known:
            self.trust(bulk_max)
        self._args = []
        self._args_bytes = 0
        self._missing = 0
        self._bulk = _NO_LENGTH
        self._is_oversized = False
        self._discard = 0
        self._fresh = True

    def trust(self, bulk_max: i64) -> None:
        """Let a client send as much as clients may."""
        self.args_max = ARGS_COUNT_MAX
        self.bulk_max = bulk_max
        self.line_max = LINE_BYTES_MAX

    def feed(self, data: bytes) -> None:
        """Bytes came in."""
        if self.error:
            return
        self._came(data)
        if self.pending() > self.buffer_max:
            self._fail(b"too big query buffer")

    def pending(self) -> i64:
        """How many bytes came in and were not given out as commands yet."""
        return len(self._buffer) - self._pos + len(self._behind) + self._args_bytes

    def is_unfinished(self) -> bool:
        """Whether a command was begun and is not complete, or was not given out yet."""
        return self._missing > 0 or self.pending() > 0

    def parse(self, commands_max: i64) -> list[list[bytes]]:
        """The commands that are complete, no more than so many. Of what is left (`has_more`), the next call gives some.

        Commands without words are none, but count: whoever sends nothing else has to be stopped as well.
        """
        commands: list[list[bytes]] = []
        self.has_more = False
        if self._need > 0 and not self._join():
            return commands
        if self._fresh and self._pos < len(self._buffer):
            self._look_first()
        room = commands_max
        while True:
            while self._pos < len(self._buffer):
                if room <= 0:
                    self.has_more = True
                    return commands
                if not self._parse_one(commands):
                    break
                room -= 1
            if not self._behind or not self._join():
                self._let_go()
                return commands

    def _look_first(self) -> None:
        """Recognise those who came to the wrong door, before their bytes are taken for a command."""
        self._fresh = False
        first = self._buffer[self._pos]
        if first == _TLS_HANDSHAKE:
            self._fail(b"this looks like TLS, and this port speaks it not; use the port for TLS")
        elif first == _MSGPACK_U32:
            self._fail(b"this looks like IPROTO, and this port speaks RESP; use the port for IPROTO")

    def _fail(self, why: bytes) -> None:
        self.error = b"Protocol error: " + why
        self._forget()
        self._args = []
        self._args_bytes = 0
        self._missing = 0
        self._is_oversized = False
        self._discard = 0

    def _parse_one(self, commands: list[list[bytes]]) -> bool:
        """Read one command; tell whether it is worth going on."""
        if self._missing == 0:
            if self._buffer[self._pos] != _ASTERISK:
                return self._parse_inline(commands)
            if not self._parse_count():
                return False
            if self._missing == 0:
                return True
        elif self._is_oversized and not self._discard_rest():
            return False
        while self._missing > 0:
            if not self._parse_argument():
                return False
        commands.append(self._args)
        self._args = []
        self._args_bytes = 0
        return True

    def _parse_count(self) -> bool:
        """Read how many arguments a command has; tell whether that was there."""
        head = _short_head(self._buffer, self._pos, _ASTERISK)
        if head > 0:
            self._pos += head & _HEAD_BYTES
            count = head >> _HEAD_BITS
        else:
            line = self._line(b"too big mbulk count string")
            if line is None:
                return False
            count = 0 if line == b"*-1" else parse_length(line[1:])
        if count == _NO_LENGTH or count > ARGS_COUNT_MAX:
            self._fail(b"invalid multibulk length")
            return False
        if count > self.args_max:
            self._fail(b"unauthenticated multibulk length")
            return False
        self._missing = count
        return True

    def _parse_argument(self) -> bool:
        """Read one argument of a command; tell whether it was there."""
        buffer = self._buffer
        if self._bulk == _NO_LENGTH:
            head = _short_head(buffer, self._pos, _DOLLAR)
            if head > 0:
                self._pos += head & _HEAD_BYTES
                length = head >> _HEAD_BITS
            else:
                length = self._parse_long_length()
                if length == _NO_LENGTH:
                    return False
            if length > self.bulk_max:
                return self._refuse_argument(length)
            self._bulk = length
        start = self._pos
        end = start + self._bulk
        if len(buffer) < end + 2:
            # Whatever comes is put aside until this is complete, so that a long body is copied once.
            self._need = self._bulk + 2
            return False
        if read_i16_be(buffer, end) != _CRLF:
            self._fail(b"expected CRLF behind a bulk")
            return False
        self._args.append(buffer[start:end])
        self._args_bytes += self._bulk
        self._pos = end + 2
        self._bulk = _NO_LENGTH
        self._missing -= 1
        return True

    def _parse_long_length(self) -> i64:
        """Return the length of an argument from a line of any length, or _NO_LENGTH if it is incomplete or wrong."""
        line = self._line(b"too big bulk count string")
        if line is None:
            return _NO_LENGTH
        if line[:1] != b"$":
            self._fail(b"expected '$', got '" + printable(line[:1]) + b"'")
            return _NO_LENGTH
        length = parse_length(line[1:])
        if length == _NO_LENGTH:
            self._fail(b"invalid bulk length")
        return length

    def _refuse_argument(self, length: i64) -> bool:
        """Discard the command, because an argument has `length` bytes. Return whether all of the command was there."""
        if self.args_max < ARGS_COUNT_MAX:
            self._fail(b"unauthenticated bulk length")
            return False
        self._is_oversized = True
        self._args = [OVERSIZED]
        self._args_bytes = 0
        return self._discard_argument(length) and self._discard_rest()

    def _discard_rest(self) -> bool:
        """Discard the rest of the command, as far as it is there. Return whether all of it was."""
        if self._discard > 0 and not self._discard_bytes():
            return False
        while self._missing > 0:
            length = self._parse_long_length()
            if length == _NO_LENGTH or not self._discard_argument(length):
                return False
        self._is_oversized = False
        return True

    def _discard_argument(self, length: i64) -> bool:
        """Discard an argument whose length was read, as far as it is there. Return whether all of it was."""
        if length > DISCARDED_BULK_BYTES_MAX:
            self._fail(b"invalid bulk length")
            return False
        self._discard = length + 2
        return self._discard_bytes()

    def _discard_bytes(self) -> bool:
        there = len(self._buffer) - self._pos
        body = min(self._discard - 2, there)
        self._pos += body
        self._discard -= body
        if self._discard > 2:
            return False
        if there - body < 2:
            self._need = 2
            return False
        if read_i16_be(self._buffer, self._pos) != _CRLF:
            self._fail(b"expected CRLF behind a bulk")
            return False
        self._pos += 2
        self._discard = 0
        self._missing -= 1
        return True

    def _line(self, too_long: bytes) -> bytes | None:
        """The next line without its CRLF, or None if it is not complete."""
        end = self._buffer.find(b"\r\n", self._pos, self._pos + self.line_max + 2)
        if end < 0:
            # The last byte may be a CR whose LF is still to come.
            if len(self._buffer) - self._pos > self.line_max + 1:
                self._fail(too_long)
            else:
                self._await_line(b"\r\n", self.line_max + 2)
            return None
        line = self._buffer[self._pos : end]
        self._pos = end + 2
        return line

    def _parse_inline(self, commands: list[list[bytes]]) -> bool:
        """Read a command as people type it."""
        end = self._buffer.find(b"\n", self._pos, self._pos + self.line_max + 1)
        if end < 0:
            if len(self._buffer) - self._pos > self.line_max:
                self._fail(b"too big inline request")
            else:
                self._await_line(b"\n", self.line_max + 1)
            return False
        args = split_words(self._buffer[self._pos : end], True)
        self._pos = end + 1
        if args is None:
            self._fail(b"unbalanced quotes in request")
            return False
        if len(args) == 3 and args[2].startswith(b"HTTP/"):
            # What a browser begins with. One of its methods is the name of a command, and must not be taken for it.
            args = [HTTP_REQUEST]
        if args:
            commands.append(args)
        return True


def _short_head(buffer: bytes, at: i64, mark: i64) -> i64:
    """A line of a mark and a number of one to three digits: the number, and how long the line is; 0 for anything else.

    Whatever this does not take is read, or refused, where lines of any length are.
    """
    left = len(buffer) - at
    if left < 4:
        return 0
    word = i64(read_i32_be(buffer, at))
    number = (word >> 16 & 0xFF) - _ZERO
    if word >> 24 != mark or number < 0 or number > 9:
        return 0
    if word & 0xFFFF == _CRLF:
        return number << _HEAD_BITS | 4
    digit = (word >> 8 & 0xFF) - _ZERO
    if digit < 0 or digit > 9 or left < 6:
        return 0
    number = 10 * number + digit
    if word & 0xFF == _CR:
        return number << _HEAD_BITS | 5 if buffer[at + 4] == _LF else 0
    digit = (word & 0xFF) - _ZERO
    if digit < 0 or digit > 9 or read_i16_be(buffer, at + 4) != _CRLF:
        return 0
    return (10 * number + digit) << _HEAD_BITS | 6


def parse_length(digits: bytes) -> i64:
    """A length: one to ten digits and nothing else; _NO_LENGTH for anything else. Python's int is too kind."""
    if not digits.isdigit() or len(digits) > 10:
        return _NO_LENGTH
    return int(digits)


def printable(text: bytes) -> bytes:
    """Bytes as they may stand in a line for people: no control characters."""
    return bytes([byte if 32 <= byte < 127 else 63 for byte in text])
