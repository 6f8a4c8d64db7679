"""Bronze: copies the logs of all nodes into the lake, each event exactly once.

A Spark task reads a range of positions of one node's log and writes the events to files. The rows do not pass through
Java, because that would triple the cost. The driver commits the files together with the end of the ranges, so an
interrupted attempt leaves nothing behind. The task also records the digests of the ranges, the lives of tubes and the
names of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.policy import TubePolicy
from penstock.journal.history.block import BLOCK_ROWS
from penstock.journal.tube_fields import policy_json
from penstock.lake.delta import DataFile
from penstock.lake.files import ROW_GROUP_ROWS, FileWriter
from penstock.lake.lake import Lake
from penstock.lake.place import Place
from penstock.lake.span import Span
from penstock.lake.tables import COVERAGE, EVENTS, SESSIONS, TUBES
from penstock.pipeline.steps import after_step
from penstock.pipeline.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.events.ranges import EventsRange

# Positions per task. A task costs about a second of CPU, and its events fit in memory.
POSITIONS_A_TASK: Final = 128 * BLOCK_ROWS

# Positions per turn: less is lost in a crash, and the fixed cost of a turn is still small.
POSITIONS_A_TURN: Final = 8_000_000


@dataclass
class TaskFacts:
    """What one task has written, and what it has found in the log."""

    node: str
    files: list[DataFile] = field(default_factory=list)
    coverage: list[dict[str, Any]] = field(default_factory=list)
    tubes: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)


def add_turn(
    spark: SparkSession,
    lake: Lake,
    ranges: Sequence[EventsRange],
    bodies: bool,
    ends: dict[str, int],
    begins: dict[str, int],
    policies: Mapping[str, Mapping[str, TubePolicy]],
) -> int:
    """Copy ranges of logs into bronze in one turn. Return the number of events.

    `ends` and `begins` are the new ends and beginnings of the nodes' histories. `policies` are the present policies of
    tubes, by node and name. They are used for tubes that were made before the first position of the lake.
    """
    turn, place = lake.begin_turn(), lake.place
    facts = run_tasks(spark, lambda each: copy_range(place, each, bodies, turn), list(ranges))
    for node, by_name in policies.items():
        facts.append(TaskFacts(node, tubes=_seen_tubes(node, ends[node], by_name, facts)))
    for table, name in ((COVERAGE, "coverage"), (TUBES, "tubes"), (SESSIONS, "sessions")):
        rows = [{**row, "turn": turn, "node": task.node} for task in facts for row in getattr(task, name)]
        after_step(f"before {table.path}")
        lake.set_facts(table, turn, pa.Table.from_pylist(rows, table.arrow))
    files = [file for task in facts for file in task.files]
    after_step("before bronze/events")
    lake.commit_events(turn, files, ends, begins)
    after_step("after bronze/events")
    return sum(file.rows for file in files)


def _seen_tubes(
    node: str, position: int, policies: Mapping[str, TubePolicy], facts: list[TaskFacts]
) -> list[dict[str, Any]]:
    """Return rows with the present policies of tubes whose policy is not in the log."""
    rows = [row for task in facts if task.node == node for row in task.tubes]
    numbers = {row["tube"]: row["tube_number"] for row in rows}
    known = {row["tube_number"] for row in rows if row["policy"] is not None}
    now = datetime.now(UTC)
    return [
        {
            **{"tube_number": numbers[name], "tube": name, "position": position, "time": now},
            **{"event": "seen", "policy": policy_json(policy)},
        }
        for name, policy in policies.items()
        if name in numbers and numbers[name] not in known
    ]


def copy_range(place: Place, range: EventsRange, bodies: bool, turn: int) -> TaskFacts:
    """Write the events of one range to files. This runs in a Spark task."""
    from penstock.pipeline.log_reader import LogReader

    reader = LogReader(range, bodies)
    facts = TaskFacts(range.node)
    writers: dict[str, FileWriter] = {}
    pending: list[pa.Table] = []
    for rows in reader.tables():
        pending.append(rows)
        if sum(map(len, pending)) >= ROW_GROUP_ROWS:
            _write(place, range, turn, writers, pending)
    _write(place, range, turn, writers, pending)
    facts.files = [writer.close() for writer in writers.values()]
    facts.coverage = reader.coverage()
    facts.tubes = reader.tubes()
    facts.sessions = reader.sessions()
    return facts


def _write(
    place: Place, range: EventsRange, turn: int, writers: dict[str, FileWriter], pending: list[pa.Table]
) -> None:
    """Write the pending rows to the files of their days."""
    if not pending:
        return
    rows = pa.concat_tables(pending)
    pending.clear()
    for day, some in _by_day(rows):
        if day not in writers:
            # Rows are in order of their positions. The last position of the day is not known yet.
            span = Span(range.node, some["position"][0].as_py(), range.end)
            writers[day] = FileWriter(place, EVENTS, day, turn, span)
        writers[day].write(some)


def _by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = pc.cast(rows["time"], pa.date32(), safe=False)
    ends = pc.min_max(days).as_py()
    if ends["min"] == ends["max"]:
        yield ends["min"].isoformat(), rows
        return
    for day in pc.unique(days):
        yield day.as_py().isoformat(), rows.filter(pc.equal(days, day))
