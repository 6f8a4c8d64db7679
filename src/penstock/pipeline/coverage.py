"""Coverage: which positions of each log the lake has, and where history is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from penstock.core.limits import NEVER
from penstock.lake.delta import DataFile
from penstock.lake.forgotten import kept_positions
from penstock.lake.lake import Lake
from penstock.lake.span import Span


def spans(rows: Iterable[dict[str, Any]]) -> list[Span]:
    """Join the blocks of `Lake.coverage` to spans that were read. Two spans of a node have a gap between them."""
    found: list[Span] = []
    for node, blocks in groupby(rows, key=lambda row: row["node"]):
        for block in blocks:
            last = found[-1] if found else None
            if last is not None and last.node == node and block["start"] <= last.end:
                found[-1] = Span(node, last.start, max(last.end, block["end"]))
            else:
                found.append(Span(node, block["start"], block["end"]))
    return found


def parts_without_gaps(lake: Lake, files: Iterable[DataFile]) -> list[tuple[str, int, int, int]]:
    """Return for each node of `files` the parts of its history that have no gaps.

    A part is the node, the range of positions that belong to the part (from, up to), and the first position that was
    read. Ranges have no holes, so that every event belongs to a part.
    """
    last = {}
    for file in files:
        if file.span is None or file.span.start < lake.begin(file.span.node):
            # The file may have events before the last gap, or of several nodes.
            return _all_parts(lake)
        last[file.span.node] = lake.begin(file.span.node)
    return [(node, 0, NEVER, begin) for node, begin in sorted(last.items())]


def _all_parts(lake: Lake) -> list[tuple[str, int, int, int]]:
    found = []
    for node, known in groupby(spans(lake.coverage()), key=lambda span: span.node):
        starts = [span.start for span in known]
        found += [(node, *part) for part in zip([0, *starts[1:]], [*starts[1:], NEVER], starts)]
    return found


def judged_since(lake: Lake) -> dict[str, int]:
    """Return for each node the position from which on the lake has everything, except for jobs that were erased."""
    kept = kept_positions(lake)
    nodes = sorted({row["node"] for row in lake.coverage()})
    return {node: max(lake.begin(node), kept.get(node, 0)) for node in nodes}


def without_erased(rows: Iterable[dict[str, Any]], span: Span) -> list[Span]:
    """Return the parts of a span in which no event was erased, and whose events have all columns."""
    found = [span]
    for row in rows:
        last = found[-1]
        differs = row["forgotten"] or row["rows_digest"] is None
        if row["node"] == span.node and differs and row["end"] > last.start and row["start"] < last.end:
            found.pop()
            found += [Span(span.node, last.start, row["start"]), Span(span.node, row["end"], last.end)]
    return [each for each in found if each.start < each.end]


def missing(known: Iterable[Span], node: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a node's positions from `start` up to `end` that no span covers."""
    for span in (each for each in known if each.node == node):
        if span.end <= start:
            continue
        if span.start >= end:
            break
        if span.start > start:
            yield start, span.start
        start = max(start, span.end)
    if start < end:
        yield start, end
