"""Bytes that came in pieces, for a parser that takes them as far as it can.

The buffer is replaced when all of it was taken, as it mostly was: then nothing is copied at all. Else what comes is put
behind it, and the two are joined when the buffer gives nothing more and what came completes what is left of it. So a
byte is copied two or three times, however small the pieces are and however long nobody reads them. (Joining at every
piece was rejected: a client that waits for a job may send a megabyte behind that, and every piece would copy it.)
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# So much of a buffer may have been taken before what is left of it is kept by itself.
_TAKEN_BYTES_MAX: Final = 16 * 1024


class Intake:
    """What came in and was not taken yet."""

    _buffer: bytes
    _pos: i64  # How much of the buffer was taken.
    _behind: bytearray  # What came behind the buffer; nothing once all of the buffer was taken.
    _need: i64  # How many bytes from _pos on are needed before it is worth looking again; 0: any.
    _line_end: bytes  # What makes it worth as well, if it comes; empty: nothing.
    _seen: i64  # How much of what is behind was searched for that.

    def __init__(self) -> None:
        # Not by `_forget`: compiled, what is assigned here need not be looked at for being there at all.
        self._buffer = b""
        self._pos = 0
        self._behind = bytearray()
        self._need = 0
        self._line_end = b""
        self._seen = 0

    def _forget(self) -> None:
        """Nothing more is read."""
        self._buffer = b""
        self._pos = 0
        self._behind = bytearray()
        self._need = 0
        self._line_end = b""
        self._seen = 0

    def _came(self, data: bytes) -> None:
        """Bytes came in."""
        if self._pos == len(self._buffer):
            self._buffer = data
            self._pos = 0
        else:
            self._behind += data

    def _let_go(self) -> None:
        """Keep nothing of what was taken: who has sent something long may be silent for days."""
        if self._pos == len(self._buffer):
            # Bytes that wait behind come first: `_came` would put the next ones before them.
            self._buffer = bytes(self._behind)
            self._pos = 0
            self._behind = bytearray()
            self._seen = 0
        elif self._pos > _TAKEN_BYTES_MAX:
            self._buffer = self._buffer[self._pos :]
            self._pos = 0

    def _await_line(self, end: bytes, most: i64) -> None:
        """What is left of the buffer is a part of a line: look again at its end, or when it has so many bytes."""
        if self._pos < len(self._buffer):
            self._need = most
            self._line_end = end

    def _join(self) -> bool:
        """Let what came behind the buffer be looked at, if it completes what is left there; tell whether it does."""
        there = len(self._buffer) - self._pos + len(self._behind)
        if there < self._need and not (self._line_end and self._has_line_end()):
            return False
        if self._behind:
            self._buffer = self._buffer[self._pos :] + self._behind
            self._pos = 0
            self._behind = bytearray()
            self._seen = 0
        self._need = 0
        self._line_end = b""
        return True

    def _has_line_end(self) -> bool:
        """Whether the end of a line came behind the buffer since that was asked last."""
        behind = self._behind
        end = self._line_end
        before = self._seen
        self._seen = len(behind)
        if before > 0:
            return behind.find(end, before + 1 - len(end)) >= 0
        # A line end of two bytes may be cut in two.
        return behind.find(end) >= 0 or (len(end) == 2 and behind[:1] == end[1:] and self._buffer[-1:] == end[:1])
