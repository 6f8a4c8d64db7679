"""Reading a space in the order of an index, a slice at a time, with bounded memory.

A `ReadableSpace` describes its fields and indexes and has *items*, from which its rows are made. Rows are written
only for the items that a client gets. There are three ways to find these items:

    few       the space returns the few items that can match, for example for a primary key or a rare status
    ordered   a scan returns the items in the order of the index, starting at the key, and stops at the limit
    any       a scan returns all items in any order. The first KEPT_MAX matching items in the order of the index are
              kept and written. If the client wants more, another scan finds the items that follow

A slice examines about SLICE items. A select that needs only one slice is atomic. In a longer select, each row has its
state at the time of its slice. A row that changes in the meantime can be missing or can be in its old place. If there
was another scan, a row that moved behind the rows already written can appear twice.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.errors import PenstockError
from penstock.core.limits import BATCH_JOBS_MAX
from penstock.dialects.spaces.indexes import Comparable, Index, Query, comparable
from penstock.dialects.tarantool.calls import SlicedCall, encode_result
from penstock.dialects.xqueue.formats import Field
from penstock.node.caller import SLICE, Caller
from penstock.wire.errors import BoxError
from penstock.wire.iproto import Request
from penstock.wire.msgpack import Reader, write_array

# A scan in any order keeps at most this many items. Each takes some hundred bytes.
KEPT_MAX: Final = 10_000

# `find_few` returns at most this many items, so that they are found and written in one slice.
FEW_MAX: Final = 400

# A reply with more rows or bytes is refused, because the client could not see that rows are missing.
ROWS_MAX: Final = BATCH_JOBS_MAX
ROWS_BYTES_MAX: Final = 16 * 1024 * 1024

ER_UNSUPPORTED: Final = 5


class Scan:
    """A scan over the items of a space. It returns every item that exists during the whole scan at least once."""

    ordered: bool  # The items are in the order of the query.
    is_over: bool

    def __init__(self, ordered: bool = False) -> None:
        self.ordered = ordered
        self.is_over = False

    def next(self, count: int) -> list[object]:
        """Return about `count` of the next items."""
        raise NotImplementedError


class ReadableSpace:
    """A space that one client reads."""

    name: str
    number: int
    fields: list[Field]
    indexes: list[Index]  # The first is the primary index.
    truncates: bool  # A select of too many rows ends early. Otherwise it is refused.

    def __init__(self, name: str, number: int, fields: list[Field], indexes: list[Index]) -> None:
        self.name = name
        self.number = number
        self.fields = fields
        self.indexes = indexes
        self.truncates = False
        for index in indexes:
            index.order = index.parts + [at for at in indexes[0].parts if at not in index.parts]

    def advance(self, now: i64) -> None:
        """Run the engine's timers that are due."""
        raise NotImplementedError

    def is_dropped(self) -> bool:
        return False

    def contains(self, item: object) -> bool:
        """Return whether an item is still in this space."""
        return True

    def value(self, field: int, item: object) -> object:
        """Return a field of an item's row."""
        raise NotImplementedError

    def write(self, writer: BytesWriter, item: object) -> None:
        """Write an item's row."""
        raise NotImplementedError

    def scan(self, query: Query) -> Scan:
        """Start a scan over all items that can match a query."""
        raise NotImplementedError

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        """Return the items that can match, or None if only a scan finds them. Items after the limit can be left out."""
        return None

    def count(self, query: Query) -> int:
        """Return how many rows match, or -1 if only a scan can count them."""
        return -1

    def sort_key(self, query: Query, item: object) -> Comparable:
        """Return the position of an item in the order of a query's index."""
        return tuple([comparable(self.value(at, item)) for at in query.index.order])


