"""Answers that grow while a command looks at slices: kept as pages, and sent when all was found.

An answer begins with its length, so nothing of it leaves before everything was found. Then a slice of it leaves a turn.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.dialects.command import ANSWERED, Caller, Long
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# A page that has so many bytes is full. There is always one thing on it, however long.
PAGE_BYTES_MAX: Final = 1024 * 1024

# How many jobs or tubes a slice looks at, and about how many bytes it answers: a fraction of a millisecond's work.
LOOK_SLICE: Final = 250
_SLICE_BYTES: Final = 64 * 1024

# An answer that would grow longer is refused: cursors and counts are there for it.
SCAN_BYTES_MAX: Final = 64 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Pages(Long):
    """What a command has found so far."""

    found: int
    _pages: list[bytes]
    _bytes: i64  # Of all pages that are full, and were not answered yet.
    _is_answering: bool
    _answered: i64  # How many pages were answered.

    def __init__(self) -> None:
        self.found = 0
        self._pages = []
        self._bytes = 0
        self._is_answering = False
        self._answered = 0

    def look(self, caller: Caller, now: i64) -> bool:
        """Look at the next slice; tell whether it was the last one."""
        raise NotImplementedError

    def write_head(self, reply: Reply) -> None:
        """What an answer begins with, now that all was found."""
        reply.array(self.found)

    def step(self, caller: Caller, now: i64) -> bool:
        """Look at a slice; or, once everything was looked at, answer some of what was found."""
        if not self._is_answering:
            # All of it is in memory, and of many who ask at a time there may be many: it counts like what is unread.
            caller.owed = 0
            is_last = self.look(caller, now)
            if not is_last:
                caller.owed = self._bytes
                return False
            if caller.muted != ANSWERED:
                # Nobody wants the answer, and what has left cannot be taken back.
                return True
            self._is_answering = True
            self.write_head(caller.reply)
        length: i64 = 0
        while self._answered < len(self._pages) and length < _SLICE_BYTES:
            page = self._pages[self._answered]
            caller.reply.raw(page)
            length += len(page)
            self._pages[self._answered] = b""
            self._answered += 1
        self._bytes -= length
        caller.owed = self._bytes
        return self._answered == len(self._pages)

    def page(self, caller: Caller) -> Reply:
        """A page to write on, as its caller reads it."""
        page = Reply()
        page.resp3 = caller.reply.resp3
        return page

    def fits(self, page: Reply, more: i64, whole: bool) -> bool:
        """Tell whether there is room on a page for about so many bytes more. No byte is written before it is asked.

        Where the answer has to be whole, too much of it is refused.
        """
        length = page.length + more
        if whole and self._bytes + length > SCAN_BYTES_MAX:
            raise Refused(b"ERR the answer would be longer than %d bytes; ask for less at a time" % SCAN_BYTES_MAX)
        return page.length == 0 or length <= PAGE_BYTES_MAX

    def add(self, page: Reply) -> None:
        """Keep the page of a slice."""
        self._bytes += page.length
        self._pages.append(page.take())
