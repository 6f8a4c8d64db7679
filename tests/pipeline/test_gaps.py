"""Levels before and after a gap in the history, without Spark."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.limits import NEVER
from penstock.lake.delta import DataFile
from penstock.lake.files import write_table
from penstock.lake.forgotten import begin_erasure
from penstock.lake.lake import Lake
from penstock.lake.span import Span
from penstock.lake.tables import COVERAGE, FLOWS
from penstock.pipeline.coverage import parts_without_gaps
from penstock.pipeline.gaps import closing_days, closing_rows, follows_a_gap, gaps

NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
NODE = "a" * 40


def flow(position: int, tube: str = "mail", node: str = NODE, days: int = 0, **states: int) -> dict[str, Any]:
    minute = NOON + datetime.timedelta(days=days)
    zeros = dict.fromkeys(FLOWS.measures, 0)
    return {
        **zeros,
        **states,
        "tube": tube,
        "node": node,
        "position": position,
        "minute": minute,
        "date": minute.date(),
    }


def events_file(start: int, end: int) -> DataFile:
    return DataFile(f"date=2026-11-16/00000001-{NODE}-{start}-{end}-f.parquet", 100, 1, "2026-11-16")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a gap from position 10 to 19."""
    lake = Lake(tmp_path)
    with lake.writing():
        lake.create()
        blocks = [(NODE, 1, 5), (NODE, 5, 10), (NODE, 20, 30), ("b" * 40, 1, 5)]
        rows = [{"turn": 1, "node": node, "start": start, "end": end, "events": 1} for node, start, end in blocks]
        lake.set_facts(COVERAGE, 1, pa.Table.from_pylist(rows, COVERAGE.arrow))
        lake.commit_events(1, [events_file(1, 10)], {NODE: 30}, {NODE: 20})
        add(
            lake,
            flow(1, ready=5),
            flow(3, ready=-2, taken=2),
            flow(4, "done", ready=1),
            flow(5, "done", ready=-1),
            flow(20, days=1, taken=1),
            flow(21, days=1, ready=1),
            flow(2, node="b" * 40, ready=7),
        )
    return lake


def add(lake: Lake, *rows: dict[str, Any]) -> None:
    lake.log(FLOWS).commit(write_table(lake.place, FLOWS, pa.Table.from_pylist(list(rows), FLOWS.arrow), 1))


def close(lake: Lake) -> bool:
    """Add the closing rows to the lake. Return whether there were any."""
    files = closing_rows(lake, [], 1)
    if files:
        lake.log(FLOWS).commit(files)
    return bool(files)


def levels(lake: Lake, node: str = NODE) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in lake.read(FLOWS).to_pylist():
        if row["node"] == node:
            found.update({state: row[state] for state in ("ready", "taken")})
    return found


def test_levels_start_again_after_a_gap(lake: Lake) -> None:
    assert gaps(lake) == [Span(NODE, 10, 20)]
    assert close(lake)
    (row,) = [row for row in lake.read(FLOWS).to_pylist() if row["position"] == 19]
    assert (row["tube"], row["ready"], row["taken"]) == ("mail", -3, -2)
    assert (row["minute"], row["ready_peak"]) == (NOON + datetime.timedelta(days=1), 0)
    assert levels(lake) == {"ready": 1, "taken": 1}
    assert levels(lake, "b" * 40) == {"ready": 7, "taken": 0}
    assert not close(lake), "the gap is closed twice"


def test_levels_are_corrected_if_rows_before_the_gap_change(lake: Lake) -> None:
    close(lake)
    add(lake, flow(2, ready=-1))
    assert close(lake)
    assert levels(lake) == {"ready": 1, "taken": 1}


def test_a_gap_without_events_after_it_stays_open(lake: Lake) -> None:
    lake.log(FLOWS).commit((), lake.files(FLOWS, ["2026-11-17"]))
    assert not close(lake)


def test_a_gap_in_erased_days_changes_no_level(lake: Lake) -> None:
    lake.log(FLOWS).commit((), lake.files(FLOWS))
    add(lake, flow(0, ready=4))  # The level at the end of the erased days.
    add(lake, flow(26, days=2, ready=-1))
    begin_erasure(lake, "before", [{"node": NODE, "until": 25, "day": "2026-11-18", "events": 7}], [])
    assert not close(lake)
    assert levels(lake)["ready"] == 3


def test_the_day_with_the_rows_of_a_filled_gap_is_found(lake: Lake) -> None:
    close(lake)
    assert closing_days(lake, gaps(lake)) == {"2026-11-17"}
    assert closing_days(lake, []) == closing_days(lake, [Span(NODE, 40, 50)]) == set()


def test_only_the_first_events_after_a_gap_follow_it(lake: Lake) -> None:
    assert follows_a_gap(lake, [events_file(20, 25)])
    lake.commit_events(2, [events_file(20, 25)], {}, {})
    assert not follows_a_gap(lake, [events_file(25, 30)])


def test_an_event_belongs_to_the_part_of_the_history_around_it(lake: Lake) -> None:
    assert parts_without_gaps(lake, [events_file(20, 25)]) == [(NODE, 0, NEVER, 20)]
    parts = parts_without_gaps(lake, [events_file(1, 10), events_file(20, 25)])
    assert parts == [(NODE, 0, 20, 1), (NODE, 20, NEVER, 20), ("b" * 40, 0, NEVER, 1)]
    assert parts_without_gaps(lake, []) == []