class SelectCall(SlicedCall):
    """Runs a select: returns the rows that match a query."""

    _space: ReadableSpace
    _query: Query
    _wrapped: bool  # The rows are the only result of a call; otherwise they are the results.
    _writer: BytesWriter
    _found: i64
    _skip: int  # The number of rows that are still to be skipped.
    _scan: Scan | None
    _kept: list[tuple[Comparable, int, object]]  # Positions, numbers and items, in the order of the index.
    _fresh: list[tuple[Comparable, int, object]]  # New entries for `_kept`, not sorted yet.
    _number: int  # Numbers the matching items, so that sorting never compares two items.
    _kept_max: int
    _lost: bool  # More items matched than could be kept.
    _edge: Comparable | None  # Items up to this position were written.
    _at: int  # The number of kept items that were written.
    _is_writing: bool
    _is_over: bool

    def __init__(self, call: Request, space: ReadableSpace, query: Query, wrapped: bool) -> None:
        super().__init__(call)
        self._space = space
        self._query = query
        self._wrapped = wrapped
        self._writer = BytesWriter()
        self._found = 0
        self._skip = query.offset
        self._scan = None
        self._kept = []
        self._fresh = []
        self._number = 0
        self._kept_max = KEPT_MAX
        self._lost = False
        self._edge = None
        self._at = 0
        self._is_writing = False
        self._is_over = query.limit == 0

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        caller.owed = 0
        self._space.advance(now)
        left = SLICE
        while left > 0 and not self._is_over:
            left -= 1 + self._step(left, now)
        if self._is_over:
            return self._results()
        # The rows are in memory until the end, so they count as unsent reply bytes.
        caller.owed = len(self._writer)
        return None

    def _step(self, count: int, now: i64) -> int:
        """Examine about `count` items or write about `count` rows. Return how many were processed."""
        if self._space.is_dropped():
            self._is_over = True
            return 0
        if self._is_writing:
            return self._write(count)
        scan = self._scan
        if scan is None:
            few = self._space.find_few(self._query, now) if self._edge is None else None
            if few is not None:
                for item in few:
                    self._keep(item)
                self._sort()
                self._is_writing = True
                return len(few)
            scan = self._scan = self._space.scan(self._query)
            if not scan.ordered:
                self._kept_max = min(KEPT_MAX, self._skip + self._query.limit - int(self._found))
        items = scan.next(count)
        if scan.ordered:
            for item in items:
                if self._space.contains(item) and self._query.matches(self._space.sort_key(self._query, item)):
                    self._add(item)
            self._is_over = self._is_over or scan.is_over
        else:
            for item in items:
                self._keep(item)
            if scan.is_over or len(self._fresh) * 4 >= len(self._kept):
                self._sort()
            self._is_writing = scan.is_over
        # A scan may have examined more items than it returns.
        return len(items) if scan.is_over else count

    def _keep(self, item: object) -> None:
        """Keep an item for the reply if it matches the query.

        Items that were written already are skipped. If enough items are kept that come earlier in the order of the
        query, the item is left to a later scan.
        """
        if not self._space.contains(item):
            return
        place = self._space.sort_key(self._query, item)
        if not self._query.matches(place):
            return
        kept = self._kept
        descending = self._query.descending
        edge = self._edge
        if edge is not None and (place >= edge if descending else place <= edge):
            return
        if len(kept) >= self._kept_max and (place <= kept[0][0] if descending else place >= kept[-1][0]):
            self._lost = True
            return
        self._number += 1
        self._fresh.append((place, self._number, item))

    def _sort(self) -> None:
        """Sort the kept items. If there are more than `_kept_max`, drop the last ones in the order of the query."""
        kept = self._kept
        self._fresh.sort()
        # Python merges two sorted runs in linear time.
        kept.extend(self._fresh)
        self._fresh = []
        kept.sort()
        surplus = len(kept) - self._kept_max
        if surplus > 0:
            self._lost = True
            if self._query.descending:
                del kept[:surplus]
            else:
                del kept[-surplus:]

    def _write(self, count: int) -> int:
        """Examine up to `count` kept items and write the rows of those that still match. Return the number examined."""
        kept = self._kept
        written = min(count, len(kept) - self._at)
        for _ in range(written):
            place, _, item = kept[-1 - self._at if self._query.descending else self._at]
            self._at += 1
            if place == self._edge:
                continue  # A scan may return an item twice.
            self._edge = place
            if self._space.contains(item) and self._query.matches(self._space.sort_key(self._query, item)):
                self._add(item)
        if self._at == len(kept):
            self._is_over = self._is_over or not self._lost
            # If items were dropped, another scan finds those that follow.
            self._kept = []
            self._lost = False
            self._at = 0
            self._scan = None
            self._is_writing = False
        return written

    def _add(self, item: object) -> None:
        """Write the row of an item, or skip it if it is within the offset of the query."""
        if self._is_over:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        if self._found >= ROWS_MAX or len(self._writer) >= ROWS_BYTES_MAX:
            if not self._space.truncates:
                raise _too_many_rows()
            self._is_over = True
            return
        self._space.write(self._writer, item)
        self._found += 1
        if self._found == self._query.limit:
            self._is_over = True

    def _results(self) -> bytes:
        head = BytesWriter()
        if self._wrapped:
            head.append(0x91)
        write_array(head, self._found)
        head.write(self._writer.getvalue())
        return head.getvalue()


class CountCall(SlicedCall):
    """Runs a count: returns the number of rows that match a query."""

    _space: ReadableSpace
    _query: Query
    _scan: Scan | None
    _count: int

    def __init__(self, call: Request, space: ReadableSpace, query: Query) -> None:
        super().__init__(call)
        self._space = space
        self._query = query
        self._scan = None
        self._count = 0

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        space = self._space
        space.advance(now)
        if space.is_dropped():
            return encode_result(self._count)
        scan = self._scan
        if scan is None:
            known = space.count(self._query)
            if known >= 0:
                return encode_result(known)
            few = space.find_few(self._query, now)
            if few is not None:
                self._add(few)
                return encode_result(self._count)
            scan = self._scan = space.scan(self._query)
        self._add(scan.next(SLICE))
        return encode_result(self._count) if scan.is_over else None

    def _add(self, items: list[object]) -> None:
        space, query = self._space, self._query
        for item in items:
            if space.contains(item) and query.matches(space.sort_key(query, item)):
                self._count += 1


def rows_in(results: bytes) -> object:
    """Return the rows from the single result of a select."""
    reader = Reader(results)
    # A reply may have more values than a request.
    reader.left = len(results)
    reader.length_of_array()
    return reader.value()


def _too_many_rows() -> PenstockError:
    return BoxError(
        ER_UNSUPPORTED,
        f"Penstock does not support replies of more than {ROWS_MAX} rows or {ROWS_BYTES_MAX} bytes; "
        "set a limit and continue with iterator GT and the last key",
    )
