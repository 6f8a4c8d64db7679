"""RESP, the protocol of Redis and Disque: parses commands from bytes that arrive in pieces.

For any bytes, the parser returns commands, or sets `error` and reads no more. Incomplete commands are kept until the
rest arrives (`input_buffer.py`). Most lengths have one or two digits. They are read as one word of four bytes, so a
short argument costs little more than its own copy. (Splitting the buffer at CRLF was rejected: it makes an object for
every length, which is three times the work. hiredis was rejected, too: it does not parse inline commands, and 13 bytes
can make it allocate gigabytes.)

If an argument is longer than `bulk_max`, the parser discards the whole command while it arrives, and returns the
command `OVERSIZED` in its place. The caller refuses this command, and the connection stays usable. (Closing the
connection was rejected: the client is still sending then, so the system resets the connection, and the error can get
lost.)

    *3 CRLF  $6 CRLF ADDJOB CRLF  $1 CRLF q CRLF  $4 CRLF body CRLF        as clients send it
    ADDJOB q "a body" LF                                                    inline, as people type it
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from penstock.core.limits import BODY_BYTES_HARD_MAX
from penstock.wire.input_buffer import RequestBuffer
from penstock.wire.quoting import split_words

# The maximum length of an inline command and of a line with a length. Disque has the same limit.
LINE_BYTES_MAX: Final = 64 * 1024

# The maximum number of arguments. Disque has the same limit. A million ids of 40 characters stay below 100 MB.
ARGS_COUNT_MAX: Final = 1024 * 1024

# A longer argument is a protocol error and is not even discarded, because no setting allows a longer body. Disque has
# the same limit.
DISCARDED_BULK_BYTES_MAX: Final = BODY_BYTES_HARD_MAX

# Limits before authentication: enough for HELLO with AUTH and SETNAME.
UNKNOWN_ARGS_MAX: Final = 10
UNKNOWN_BULK_BYTES_MAX: Final = 16 * 1024
UNKNOWN_LINE_BYTES_MAX: Final = 16 * 1024

_ASTERISK: Final = 42
_DOLLAR: Final = 36
_ZERO: Final = 48
_CR: Final = 13
_LF: Final = 10
_CRLF: Final = 0x0D0A

# The first line of an HTTP request is returned as this command.
HTTP_REQUEST: Final = b"HTTP"

# The only word of the command that replaces one with an argument longer than `bulk_max`.
OVERSIZED: Final = b"(oversized)"

_NO_LENGTH: Final = -1
# `_short_head` returns the number and the length of its line in one integer; these bits hold the length.
_HEAD_BITS: Final = 3
_HEAD_BYTES: Final = 7

_TLS_HANDSHAKE: Final = 0x16
_MSGPACK_U32: Final = 0xCE


class RespParser(RequestBuffer):
    """Parses the commands of one connection."""

    args_max: i64
    bulk_max: i64
    line_max: i64

    _args: list[bytes]  # The arguments of an incomplete command.
    _args_bytes: i64
    _missing: i64  # The number of arguments that are still missing; 0 if no command has begun.
    _bulk: i64  # The length of the next argument; _NO_LENGTH if it is not known yet.
    _is_oversized: bool  # The incomplete command is being discarded.
    _discard: i64  # The bytes of its argument that are still to be discarded, with the CRLF; 0 if a length is next.
    _fresh: bool  # No byte has been parsed yet.

    def __init__(self, bulk_max: i64, buffer_max: i64, known: bool = True) -> None:
        """Create a parser. If `known` is not set, the client has lower limits until it has authenticated."""
        super().__init__(buffer_max)
        self.args_max = UNKNOWN_ARGS_MAX
        self.bulk_max = UNKNOWN_BULK_BYTES_MAX
        self.line_max = UNKNOWN_LINE_BYTES_MAX
        if known:
            self.raise_limits(bulk_max)
        self._args = []
        self._args_bytes = 0
        self._missing = 0
        self._bulk = _NO_LENGTH
        self._is_oversized = False
        self._discard = 0
        self._fresh = True

    def raise_limits(self, bulk_max: i64) -> None:
        self.args_max = ARGS_COUNT_MAX
        self.bulk_max = bulk_max
        self.line_max = LINE_BYTES_MAX

    def refuse_more(self) -> None:
        self._fail(b"too big query buffer")

    def pending(self) -> i64:
        return len(self._buffer) - self._pos + len(self._pending) + self._args_bytes

    def is_unfinished(self) -> bool:
        return self._missing > 0 or self.pending() > 0

    def parse(self, commands_max: i64) -> list[list[bytes]]:
        """Return at most `commands_max` complete commands. If this call sets `has_more`, call it again for the rest.

        Empty commands are not returned, but count towards `commands_max`, so that a client cannot send them without
        limit.
        """
        commands: list[list[bytes]] = []
        self.has_more = False
        if self._need > 0 and not self._join():
            return commands
        if self._fresh and self._pos < len(self._buffer):
            self._detect_protocol()
        room = commands_max
        while True:
            while self._pos < len(self._buffer):
                if room <= 0:
                    self.has_more = True
                    return commands
                if not self._parse_one(commands):
                    break
                room -= 1
            if not self._pending or not self._join():
                self._free_consumed()
                return commands

    def _detect_protocol(self) -> None:
        """Recognise clients of another protocol by their first byte, before it is parsed as a command."""
        self._fresh = False
        first = self._buffer[self._pos]
        if first == _TLS_HANDSHAKE:
            self._fail(b"this looks like TLS, but this port is not encrypted; use the TLS port")
        elif first == _MSGPACK_U32:
            self._fail(b"this looks like IPROTO, but this port speaks RESP; use the IPROTO port")

    def _fail(self, why: bytes) -> None:
        self.error = b"Protocol error: " + why
        self._clear()
        self._args = []
        self._args_bytes = 0
        self._missing = 0
        self._is_oversized = False
        self._discard = 0

    def _parse_one(self, commands: list[list[bytes]]) -> bool:
        """Parse one command. Return whether parsing can continue."""
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
        """Parse the number of arguments. Return whether it was complete."""
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
        """Parse one argument. Return whether it was complete."""
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
            # Received bytes are put aside until the argument is complete, so a long body is copied only once.
            self._need = self._bulk + 2
            return False
        if read_i16_be(buffer, end) != _CRLF:
            self._fail(b"expected CRLF after a bulk")
            return False
        self._args.append(buffer[start:end])
        self._args_bytes += self._bulk
        self._pos = end + 2
        self._bulk = _NO_LENGTH
        self._missing -= 1
        return True

    def _parse_long_length(self) -> i64:
        """Parse the length of an argument from its line. Return _NO_LENGTH if it is incomplete or wrong."""
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
        """Discard a command whose argument of `length` bytes is too long. Return whether the command was complete."""
        if self.args_max < ARGS_COUNT_MAX:
            self._fail(b"unauthenticated bulk length")
            return False
        self._is_oversized = True
        self._args = [OVERSIZED]
        self._args_bytes = 0
        return self._discard_argument(length) and self._discard_rest()

    def _discard_rest(self) -> bool:
        """Discard the received part of the command. Return whether the command was complete."""
        if self._discard > 0 and not self._discard_bytes():
            return False
        while self._missing > 0:
            length = self._parse_long_length()
            if length == _NO_LENGTH or not self._discard_argument(length):
                return False
        self._is_oversized = False
        return True

    def _discard_argument(self, length: i64) -> bool:
        """Discard the received part of an argument. Return whether the argument was complete."""
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
            self._fail(b"expected CRLF after a bulk")
            return False
        self._pos += 2
        self._discard = 0
        self._missing -= 1
        return True

    def _line(self, too_long: bytes) -> bytes | None:
        """Return the next line without its CRLF, or None if it is incomplete.

        If the line is too long, fail with the error `too_long` and return None.
        """
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
        """Parse an inline command. Return whether parsing can continue."""
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
            # An HTTP request. Its method may be the name of a command and must not be run as one.
            args = [HTTP_REQUEST]
        if args:
            commands.append(args)
        return True


def _short_head(buffer: bytes, at: i64, mark: i64) -> i64:
    """Parse a line that consists of the byte `mark` and one to three digits, the form of most lengths.

    Return the number and the length of the line, packed into one integer, or 0 for any other line. The caller then
    parses the line in the general way.
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
    """Parse a length of one to ten digits. Return _NO_LENGTH for other text, such as signs or underscores."""
    if not digits.isdigit() or len(digits) > 10:
        return _NO_LENGTH
    return int(digits)


def printable(text: bytes) -> bytes:
    """Return bytes with control characters replaced, for error lines."""
    return bytes([byte if 32 <= byte < 127 else 63 for byte in text])
