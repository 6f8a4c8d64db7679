"""What was erased from a lake: the record that lets an audit distinguish erased events from lost ones.

The record has numbers of events, positions and days, but nothing of the erased jobs. A row is written before anything
is erased. The counter `penstock/forgotten` is set after everything was erased, so an interrupted erasure is recognised.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from penstock.lake.files import read_table, write_table
from penstock.lake.lake import Lake
from penstock.lake.tables import FORGOTTEN

_COMPLETE: Final = "penstock/forgotten"


def records(lake: Lake) -> list[dict[str, Any]]:
    """Return all erasures, the oldest first."""
    rows = read_table(lake.place, FORGOTTEN, lake.log(FORGOTTEN).files).to_pylist()
    return sorted(rows, key=lambda row: (row["number"], row["node"]))


def forgotten_events(lake: Lake) -> int:
    """Return how many events were erased."""
    return sum(row["forgotten"] or 0 for row in lake.coverage())


def kept_positions(lake: Lake) -> dict[str, int]:
    """Return for each node the first position that was kept when the oldest days were erased."""
    found: dict[str, int] = {}
    for row in records(lake):
        found[row["node"]] = max(found.get(row["node"], 0), row["until"])
    return {node: position for node, position in found.items() if position}


def first_kept_day(lake: Lake) -> str:
    """Return the first day that was kept when the oldest days were erased, or an empty text."""
    return max((row["day"] or "" for row in records(lake)), default="")


def interrupted_days(lake: Lake) -> set[str]:
    """Return the days that an interrupted erasure has not computed again."""
    complete = lake.log(FORGOTTEN).counter(_COMPLETE)
    return {day for row in records(lake) if row["number"] > complete for day in row["days"].split()}


def begin_erasure(lake: Lake, kind: str, nodes: list[dict[str, Any]], days: list[str]) -> None:
    """Record an erasure. `nodes` has for each node the fields `node`, `until`, `day` and `events`."""
    number = 1 + max((row["number"] for row in records(lake)), default=0)
    same = {"number": number, "time": datetime.now(UTC), "kind": kind, "days": " ".join(days)}
    rows = [{**same, **each} for each in nodes]
    if rows:
        found = pa.Table.from_pylist(rows, FORGOTTEN.arrow)
        lake.log(FORGOTTEN).commit(write_table(lake.place, FORGOTTEN, found, 0))


def end_erasure(lake: Lake) -> None:
    """Record that all erasures are complete."""
    number = max((row["number"] for row in records(lake)), default=0)
    if number > lake.log(FORGOTTEN).counter(_COMPLETE):
        lake.log(FORGOTTEN).commit(counters={_COMPLETE: number})
