"""Creates and fills lakes without Spark."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.lake.files import write_table
from penstock.lake.lake import DIGEST, Lake
from penstock.lake.tables import COVERAGE, JOBS, SESSIONS, TUBES, gold_table
from penstock.pipeline.bronze import copy_range
from penstock.pipeline.source import Source

Rows = list[dict[str, Any]]

DAY = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)


def add_rows(lake: Lake, days: dict[str, dict[str, Rows]]) -> None:
    """Add rows by day and table in a turn. A table is one of gold, or jobs."""
    turn = lake.turn + 1
    lake.commit_events(turn, [], {}, {})
    for day, tables in days.items():
        for name, rows in tables.items():
            table = JOBS if name == JOBS.name else gold_table(name)
            dated = [{**row, "date": datetime.date.fromisoformat(day)} for row in rows]
            files = write_table(lake.place, table, pa.Table.from_pylist(dated, table.arrow), turn)
            lake.log(table).commit(files, (), {DIGEST: turn})


def make_lake(root: Path, days: dict[str, dict[str, Rows]]) -> Lake:
    """Return a new lake with these rows by day and table."""
    lake = Lake(root)
    with lake.writing():
        lake.create()
        add_rows(lake, days)
        lake.close_turn(lake.turn)
    return Lake(root)


def read_logs(lake: Lake, source: Source) -> int:
    """Copy the new events of a source into bronze, as a turn does. Return their number."""
    with lake.writing(), source.connected() as logs:
        lake.create()
        logs.check_continues(lake)
        heads = logs.heads()
        turn = lake.turn + 1
        facts = [copy_range(lake.place, each, True, turn) for each in logs.new_ranges(lake, heads)]
        for table, name in ((COVERAGE, "coverage"), (TUBES, "tubes"), (SESSIONS, "sessions")):
            rows = [{**row, "turn": turn, "node": task.node} for task in facts for row in getattr(task, name)]
            lake.set_facts(table, turn, pa.Table.from_pylist(rows, table.arrow))
        files = [file for task in facts for file in task.files]
        ends = {node: head.end for node, head in heads.items()}
        lake.commit_events(turn, files, ends, {node: head.first for node, head in heads.items()})
        return sum(file.rows for file in files)


def minutes(count: int, tube: str = "emails", **fields: int) -> Rows:
    """Return rows of the table rates, one per minute."""
    moments = [DAY + datetime.timedelta(minutes=number) for number in range(count)]
    return [
        {"tube": tube, "minute": moment, "puts": 0, "takes": 0, "acks": 0, "fails": 0, **fields} for moment in moments
    ]
