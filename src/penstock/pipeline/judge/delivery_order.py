"""Finds deliveries that overtook a job which was ready and came first in their order.

A job is *ready* during an interval of positions. A take at position x is wrong if a job of the same line was ready at
x and has a lesser (priority, order). SQL has no fast form of this question: a window cannot begin at the position at
which the job of a row became ready. So Spark sorts the rows by line and position, and this module examines them in
numpy arrays, in Spark's Python processes.

For each interval it needs the greatest place that a take within the interval had. This is a *range maximum*, computed
with a sparse table: row k of the table has the maxima of 2^k consecutive rows, and two overlapping pieces of this
length cover any interval. The rows of the table are computed one after the other, so memory is linear in the number of
events.

A line can have any number of events, so they are examined in chunks. Only the jobs that are ready at the end of a chunk
are carried over to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

COLUMNS: Final = ("line", "n", "position", "before_position", "priority", "order", "kind")
RESULT: Final = "n INT, position BIGINT, what STRING"

# The parts of `kind`.
BEGINS: Final = 1  # The job becomes ready.
ENDS: Final = 2  # The job was ready.
TAKES: Final = 4  # The job is taken.

# Events per chunk. More use more memory; fewer carry the waiting jobs of a long line over more often.
CHUNK_ROWS: Final = 262_144

Rows = dict[str, Any]  # Arrays of equal length, by column.
Found = tuple[int, int, str]  # A row of RESULT.


def overtakers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of wrong order. The rows must be sorted by line and position."""
    waiting: list[Rows] = []
    carried = _empty()
    for batch in batches:
        waiting.append(_rows_of(batch))
        count = sum(len(rows["line"]) for rows in waiting)
        if count >= max(CHUNK_ROWS, len(carried["line"])):
            found, carried = examine(_joined([carried, *waiting]))
            waiting = []
            if found:
                yield _result(found)
    found, _ = examine(_joined([carried, *waiting]))
    if found:
        yield _result(found)


def examine(rows: Rows) -> tuple[list[Found], Rows]:
    """Return the deliveries of wrong order among these rows, and the jobs of the last line that are still ready."""
    if not len(rows["line"]):
        return [], rows
    rows = _without_repetitions(rows)
    count = len(rows["line"])
    changes = np.flatnonzero(np.diff(rows["line"])) + 1
    first_of_line = np.concatenate([[0], changes])
    end_of_line = np.concatenate([changes, [count]])
    line = np.repeat(np.arange(len(first_of_line)), end_of_line - first_of_line)

    # The intervals: [start, end) of rows during which the job of row `of` was ready.
    ending = np.flatnonzero(rows["kind"] & ENDS)
    start = _find(rows["position"], line, rows["before_position"][ending], line[ending], first_of_line, end_of_line)
    still_ready = _still_ready(rows, line, ending, start)
    # A job that was ready before and after an event may have got another priority with it. Its place was that of the
    # row before. If that row is unknown, the interval is empty.
    changed = np.flatnonzero(rows["kind"][ending] & BEGINS)
    before = start[changed] - 1
    known = (before >= 0) & (rows["position"][before] == rows["before_position"][ending[changed]])
    known &= line[before] == line[ending[changed]]
    place_of = ending.copy()
    place_of[changed[known]] = before[known]
    start[changed[~known]] = ending[changed[~known]]
    of = np.concatenate([place_of, still_ready])
    start = np.concatenate([start, still_ready + 1])
    end = np.concatenate([ending, end_of_line[line[still_ready]]])
    found = _overtaken(rows, line, of, start, end)
    last = still_ready[line[still_ready] == line[-1]]
    carried = {name: values[last] for name, values in rows.items()}
    carried["kind"] = np.full(len(last), BEGINS)
    return found, carried


def _without_repetitions(rows: Rows) -> Rows:
    """Drop rows that are there more than once. Another promise is about them."""
    new = np.concatenate([[True], (np.diff(rows["position"]) != 0) | (np.diff(rows["line"]) != 0)])
    return rows if new.all() else {name: values[new] for name, values in rows.items()}


