"""The job table: every job of a node by its id, or of a tube by its integer, in pages of 256.

Ids grow and are never reused, so a page is an array that fills once and then empties. Only jobs that come from another
queue with a number of their own are inserted below others. A page that is nearly empty shrinks to the few jobs left,
lest one old job pin two kilobytes. A page goes with its last job. Pages keep their order,
so a scan is stateless (its cursor is an id), sees every job that was there throughout exactly once, and skips what is
gone. Rejected: a dict of ids, at 60 to 100 bytes a job more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.job import Job

PAGE_BITS: Final = 8
PAGE_SLOTS: Final = 1 << PAGE_BITS
# At this many jobs a page shrinks. Finding one among so few costs less than a dict lookup.
SPARSE_JOBS: Final = 12
CHUNK_NUMBERS: Final = 512


@mypyc_attr(acyclic=True)
class Page:
    """256 ids: an array indexed by the id's last byte, or the few jobs left of it."""

    number: i64
    live: i64
    sparse: bool
    slots: list[Job | None]

    def __init__(self, number: i64) -> None:
        self.number = number
        self.live = 0
        self.sparse = False
        self.slots = [None] * PAGE_SLOTS


class NumberSet:
    """Growing numbers in order: added at the end, removed anywhere, walked from any point.

    They stand in chunks, so no removal moves more than one chunk's worth. Rejected: one list that closes ranks when
    half of it is gone, which at 5 million jobs stops everybody for 7 ms.
    """

    _chunks: list[list[int]]  # None of them empty.

    def __init__(self) -> None:
        self._chunks = []

    def add(self, number: int) -> None:
        """Add a number greater than every one before."""
        chunks = self._chunks
        if not chunks or len(chunks[-1]) >= CHUNK_NUMBERS:
            chunks.append([])
        chunks[-1].append(number)

    def insert(self, number: int) -> None:
        """Add a number that is not there, wherever it belongs."""
        chunks = self._chunks
        if not chunks or number > chunks[-1][-1]:
            self.add(number)
            return
        index = self._chunk_of(number)
        chunk = chunks[index]
        chunk.insert(bisect_left(chunk, number), number)
        if len(chunk) >= 2 * CHUNK_NUMBERS:
            chunks.insert(index + 1, chunk[CHUNK_NUMBERS:])
            del chunk[CHUNK_NUMBERS:]

    def remove(self, number: int) -> None:
        """Remove a number that is there."""
        chunks = self._chunks
        index = self._chunk_of(number)
        chunk = chunks[index]
        chunk.pop(bisect_left(chunk, number))
        if not chunk:
            chunks.pop(index)

    def next_from(self, number: int) -> int:
        """The first number that is not less than this one, or -1."""
        chunks = self._chunks
        if not chunks:
            return -1
        index = self._chunk_of(number)
        chunk = chunks[index]
        at = bisect_left(chunk, number)
        if at < len(chunk):
            return chunk[at]
        return chunks[index + 1][0] if index + 1 < len(chunks) else -1

    def last_to(self, number: int) -> int:
        """Return the last number that is not greater than this one, or -1."""
        chunks = self._chunks
        if not chunks:
            return -1
        chunk = chunks[self._chunk_of(number)]
        at = bisect_right(chunk, number)
        return chunk[at - 1] if at > 0 else -1

    def _chunk_of(self, number: int) -> int:
        """Where the last chunk is that does not begin after this number."""
        chunks = self._chunks
        low = 0
        high = len(chunks)
        while high - low > 1:
            middle = (low + high) >> 1
            if chunks[middle][0] <= number:
                low = middle
            else:
                high = middle
        return low


