"""Gaps: positions of a log that were deleted before the lake read them.

What happened to the open jobs in a gap is not known. So levels start again after it, as in a new lake: a job counts
from its first event after the gap. For this, `gold/flows` has rows at the last position of each gap, which subtract the
numbers of jobs before it. No event has this position. Without these rows, jobs that ended in or after the gap would
always count.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.delta import DataFile
from penstock.lake.files import read_table, write_table
from penstock.lake.forgotten import kept_positions
from penstock.lake.lake import Lake
from penstock.lake.span import Span
from penstock.lake.tables import EVENTS, FLOWS
from penstock.pipeline.coverage import spans

_STATES: Final = ("ready", "taken", "delayed", "buried", "kept")
_COLUMNS: Final = ["tube", "minute", "node", "position", "date", *_STATES]


def gaps(lake: Lake) -> list[Span]:
    """Return the gaps of all nodes, in order of their positions."""
    found = pairwise(spans(lake.coverage()))
    return [Span(one.node, one.end, other.start) for one, other in found if one.node == other.node]


def follows_a_gap(lake: Lake, files: Collection[DataFile]) -> bool:
    """Return whether new files of events may have the first events of a node after a gap, or after its beginning."""
    new = {file.path for file in files}
    digested = [file.span for file in lake.files(EVENTS) if file.path not in new]
    for span in {file.span for file in files}:
        if span is None or not any(
            other is None or (other.node == span.node and other.end > lake.begin(span.node)) for other in digested
        ):
            return True
    return False


def closing_rows(lake: Lake, written: list[DataFile], turn: int) -> list[DataFile]:
    """Write rows of `gold/flows` that subtract the levels before each gap. Return their files.

    `written` are new files of `gold/flows` that are not committed yet.
    """
    # When the oldest days are erased, the levels that remain are those after the gaps in these days.
    kept = kept_positions(lake)
    found = [gap for gap in gaps(lake) if gap.end > kept.get(gap.node, 0)]
    if not found:
        return []
    flows = read_table(lake.place, FLOWS, [*lake.files(FLOWS), *written], columns=_COLUMNS)
    rows: list[dict[str, Any]] = []
    for gap in found:
        rows += _closing(flows, rows, gap)
    return write_table(lake.place, FLOWS, pa.Table.from_pylist(rows, FLOWS.arrow), turn)


def _closing(flows: pa.Table, added: list[dict[str, Any]], gap: Span) -> list[dict[str, Any]]:
    """Return the rows that make the levels of a node zero at the end of a gap. `added` are those of earlier gaps."""
    of_node = flows.filter(pc.equal(flows["node"], gap.node))
    # The closing rows have the minute of the first event after the gap. Rows that already close it have the same one.
    after = of_node.filter(pc.greater_equal(of_node["position"], gap.end - 1)).sort_by("position")
    if not len(after):
        return []
    before = of_node.filter(pc.less(of_node["position"], gap.end))
    mine = [row for row in added if row["node"] == gap.node]
    before = pa.concat_tables([before, pa.Table.from_pylist(mine, before.schema)])
    sums = before.group_by("tube").aggregate([(state, "sum") for state in _STATES]).to_pylist()
    first = after.slice(0, 1).to_pylist()[0]
    same = {name: first[name] for name in ("minute", "date", "node")}
    return [
        {
            **{**same, "tube": row["tube"], "position": gap.end - 1, "ready_peak": 0, "taken_peak": 0},
            **{state: -row[f"{state}_sum"] for state in _STATES},
        }
        for row in sums
        if any(row[f"{state}_sum"] for state in _STATES)
    ]


def closing_days(lake: Lake, closed: Collection[Span]) -> set[str]:
    """Return the days that have rows for gaps that no longer exist."""
    if not closed:
        return set()
    flows = lake.read(FLOWS)
    places = {(gap.node, gap.end - 1) for gap in closed}
    rows = zip(flows["node"].to_pylist(), flows["position"].to_pylist(), flows["date"].to_pylist())
    return {str(day) for node, position, day in rows if (node, position) in places}