def _find(positions: Any, line: Any, wanted: Any, wanted_line: Any, first: Any, end: Any) -> Any:
    """Return for each wanted position of a line the index of the first row behind it, within the line."""
    least = positions.min()
    width = positions.max() - least + 2
    # One number has the line and the position, so that one search in a sorted array finds both.
    there = line * width + (positions - least + 1)
    asked = wanted_line * width + np.clip(wanted - least + 1, 0, None)
    return np.clip(np.searchsorted(there, asked, side="right"), first[wanted_line], end[wanted_line])


def _still_ready(rows: Rows, line: Any, ending: Any, start: Any) -> Any:
    """Return the rows that made jobs ready which no later row ended."""
    ready = (rows["kind"] & BEGINS).astype(bool)
    before = start - 1
    # The row that made the job ready is directly before the interval, unless it is not among these rows.
    known = (before >= 0) & (rows["position"][before] == rows["before_position"][ending])
    known &= line[before] == line[ending]
    ready[before[known]] = False
    return np.flatnonzero(ready)


def _overtaken(rows: Rows, line: Any, of: Any, start: Any, end: Any) -> list[Found]:
    """Return the takes within the intervals that have a greater place than the job of the interval."""
    place = _places(rows)
    taken = np.where(rows["kind"] & TAKES, place, -1)
    greatest = np.full(len(of), -1, dtype=np.int64)
    length = end - start
    level = np.full(len(of), -1)
    level[length > 0] = np.log2(length[length > 0]).astype(np.int64)
    for k in range(int(level.max(initial=-1)) + 1):
        if k:
            half = 1 << (k - 1)
            taken = np.maximum(taken[:-half], taken[half:])
        asked = np.flatnonzero(level == k)
        greatest[asked] = np.maximum(taken[start[asked]], taken[end[asked] - (1 << k)])
    wrong = np.flatnonzero(greatest > place[of])
    if not len(wrong):
        return []
    return _describe(rows, line, place, of[wrong], start[wrong], end[wrong], greatest[wrong])


def _places(rows: Rows) -> Any:
    """Return the rank of each row by (priority, order). Rows of one job have equal ranks."""
    if (rows["priority"] == rows["priority"][0]).all():
        _, place = np.unique(rows["order"], return_inverse=True)
        return place
    pairs = np.lexsort((rows["order"], rows["priority"]))
    order, priority = rows["order"][pairs], rows["priority"][pairs]
    steps = np.concatenate([[0], ((np.diff(order) != 0) | (np.diff(priority) != 0)).cumsum()])
    place = np.empty(len(pairs), dtype=np.int64)
    place[pairs] = steps
    return place


def _describe(rows: Rows, line: Any, place: Any, overtaken: Any, start: Any, end: Any, greatest: Any) -> list[Found]:
    """Return one row for each wrong take: the take itself, and the first of the jobs that it overtook."""
    found: dict[int, Found] = {}
    first_jobs = np.lexsort((place[overtaken], greatest, line[overtaken]))
    newest = (-1, -1)
    for at in first_jobs.tolist():
        job, its_place = int(overtaken[at]), int(greatest[at])
        if (int(line[job]), its_place) == newest:
            continue
        newest = (int(line[job]), its_place)
        within = slice(int(start[at]), int(end[at]))
        take = within.start + int(np.argmax((rows["kind"][within] & TAKES > 0) & (place[within] == its_place)))
        since = rows["position"][job] if rows["kind"][job] & BEGINS else rows["before_position"][job]
        what = f"the job was taken before a job that comes first and was ready since position {since}"
        found[take] = (int(rows["n"][take]), int(rows["position"][take]), what)
    return list(found.values())


def _rows_of(batch: pa.RecordBatch) -> Rows:
    return {name: batch.column(name).to_numpy() for name in COLUMNS}


def _empty() -> Rows:
    return {name: np.empty(0, dtype=np.int64) for name in COLUMNS}


def _joined(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def _result(found: list[Found]) -> pa.RecordBatch:
    columns = zip(*found, strict=True)
    types = (pa.int32(), pa.int64(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["n", "position", "what"])