class JobTable:
    """Jobs by number: `id` for the table of a node, `local` for the table of a tube."""

    count: i64
    _local: bool
    _pages: dict[int, Page]
    _order: NumberSet
    _newest: Page | None  # Still filling: it neither shrinks nor goes.
    _hot_number: i64  # The page used last. Producers and consumers mostly stay on one.
    _hot: Page | None

    def __init__(self, local: bool = False) -> None:
        self.count = 0
        self._local = local
        self._pages = {}
        self._order = NumberSet()
        self._newest = None
        self._hot_number = -1
        self._hot = None

    def find(self, number: i64) -> Job | None:
        """The job of this number."""
        page = self._page(number >> PAGE_BITS)
        if page is None:
            return None
        if not page.sparse:
            return page.slots[number & (PAGE_SLOTS - 1)]
        for job in page.slots:
            if job is not None and (job.local if self._local else job.id) == number:
                return job
        return None

    def add(self, job: Job) -> None:
        """Enter a job. Its number is greater than every number entered before."""
        number = job.local if self._local else job.id
        page = self._newest
        if page is None or page.number != number >> PAGE_BITS:
            page = self._new_page(number >> PAGE_BITS)
        page.slots[number & (PAGE_SLOTS - 1)] = job
        page.live += 1
        self.count += 1

    def insert(self, job: Job) -> None:
        """Enter a job whose number may be less than others. No job in the table has it."""
        number = job.local if self._local else job.id
        page = self._page(number >> PAGE_BITS)
        if page is None:
            # It may be the only job of its page, so it starts sparse.
            page = Page(number >> PAGE_BITS)
            page.sparse = True
            page.slots = []
            self._pages[page.number] = page
            self._order.insert(page.number)
        if page.sparse and page.live >= SPARSE_JOBS:
            self._spread_out(page)
        if page.sparse:
            page.slots.append(job)
            page.slots.sort(key=_local if self._local else _id)
        else:
            page.slots[number & (PAGE_SLOTS - 1)] = job
        page.live += 1
        self.count += 1

    def remove(self, job: Job) -> None:
        """Remove a job that is in the table."""
        number = job.local if self._local else job.id
        page = self._page(number >> PAGE_BITS)
        assert page is not None
        if page.sparse:
            page.slots.remove(job)
        else:
            page.slots[number & (PAGE_SLOTS - 1)] = None
        page.live -= 1
        self.count -= 1
        if page.live <= SPARSE_JOBS and page is not self._newest:
            self._thin_out(page)

    def scan(self, start: i64, examine: i64) -> list[Job]:
        """Up to `examine` jobs from a number on, in order, and whole pages at that."""
        found: list[Job] = []
        number = self._order.next_from(start >> PAGE_BITS)
        while number >= 0 and len(found) < examine:
            for job in self._pages[number].slots:
                if job is not None and (job.local if self._local else job.id) >= start:
                    found.append(job)
            number = self._order.next_from(number + 1)
        return found

    def scan_back(self, start: i64, examine: i64) -> list[Job]:
        """Return up to `examine` jobs from a number on downwards, in descending order, and whole pages at that."""
        found: list[Job] = []
        number = self._order.last_to(start >> PAGE_BITS)
        while number >= 0 and len(found) < examine:
            for job in reversed(self._pages[number].slots):
                if job is not None and (job.local if self._local else job.id) <= start:
                    found.append(job)
            number = self._order.last_to(number - 1)
        return found

    def _page(self, number: i64) -> Page | None:
        if number == self._hot_number:
            return self._hot
        page = self._pages.get(number)
        if page is not None:
            self._hot_number = number
            self._hot = page
        return page

    def _new_page(self, number: i64) -> Page:
        filled = self._newest
        page = self._pages.get(number)
        if page is None:
            page = Page(number)
            self._pages[number] = page
            self._order.add(number)
        elif page.sparse:
            self._spread_out(page)
        self._newest = page
        if filled is not None and filled.live <= SPARSE_JOBS:
            self._thin_out(filled)
        return page

    def _spread_out(self, page: Page) -> None:
        """Let a page of few jobs be an array again."""
        slots: list[Job | None] = [None] * PAGE_SLOTS
        for job in page.slots:
            assert job is not None
            slots[(job.local if self._local else job.id) & (PAGE_SLOTS - 1)] = job
        page.slots = slots
        page.sparse = False

    def _thin_out(self, page: Page) -> None:
        """Shrink a page of few jobs to just these; drop one of none."""
        if page.live > 0:
            if not page.sparse:
                page.slots = [job for job in page.slots if job is not None]
                page.sparse = True
            return
        del self._pages[page.number]
        self._order.remove(page.number)
        if self._hot_number == page.number:
            self._hot_number = -1
            self._hot = None


def _id(job: Job | None) -> int:
    assert job is not None
    return job.id


def _local(job: Job | None) -> int:
    assert job is not None
    return job.local
