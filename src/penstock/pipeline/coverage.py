"""Coverage: which positions of each log the lake has, and where history is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

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


def begins(lake: Lake, files: Iterable[DataFile] | None = None) -> list[tuple[str, int]]:
    """Return for each node, or each node of `files`, the position from which on the lake has all of its events."""
    known = None if files is None else [file.span for file in files]
    if known is None or None in known:
        # A file of an older version can have events of several nodes.
        nodes = {row["node"] for row in lake.coverage()}
    else:
        nodes = {span.node for span in known if span is not None}
    return sorted((node, lake.begin(node)) for node in nodes)


def judged_since(lake: Lake) -> dict[str, int]:
    """Return for each node the position from which on the lake has everything, except for jobs that were erased."""
    kept = kept_positions(lake)
    return {node: max(position, kept.get(node, 0)) for node, position in begins(lake)}


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
