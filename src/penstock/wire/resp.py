"""RESP, the protocol of Redis and Disque: commands out of bytes, however the network cut them.

Any bytes give commands, or an `error` after which nothing more is read. Most input is small commands that came whole:
for these a window of the buffer is split at CRLF once, and each length is compared with the piece behind it. What does
not come out even (a body with CRLF in it, half a command) goes to the exact parser, which keeps what it has of a
command and looks at what is not complete when the rest came (`intake.py`). (hiredis was rejected: it takes no inline
commands, and 13 bytes make it ask for gigabytes.)

    *3 CRLF  $6 CRLF ADDJOB CRLF  $1 CRLF q CRLF  $4 CRLF body CRLF        as clients send it
    ADDJOB q "a body" LF                                                    inline, as people type it
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.wire.intake import Intake
from penstock.wire.quoting import split_words

# A command that people type, and the line of a length, may have so many bytes: Disque's own bound.
LINE_BYTES_MAX: Final = 64 * 1024

# A command may have so many arguments: Disque's own bound. A million ids of 40 characters stay below 100 MB.
ARGS_COUNT_MAX: Final = 1024 * 1024

# Before a client has said who it is, it may say no more than this: enough for HELLO with AUTH and SETNAME.
UNKNOWN_ARGS_MAX: Final = 10
UNKNOWN_BULK_BYTES_MAX: Final = 16 * 1024

# How much is split at a time. Pieces take several times their bytes, so this bounds what a flood of commands costs.
_WINDOW_BYTES: Final = 16 * 1024

# After a command that the fast path could not read, so many go to the exact parser: their like often comes in rows.
# Twice as many each time that they do: or those who send nothing else would have a window split for every few bytes.
_EXACT_RUN_MIN: Final = 16
_EXACT_RUN_MAX: Final = 4_096

_ASTERISK: Final = 42
_CR: Final = 13
_LF: Final = 10

# What the first line of a request over HTTP is read as.
HTTP_REQUEST: Final = b"HTTP"

_COUNTS: Final[dict[bytes, int]] = {b"*%d" % count: count for count in range(1, 65)}
# How a length is written. Comparing it costs a tenth of looking up what is written.
_LENGTHS: Final[list[bytes]] = [b"$%d" % length for length in range(4_097)]
_NO_LENGTH: Final = -1

_TLS_HANDSHAKE: Final = 0x16
_MSGPACK_U32: Final = 0xCE


class RespParser(Intake):
    """The commands of one connection."""

    args_max: i64
    bulk_max: i64
    buffer_max: i64  # How many bytes of commands that were not given out yet are kept.
    error: bytes  # Why nothing more is read; empty while all is well.
    has_more: bool  # The last `parse` has looked at as much as it was asked to, and not at everything.

    _args: list[bytes]  # What there is of a command that came in part.
    _args_bytes: i64
    _missing: i64  # How many arguments it lacks; 0: none was begun.
    _bulk: i64  # The length of the argument that is next; _NO_LENGTH while that is not known.
    _exact: i64  # How many commands to read exactly before the fast path is tried again,
    _exact_run: i64  # and how many if it fails then.
    _fresh: bool  # Nothing was read yet.

    def __init__(self, bulk_max: i64, buffer_max: i64, known: bool = True) -> None:
        """A parser for one who is known, or for one who has to say first who it is."""
        super().__init__()
        self.error = b""
        self.has_more = False
        self.args_max = UNKNOWN_ARGS_MAX
        self.bulk_max = UNKNOWN_BULK_BYTES_MAX
        self.buffer_max = buffer_max
        if known:
            self.trust(bulk_max)
        self._args = []
        self._args_bytes = 0
        self._missing = 0
        self._bulk = _NO_LENGTH
        self._exact = 0
        self._exact_run = _EXACT_RUN_MIN
        self._fresh = True

    def trust(self, bulk_max: i64) -> None:
        """Let a client send as much as clients may."""
        self.args_max = ARGS_COUNT_MAX
        self.bulk_max = bulk_max

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
                # A window is not split for a single command: who is unknown has them read one by one.
                if self._missing == 0 and self._exact == 0 and room > 1 and self._buffer[self._pos] == _ASTERISK:
                    found = self._parse_window(commands, room)
                    if found > 0:
                        room -= found
                        self._exact_run = _EXACT_RUN_MIN
                        continue
                    self._exact = self._exact_run
                    self._exact_run = min(2 * self._exact_run, _EXACT_RUN_MAX)
                if not self._parse_one(commands):
                    break
                room -= 1
                if self._exact > 0:
                    self._exact -= 1
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

    def _parse_window(self, commands: list[list[bytes]], room: i64) -> i64:
        """Read whole, plain commands from the front of the buffer, no more than so many; tell how many there were."""
        buffer = self._buffer
        start = self._pos
        window = buffer if start == 0 and len(buffer) <= _WINDOW_BYTES else buffer[start : start + _WINDOW_BYTES]
        pieces = window.split(b"\r\n")
        whole: i64 = len(pieces) - 1
        found: i64 = 0
        used: i64 = 0
        at: i64 = 0
        while at < whole and found < room:
            head = pieces[at]
            count: i64 = _COUNTS.get(head, 0)
            end = at + 1 + 2 * count
            if count == 0 or end > whole or count > self.args_max:
                break
            size: i64 = len(head) + 2
            args: list[bytes] = []
            at += 1
            while at < end:
                said = pieces[at]
                arg = pieces[at + 1]
                length: i64 = len(arg)
                if length >= len(_LENGTHS) or length > self.bulk_max or said != _LENGTHS[length]:
                    break
                args.append(arg)
                size += len(said) + length + 4
                at += 2
            if at < end:
                break
            commands.append(args)
            used += size
            found += 1
        self._pos = start + used
        return found

    def _parse_one(self, commands: list[list[bytes]]) -> bool:
        """Read one command exactly; tell whether it is worth going on."""
        if self._missing == 0:
            if self._buffer[self._pos] != _ASTERISK:
                return self._parse_inline(commands)
            line = self._line(b"too big mbulk count string")
            if line is None:
                return False
            count = parse_length(line[1:])
            if (count == _NO_LENGTH and line[1:] != b"-1") or count > ARGS_COUNT_MAX:
                self._fail(b"invalid multibulk length")
                return False
            if count > self.args_max:
                self._fail(b"unauthenticated multibulk length")
                return False
            if count <= 0:
                return True
            self._missing = count
        while self._missing > 0:
            if not self._parse_argument():
                return False
        commands.append(self._args)
        self._args = []
        self._args_bytes = 0
        return True

    def _parse_argument(self) -> bool:
        """Read one argument of a command; tell whether it was there."""
        if self._bulk == _NO_LENGTH:
            line = self._line(b"too big bulk count string")
            if line is None:
                return False
            if line[:1] != b"$":
                self._fail(b"expected '$', got '" + printable(line[:1]) + b"'")
                return False
            length = parse_length(line[1:])
            if length == _NO_LENGTH or length > self.bulk_max:
                limited = length != _NO_LENGTH and self.args_max < ARGS_COUNT_MAX
                self._fail(b"unauthenticated bulk length" if limited else b"invalid bulk length")
                return False
            self._bulk = length
        end = self._pos + self._bulk
        if len(self._buffer) < end + 2:
            # Whatever comes is put aside until this is complete, so that a long body is copied once.
            self._need = self._bulk + 2
            return False
        if self._buffer[end] != _CR or self._buffer[end + 1] != _LF:
            self._fail(b"expected CRLF behind a bulk")
            return False
        self._args.append(self._buffer[self._pos : end])
        self._args_bytes += self._bulk
        self._pos = end + 2
        self._bulk = _NO_LENGTH
        self._missing -= 1
        return True

    def _line(self, too_long: bytes) -> bytes | None:
        """The next line without its CRLF, or None if it is not complete."""
        end = self._buffer.find(b"\r\n", self._pos, self._pos + LINE_BYTES_MAX + 2)
        if end < 0:
            # The last byte may be a CR whose LF is still to come.
            if len(self._buffer) - self._pos > LINE_BYTES_MAX + 1:
                self._fail(too_long)
            else:
                self._await_line(b"\r\n", LINE_BYTES_MAX + 2)
            return None
        line = self._buffer[self._pos : end]
        self._pos = end + 2
        return line

    def _parse_inline(self, commands: list[list[bytes]]) -> bool:
        """Read a command as people type it."""
        end = self._buffer.find(b"\n", self._pos, self._pos + LINE_BYTES_MAX + 1)
        if end < 0:
            if len(self._buffer) - self._pos > LINE_BYTES_MAX:
                self._fail(b"too big inline request")
            else:
                self._await_line(b"\n", LINE_BYTES_MAX + 1)
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


def parse_length(digits: bytes) -> i64:
    """A length: one to ten digits and nothing else; _NO_LENGTH for anything else. Python's int is too kind."""
    if not digits.isdigit() or len(digits) > 10:
        return _NO_LENGTH
    return int(digits)


def printable(text: bytes) -> bytes:
    """Bytes as they may stand in a line for people: no control characters."""
    return bytes([byte if 32 <= byte < 127 else 63 for byte in text])
