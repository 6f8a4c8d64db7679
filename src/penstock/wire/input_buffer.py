"""The input buffer of a parser: received bytes that are not parsed yet.

If the parser has consumed the whole buffer, which is the usual case, the next bytes replace it and nothing is copied.
Otherwise they are collected in a second buffer. The two are joined when they contain the complete command that the
parser needs. So a byte is copied two or three times, even if pieces are small or the parser does not run for a long
time. (Joining at every piece was rejected: a client that waits for a job can send a megabyte in the meantime, and every
piece would copy it.)
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# When the consumed part of a buffer exceeds this, the rest is copied so that the buffer can be freed.
_TAKEN_BYTES_MAX: Final = 16 * 1024


class InputBuffer:
    """Received bytes that are not parsed yet."""

    _buffer: bytes
    _pos: i64  # The number of consumed bytes in the buffer.
    _pending: bytearray  # Bytes received after the buffer; empty if all of the buffer is consumed.
    _need: i64  # The parser needs this many bytes from _pos on before it can continue; 0 for any number.
    _line_end: bytes  # The parser can also continue when this line end arrives; empty for none.
    _seen: i64  # The number of bytes in _pending that were searched for the line end.

    def __init__(self) -> None:
        # Not by calling `_clear`: mypyc knows that attributes assigned here are always defined, and omits the check.
        self._buffer = b""
        self._pos = 0
        self._pending = bytearray()
        self._need = 0
        self._line_end = b""
        self._seen = 0

    def _clear(self) -> None:
        """Drop all bytes, because the parser has failed and reads no more."""
        self._buffer = b""
        self._pos = 0
        self._pending = bytearray()
        self._need = 0
        self._line_end = b""
        self._seen = 0

    def _append(self, data: bytes) -> None:
        if self._pos == len(self._buffer):
            self._buffer = data
            self._pos = 0
        else:
            self._pending += data

    def _free_consumed(self) -> None:
        """Free bytes that were parsed, because a client that sent a long message may be idle for days."""
        if self._pos == len(self._buffer):
            # The waiting bytes become the buffer now. Otherwise `_append` would put newer bytes before them.
            self._buffer = bytes(self._pending)
            self._pos = 0
            self._pending = bytearray()
            self._seen = 0
        elif self._pos > _TAKEN_BYTES_MAX:
            self._buffer = self._buffer[self._pos :]
            self._pos = 0

    def _await_line(self, end: bytes, most: i64) -> None:
        """Record that parsing can continue when the line end `end` has arrived, or when `most` bytes have arrived."""
        if self._pos < len(self._buffer):
            self._need = most
            self._line_end = end

    def _join(self) -> bool:
        """Join the two buffers if together they have the bytes that the parser needs. Otherwise return False."""
        there = len(self._buffer) - self._pos + len(self._pending)
        if there < self._need and not (self._line_end and self._has_line_end()):
            return False
        if self._pending:
            self._buffer = self._buffer[self._pos :] + self._pending
            self._pos = 0
            self._pending = bytearray()
            self._seen = 0
        self._need = 0
        self._line_end = b""
        return True

    def _has_line_end(self) -> bool:
        """Return whether the second buffer contains a line end among the bytes that arrived since the last call."""
        behind = self._pending
        end = self._line_end
        before = self._seen
        self._seen = len(behind)
        if before > 0:
            return behind.find(end, before + 1 - len(end)) >= 0
        # A line end of two bytes may be split between the two buffers.
        return behind.find(end) >= 0 or (len(end) == 2 and behind[:1] == end[1:] and self._buffer[-1:] == end[:1])


class RequestBuffer(InputBuffer):
    """The bytes that a client has sent. The parser of requests of each protocol is a subclass."""

    buffer_max: i64  # The maximum number of buffered bytes.
    error: bytes  # The reason why the parser reads no more; empty if there is none.
    has_more: bool  # The last `parse` reached its maximum and did not examine all bytes.

    def __init__(self, buffer_max: i64) -> None:
        super().__init__()
        self.buffer_max = buffer_max
        self.error = b""
        self.has_more = False

    def feed(self, data: bytes) -> None:
        if self.error:
            return
        self._append(data)
        if self.pending() > self.buffer_max:
            self.refuse_more()

    def pending(self) -> i64:
        """Return the number of received bytes that `parse` has not returned yet."""
        return len(self._buffer) - self._pos + len(self._pending)

    def is_unfinished(self) -> bool:
        """Return whether there is a message that is incomplete, or that `parse` has not returned yet."""
        return self.pending() > 0

    def raise_limits(self, bytes_max: i64) -> None:
        """Raise the limits, because the client has authenticated. `bytes_max` is the new limit of an argument."""
        raise NotImplementedError

    def refuse_more(self) -> None:
        """Set `error`, because more than `buffer_max` bytes are buffered."""
        raise NotImplementedError
