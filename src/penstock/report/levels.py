"""Levels of tubes: how many jobs were ready, taken, delayed, buried and kept, computed from the table `flows`.

A row of `flows` is a group of consecutive events of a node. It has the change of each level in the group, and the peaks
of two levels inside the group, relative to its start. A level is the running sum of the changes over all nodes. The
peak of a group is the level before the group plus the peak inside it.

Within a minute, the order of the groups of different nodes is not known. They are added node by node. Levels at the end
of a minute are exact. The peak of a minute is exact for a tube whose jobs are on one node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.report.source import Table

STATES: Final = ("ready", "taken", "delayed", "buried", "kept")
PEAKS: Final = ("ready", "taken")  # The states whose peaks are recorded.

Opening = Mapping[str, Mapping[str, int]]  # By tube and state: the level before the first group.


def levels_of(flows: Table, opening: Opening, tubes: Collection[str]) -> dict[str, Table]:
    """Return for each of the tubes a table with a row for each group of events, in order.

    The columns are minute, the levels after the group (`ready`), and the peaks of the group (`ready_peak`).
    """
    wanted = flows.filter(pc.is_in(flows["tube"], pa.array(sorted(tubes), pa.string())))
    order = [(name, "ascending") for name in ("tube", "minute", "node", "position")]
    rows = wanted.take(pc.sort_indices(wanted, order))
    return {tube: _levels(part, opening.get(tube, {})) for tube, part in _by_tube(rows)}


def _by_tube(rows: Table) -> Iterator[tuple[str, Table]]:
    """Yield the rows of each tube. They are sorted by tube, so each part is a slice."""
    start = 0
    for run in pc.value_counts(rows["tube"]).to_pylist():
        yield run["values"], rows.slice(start, run["counts"])
        start += run["counts"]


def _levels(rows: Table, opening: Mapping[str, int]) -> Table:
    columns = {"minute": rows["minute"]}
    for state in STATES:
        after = pc.cumulative_sum(rows[state], start=opening.get(state, 0))
        columns[state] = after
        if state in PEAKS:
            before = pc.subtract(after, rows[state])
            columns[f"{state}_peak"] = pc.add(before, rows[f"{state}_peak"])
    return pa.table(columns)
