"""The job table: all jobs of a node by id, or of a tube by integer id, in pages of 256.

Ids increase and are never reused, so a page is an array that fills once and then empties. Only an imported job that has
its own number can be inserted below others. A page that is nearly empty shrinks to a list of the jobs left, so that one
old job does not occupy two kilobytes. A page is removed with its last job.

Pages are kept in order, and the cursor of a scan is an id. Therefore a scan needs no state. It returns each job that
exists during the whole scan exactly once, and skips removed jobs. Rejected: a dict of ids, which takes 60 to 100 more
bytes per job.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.job import Job

PAGE_BITS: Final = 8
PAGE_SLOTS: Final = 1 << PAGE_BITS
# A page with this many jobs or fewer becomes sparse. Searching so few jobs costs less than a dict lookup.
SPARSE_JOBS: Final = 12
CHUNK_NUMBERS: Final = 512
# The shards of a scan are made of blocks of 4,096 numbers. This is small enough to divide a tube of 100,000 jobs, and
# large enough that skipping the blocks of other shards costs little compared with reading the jobs of a block.
BLOCK_BITS: Final = 12
BLOCK_SLOTS: Final = 1 << BLOCK_BITS


@mypyc_attr(acyclic=True)
class Page:
    """256 ids: an array indexed by the last byte of the id, or a list of the few jobs left (`sparse`)."""

    def __init__(self, number: i64) -> None:
        self.number = number
        self.live: i64 = 0
        self.sparse = False
        self.slots: list[Job | None] = [None] * PAGE_SLOTS


class NumberSet:
    """An ordered set of numbers: mostly added at the end, removed anywhere, iterated from any point.

    Numbers are stored in chunks, so that no removal moves more than one chunk. Rejected: one list that is compacted
    when half of it is removed, because compacting blocks all clients for 7 ms at 5 million jobs.
    """

    _chunks: list[list[int]]  # No chunk is empty.

    def __init__(self) -> None:
        self._chunks = []

    def add(self, number: int) -> None:
        """Add a number that is greater than all others."""
        chunks = self._chunks
        if not chunks or len(chunks[-1]) >= CHUNK_NUMBERS:
            chunks.append([])
        chunks[-1].append(number)

    def insert(self, number: int) -> None:
        """Add a number that is not in the set."""
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
        chunks = self._chunks
        index = self._chunk_of(number)
        chunk = chunks[index]
        chunk.pop(bisect_left(chunk, number))
        if not chunk:
            chunks.pop(index)

    def next_from(self, number: int) -> int:
        """Return the first number that is not less than this one, or -1."""
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
        """Return the index of the last chunk that does not start after this number."""
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
    """Jobs by number: by `id` in the table of a node, by `local` in the table of a tube."""

    def __init__(self, local: bool = False) -> None:
        self.count: i64 = 0
        self._local = local
        self.pages: dict[int, Page] = {}
        self._order = NumberSet()
        self.newest: Page | None = None  # The page that is being filled. It is neither shrunk nor removed.
        # Number of the page that was used last. Producers and consumers mostly stay on one page.
        self._hot_number: i64 = -1
        self._hot: Page | None = None

    def find(self, number: i64) -> Job | None:
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
        """Add a job. Its number must be greater than all numbers added before."""
        number = job.local if self._local else job.id
        page = self.newest
        if page is None or page.number != number >> PAGE_BITS:
            page = self._new_page(number >> PAGE_BITS)
        page.slots[number & (PAGE_SLOTS - 1)] = job
        page.live += 1
        self.count += 1

    def insert(self, job: Job) -> None:
        """Add a job whose number can be less than others. No job in the table may have this number."""
        number = job.local if self._local else job.id
        page = self._page(number >> PAGE_BITS)
        if page is None:
            # It may be the only job of its page, so it starts sparse.
            page = Page(number >> PAGE_BITS)
            page.sparse = True
            page.slots = []
            self.pages[page.number] = page
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
        number = job.local if self._local else job.id
        page = self._page(number >> PAGE_BITS)
        assert page is not None
        if page.sparse:
            page.slots.remove(job)
        else:
            page.slots[number & (PAGE_SLOTS - 1)] = None
        page.live -= 1
        self.count -= 1
        if page.live <= SPARSE_JOBS and page is not self.newest:
            self._thin_out(page)

    def scan(self, start: i64, examine: i64) -> list[Job]:
        """Return at least `examine` jobs in ascending order, starting at number `start`, or all that are left.

        Pages are returned whole.
        """
        found: list[Job] = []
        number = self._order.next_from(start >> PAGE_BITS)
        while number >= 0 and len(found) < examine:
            for job in self.pages[number].slots:
                if job is not None and (job.local if self._local else job.id) >= start:
                    found.append(job)
            number = self._order.next_from(number + 1)
        return found

    def scan_shard(self, start: i64, examine: i64, shard: i64, shards: i64) -> tuple[list[Job], i64]:
        """Return about `examine` jobs of one shard in ascending order, starting at number `start`.

        Also return the number to continue from, or 0 if no jobs are left. Shard `shard` of `shards` consists of every
        `shards`-th block of BLOCK_SLOTS numbers. The number of a job never changes, so the shards are disjoint however
        long the scan takes. The blocks of other shards are skipped by a search in the ordered set of pages. A skip
        counts as one examined job.
        """
        found: list[Job] = []
        examined: i64 = 0
        number = self._order.next_from(start >> PAGE_BITS)
        while number >= 0 and examined < examine:
            block = number >> (BLOCK_BITS - PAGE_BITS)
            ahead = (shard - block) % shards
            if ahead != 0:
                number = self._order.next_from((block + ahead) << (BLOCK_BITS - PAGE_BITS))
                examined += 1
                continue
            for job in self.pages[number].slots:
                if job is not None and (job.local if self._local else job.id) >= start:
                    found.append(job)
            examined += self.pages[number].live
            number = self._order.next_from(number + 1)
        return found, 0 if number < 0 else number << PAGE_BITS

    def scan_back(self, start: i64, examine: i64) -> list[Job]:
        """Return at least `examine` jobs in descending order, starting at number `start`, or all that are left.

        Pages are returned whole.
        """
        found: list[Job] = []
        number = self._order.last_to(start >> PAGE_BITS)
        while number >= 0 and len(found) < examine:
            for job in reversed(self.pages[number].slots):
                if job is not None and (job.local if self._local else job.id) <= start:
                    found.append(job)
            number = self._order.last_to(number - 1)
        return found

    def _page(self, number: i64) -> Page | None:
        if number == self._hot_number:
            return self._hot
        page = self.pages.get(number)
        if page is not None:
            self._hot_number = number
            self._hot = page
        return page

    def _new_page(self, number: i64) -> Page:
        filled = self.newest
        page = self.pages.get(number)
        if page is None:
            page = Page(number)
            self.pages[number] = page
            self._order.add(number)
        elif page.sparse:
            self._spread_out(page)
        self.newest = page
        if filled is not None and filled.live <= SPARSE_JOBS:
            self._thin_out(filled)
        return page

    def _spread_out(self, page: Page) -> None:
        slots: list[Job | None] = [None] * PAGE_SLOTS
        for job in page.slots:
            assert job is not None
            slots[(job.local if self._local else job.id) & (PAGE_SLOTS - 1)] = job
        page.slots = slots
        page.sparse = False

    def _thin_out(self, page: Page) -> None:
        """Convert a page with few jobs to a list. Remove it if it has none."""
        if page.live > 0:
            if not page.sparse:
                page.slots = [job for job in page.slots if job is not None]
                page.sparse = True
            return
        del self.pages[page.number]
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
