"""Replies of commands that examine many jobs or tubes in slices.

A reply begins with its length, so nothing is sent before everything is found. Until then the reply is kept as pages.
After that, one slice of it is sent per turn.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.node.caller import ANSWERED, Caller, SlicedCommand
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# A page with this many bytes is full. A page always has room for at least one entry.
PAGE_BYTES_MAX: Final = 1024 * 1024

# A slice examines this many jobs or tubes, and answers about this many bytes: a fraction of a millisecond of work.
SCAN_SLICE: Final = 250
_SLICE_BYTES: Final = 64 * 1024

# A longer reply is refused. The client can use a cursor or a count.
SCAN_BYTES_MAX: Final = 64 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class PagedReply(SlicedCommand):
    """A command that collects its reply in pages."""

    found: int
    _pages: list[bytes]
    _bytes: i64  # The bytes of all pages that are not answered yet.
    _is_answering: bool
    _answered: i64  # The number of pages that were answered.

    def __init__(self) -> None:
        self.found = 0
        self._pages = []
        self._bytes = 0
        self._is_answering = False
        self._answered = 0

    def scan(self, caller: Caller, now: i64) -> bool:
        """Examine the next slice of jobs or tubes. Return whether it was the last one."""
        raise NotImplementedError

    def write_head(self, reply: Reply) -> None:
        """Write the beginning of the reply, after everything was found."""
        reply.array(self.found)

    def step(self, caller: Caller, now: i64) -> bool:
        """Examine a slice. When everything is examined, write a part of the reply instead."""
        if not self._is_answering:
            # The pages are in memory, and many clients may ask at the same time, so they count as unsent reply bytes.
            caller.owed = 0
            is_last = self.scan(caller, now)
            if not is_last:
                caller.owed = self._bytes
                return False
            if caller.reply_mode != ANSWERED:
                # The caller has switched replies off, and bytes that were sent could not be taken back.
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
        """Return an empty page in the caller's version of RESP."""
        page = Reply()
        page.resp3 = caller.reply.resp3
        return page

    def fits(self, page: Reply, more: i64, whole: bool) -> bool:
        """Return whether a page has room for about `more` bytes. Call this before each write.

        If `whole` is set, the reply cannot be continued with a cursor, so an error is raised if it is too long.
        """
        length = page.length + more
        if whole and self._bytes + length > SCAN_BYTES_MAX:
            raise Refused(b"ERR the reply would be longer than %d bytes; ask for fewer entries" % SCAN_BYTES_MAX)
        return page.length == 0 or length <= PAGE_BYTES_MAX

    def add(self, page: Reply) -> None:
        """Add the page of a slice to the reply."""
        self._bytes += page.length
        self._pages.append(page.take())
