"""Forget: erases the oldest days, or all jobs of a tube, of a key, or with given ids.

Jobs are erased as a whole, with all events in all tubes, so what remains is a complete history of the other jobs. The
files of bronze that have such events are written again without them. Then their days of silver and gold are computed
again. The oldest days are erased by removing their files; only the numbers of open jobs remain, as one row of
`gold/flows` for each tube.

The digests in `bronze/coverage` are replaced by those of the remaining events, because a digest is a fact about the
erased data, too. If a block did not match its digests before, it keeps them, so the audit still reports it. The record
of an erasure is described in lake/forgotten.py. The old files exist until `vacuum` deletes them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.delta import DataFile, TableLog
from penstock.lake.errors import PipelineError
from penstock.lake.files import FileWriter, read_file, write_table
from penstock.lake.forgotten import begin_erasure, end_erasure, interrupted_days
from penstock.lake.lake import Lake
from penstock.lake.place import Place
from penstock.lake.span import Span
from penstock.lake.tables import COVERAGE, DERIVED, EVENTS, FLOWS, SESSIONS, TUBES, VERDICTS, Table, gold_table
from penstock.pipeline.compact import groups_of
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.run import ProgressCallback, no_progress
from penstock.pipeline.steps import after_step
from penstock.pipeline.tasks import run_tasks
from penstock.pipeline.turn import prepare, rebuild, update_derived
from penstock.pipeline.user_tables import UserTable
from penstock.pipeline.verify import Expected, blocks_in, bodies_digest, files_with, may_have, rows_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The ids of the jobs to erase, by node, in order.
Jobs = dict[str, Any]

# Blocks of coverage per task.
_BLOCKS = 128


@dataclass(frozen=True)
class Selection:
    """What to erase: the days before a date, a tube, a key of a tube, or some jobs."""

    before: date | None = None
    tube: str | None = None
    keys: tuple[bytes, ...] = ()  # Different ways to read the key that the user has named.
    jobs: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> str:
        return "before" if self.before else "job" if self.jobs else "key" if self.keys else "tube"


@dataclass
class Plan:
    """What an erasure removes."""

    events: int = 0
    jobs: int | None = None  # None: whole days are erased, and their jobs are not counted.
    files: list[DataFile] = field(default_factory=list)  # Files of bronze that have such events.
    erased: Jobs = field(default_factory=dict)
    blocks: set[tuple[str, int]] = field(default_factory=set)  # Node and start of the affected blocks of coverage.

    @property
    def days(self) -> list[str]:
        return sorted({file.day for file in self.files})


def plan(spark: SparkSession, lake: Lake, selection: Selection) -> Plan:
    """Return what would be erased."""
    with as_pipeline_error():
        return _plan_days(lake, selection.before) if selection.before else _plan_jobs(spark, lake, selection)


def forget(
    spark: SparkSession,
    lake: Lake,
    selection: Selection,
    on_progress: ProgressCallback = no_progress,
    users: Sequence[UserTable] = (),
) -> Plan:
    """Erase the selected events from all tables. Return what was erased. `users` are the tables of users.

    Data of the events stays in files that are no longer used, until `vacuum` deletes them.
    """
    with lake.writing(), as_pipeline_error():
        lake.require_exists()
        prepare(spark, lake, users)
        # Silver and gold recognise new events by the names of files, and files are written again.
        update_derived(spark, lake, users=users)
        on_progress("finding events", 0, 0)
        found = plan(spark, lake, selection)
        on_progress("erasing events", 0, found.events)
        days = sorted({*found.days, *interrupted_days(lake)})
        if not selection.before:
            _require_queries(lake, days, users)
        coverage, nodes = _renew_coverage(spark, lake, found, selection)
        begin_erasure(lake, selection.kind, nodes, [] if selection.before else days)
        after_step("before bronze/coverage")
        _replace_rows(lake, COVERAGE, coverage)
        after_step("before bronze/events")
        written = [] if selection.before else _rewrite(spark, lake, found)
        if found.files:
            lake.log(EVENTS).commit(written, found.files)
        after_step("after bronze/events")
        _erase_facts(lake, selection, days)
        on_progress("erasing events", found.events, found.events)
        if selection.before:
            _drop_days(lake, selection.before)
        else:
            rebuild(spark, lake, days, lambda done, total: on_progress("silver and gold", done, total), users)
        after_step("before the end")
        end_erasure(lake)
        lake.close_turn()
    return found


def _require_queries(lake: Lake, days: list[str], users: Sequence[UserTable]) -> None:
    """Raise PipelineError if a table of a user must be computed again and its query is not known."""
    known = {each.table.path for each in users}
    lacking = [each.name for each in lake.user_tables() if each.path not in known and lake.files(each, days)]
    if lacking:
        raise PipelineError(
            f"the tables {', '.join(lacking)} must be computed again; name the folder of their queries with --tables"
        )


# Planning


def _plan_days(lake: Lake, before: date) -> Plan:
    files = [file for file in lake.files(EVENTS) if file.day < str(before)]
    found = Plan(sum(file.rows for file in files), None, files)
    for row in lake.coverage():
        span = Span(row["node"], row["start"], row["end"])
        if row["events"] and any(may_have(file, span) for file in files):
            found.blocks.add((row["node"], row["start"]))
    return found


def _plan_jobs(spark: SparkSession, lake: Lake, selection: Selection) -> Plan:
    if not lake.files(EVENTS):
        return Plan(jobs=0)
    place, groups = lake.place, groups_of(lake.files(EVENTS))
    jobs: Jobs = {}
    if selection.jobs:
        for node, job in selection.jobs:
            jobs.setdefault(_node(lake, node), []).append(job)
        jobs = {node: np.unique(numbers) for node, numbers in jobs.items()}
    else:
        tube, keys = selection.tube or "", selection.keys
        some = run_tasks(spark, lambda group: jobs_in(place, group, tube, keys), groups)
        jobs = {
            node: np.unique(np.concatenate([each[node] for each in some if node in each]))
            for node in {node for each in some for node in each}
        }
    found = Plan(jobs=sum(map(len, jobs.values())), erased=jobs)
    if jobs:
        starts = {node: np.array([row["start"] for row in lake.coverage() if row["node"] == node]) for node in jobs}
        name = selection.tube if selection.kind == "tube" else None
        for matches in run_tasks(spark, lambda group: matches_in(place, group, jobs, starts, name), groups):
            for file, events, blocks in matches:
                found.files.append(file)
                found.events += events
                found.blocks |= blocks
    return found


def _node(lake: Lake, text: str) -> str:
    """Return the id of the only node that begins with a text."""
    nodes = {row["node"] for row in lake.coverage() if row["node"].startswith(text)}
    if len(nodes) != 1:
        known = ", ".join(sorted({row["node"][:8] for row in lake.coverage()}))
        raise PipelineError(f"{text!r} is {'no node' if not nodes else 'more than one node'} of {lake}; it has {known}")
    return str(nodes.pop())


def jobs_in(place: Place, files: list[DataFile], tube: str, keys: Sequence[bytes]) -> Jobs:
    """Return the jobs that were in a tube, or had one of the keys in it. This runs in a Spark task."""
    only = pc.field("tube") == tube
    if keys:
        only &= pc.field("key").isin(pa.array(keys, pa.binary()))
    parts = [read_file(place, EVENTS, file, only, ["node", "job"]) for file in files]
    found = pa.concat_tables(parts)
    return {
        node: np.unique(found.filter(pc.equal(found["node"], node))["job"].to_numpy())
        for node in pc.unique(found["node"]).to_pylist()
    }


def matches_in(
    place: Place, files: list[DataFile], jobs: Jobs, starts: dict[str, Any], tube: str | None = None
) -> list[tuple[DataFile, int, set[tuple[str, int]]]]:
    """Return the files with events of jobs, the number of these events, and their blocks. Runs in a Spark task.

    Files without such events are also found if they have the name of the tube.
    """
    found = []
    for file in files:
        rows = read_file(place, EVENTS, file, None, ["node", "job", "position"])
        rows = rows.filter(_of_jobs(rows, jobs))
        blocks: set[tuple[str, int]] = set()
        for node in pc.unique(rows["node"]).to_pylist():
            positions = rows.filter(pc.equal(rows["node"], node))["position"].to_numpy()
            places = np.unique(np.searchsorted(starts[node], positions, "right")) - 1
            blocks |= {(node, int(starts[node][at])) for at in places if at >= 0}
        if len(rows) or (tube is not None and _has_name(place, file, tube)):
            found.append((file, len(rows), blocks))
    return found


def _has_name(place: Place, file: DataFile, tube: str) -> bool:
    """Return whether the dictionaries of a file have the name of a tube. They may have names that no row uses."""
    with place.sub(EVENTS.path).files().open_input_file(file.path) as stored:
        names = pq.ParquetFile(stored, read_dictionary=["tube"]).read(columns=["tube"])["tube"]
    return any(tube in chunk.dictionary.to_pylist() for chunk in names.chunks if pa.types.is_dictionary(chunk.type))


def _of_jobs(rows: pa.Table, jobs: Jobs) -> Any:
    """Return for each row whether it is an event of one of the jobs."""
    found = pa.chunked_array([pa.repeat(pa.scalar(False), len(rows))])
    for node, numbers in jobs.items():
        of_node = pc.equal(rows["node"], node)
        found = pc.or_(found, pc.and_(of_node, pc.is_in(rows["job"], value_set=pa.array(numbers, pa.int64()))))
    return found


# Bronze


def _rewrite(spark: SparkSession, lake: Lake, found: Plan) -> list[DataFile]:
    place, jobs = lake.place, found.erased
    written = run_tasks(spark, lambda file: without_jobs(place, file, jobs), found.files)
    return [file for file in written if file is not None]


def without_jobs(place: Place, file: DataFile, jobs: Jobs) -> DataFile | None:
    """Write the events of a file that do not belong to the jobs to a new file. This runs in a Spark task."""
    writer = FileWriter(place, EVENTS, file.day, 0, file.span)
    rows = 0
    with place.sub(EVENTS.path).files().open_input_file(file.path) as stored:
        # Not as dictionaries, because a dictionary would keep the values of erased rows.
        found = pq.ParquetFile(stored)
        for group in range(found.num_row_groups):
            events = found.read_row_group(group)
            kept = events.filter(pc.invert(_of_jobs(events, jobs)))
            rows += len(kept)
            if len(kept):
                writer.write(kept)
    if rows:
        return writer.close()
    writer.discard()
    return None


@dataclass(frozen=True)
class _Renewed:
    """A block of coverage after the erasure."""

    node: str
    start: int
    intact: bool  # Whether the block matched its digests before.
    events: int
    rows_digest: bytes
    bodies_digest: bytes
    last_erased: int  # The greatest erased position, or -1.


def _renew_coverage(
    spark: SparkSession, lake: Lake, found: Plan, selection: Selection
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of coverage after the erasure, and for each node what is erased from it."""
    rows = lake.coverage()
    affected = [row for row in rows if (row["node"], row["start"]) in found.blocks]
    renewed = {(each.node, each.start): each for each in _renew_blocks(spark, lake, affected, selection, found)}
    nodes: dict[str, dict[str, Any]] = {}
    for row in affected:
        new = renewed[row["node"], row["start"]]
        fields = {"node": row["node"], "until": 0, "day": None, "events": 0}
        node = nodes.setdefault(row["node"], fields)
        node["events"] += row["events"] - new.events
        if selection.before:
            node["until"] = max(node["until"], new.last_erased + 1)
            node["day"] = str(selection.before)
        if new.intact and new.events < row["events"]:
            row["forgotten"] = (row["forgotten"] or 0) + row["events"] - new.events
            row["events"] = new.events
            row["rows_digest"] = None if row["rows_digest"] is None else new.rows_digest
            row["bodies_digest"] = None if row["bodies_digest"] is None else new.bodies_digest
    return _joined(rows), list(nodes.values())


def _renew_blocks(
    spark: SparkSession, lake: Lake, affected: list[dict[str, Any]], selection: Selection, found: Plan
) -> list[_Renewed]:
    names = ("node", "start", "end", "events", "rows_digest", "bodies_digest")
    blocks = [Expected(*(row[name] for name in names)) for row in affected]
    # A block whose events are all in erased days need not be read.
    erased_files = {file.path for file in found.files} if selection.before else set()
    kept_files = [file for file in lake.files(EVENTS) if file.path not in erased_files]
    empty = pa.Table.from_pylist([], EVENTS.file_schema)
    nothing = rows_digest(empty, np.zeros(0)), bodies_digest(empty, np.zeros(0))
    renewed, read = [], []
    for block in blocks:
        if files_with(kept_files, [block]):
            read.append(block)
        else:
            renewed.append(_Renewed(block.node, block.start, True, 0, *nothing, block.end - 1))
    place, jobs, before = lake.place, found.erased, selection.before
    tasks = []
    for first in range(0, len(read), _BLOCKS):
        some = read[first : first + _BLOCKS]
        tasks.append((some, files_with(lake.files(EVENTS), some)))
    for part in run_tasks(spark, lambda task: renew(place, *task, jobs, before), tasks):
        renewed += part
    return renewed


def renew(
    place: Place, blocks: list[Expected], files: list[DataFile], jobs: Jobs, before: date | None
) -> list[_Renewed]:
    """Compute the digests of blocks without the erased events. This runs in a Spark task."""
    found = []
    for block, events, rows in blocks_in(place, blocks, files):
        intact = len(events) == block.events and block.rows_digest in (None, rows_digest(events, rows))
        if block.bodies_digest is not None:
            intact = intact and bodies_digest(events, rows) == block.bodies_digest
        erased = _of_jobs(events, jobs) if before is None else pc.less(events["time"], _midnight(before))
        gone = events.filter(erased)["position"]
        kept = pc.invert(erased)
        some, some_rows = events.filter(kept).combine_chunks(), rows[np.asarray(kept.to_numpy(), dtype=bool)]
        last = pc.max(gone).as_py() if len(gone) else -1
        digests = rows_digest(some, some_rows), bodies_digest(some, some_rows)
        found.append(_Renewed(block.node, block.start, intact, len(some), *digests, last))
    return found


def _midnight(day: date) -> Any:
    return pa.scalar(datetime.combine(day, time(), UTC), EVENTS.arrow.field("time").type)


def _joined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring blocks of which nothing remains, so that coverage does not grow for ever."""
    found: list[dict[str, Any]] = []
    for row in rows:
        last = found[-1] if found else None
        if (
            last
            and row["node"] == last["node"]
            and row["start"] == last["end"]
            and _is_erased(row)
            and _is_erased(last)
        ):
            found[-1] = {**row, "start": last["start"], "forgotten": row["forgotten"] + last["forgotten"]}
        else:
            found.append(row)
    return found


def _is_erased(row: dict[str, Any]) -> bool:
    return bool(row["forgotten"]) and not row["events"]


# The other tables


def _replace_rows(lake: Lake, table: Table, rows: list[dict[str, Any]]) -> None:
    """Replace all rows of a small table."""
    log = lake.log(table)
    log.commit(write_table(lake.place, table, pa.Table.from_pylist(rows, table.arrow), 0), log.files)


def _erase_facts(lake: Lake, selection: Selection, days: Collection[str]) -> None:
    """Erase names of tubes and sessions, the result of the last audit, and the report, which quote events."""
    if selection.kind == "tube":
        rows = [row for row in lake.read(TUBES).to_pylist() if row["tube"] != selection.tube]
        _replace_rows(lake, TUBES, [{**row, "policy": _without_name(row["policy"], selection.tube)} for row in rows])
        _drop_levels(lake, selection.tube, days)
    if selection.before:
        _erase_sessions(lake, str(selection.before))
    verdicts = TableLog(lake.place, VERDICTS)
    if verdicts.files:
        verdicts.commit((), verdicts.files)
    if lake.place.is_local:
        Path(lake.place.uri, "report.html").unlink(missing_ok=True)


def _without_name(policy: str | None, tube: str | None) -> str | None:
    """Return a policy without the name of a tube, for example as the tube for dead letters."""
    if policy is None:
        return None
    fields = json.loads(policy)
    # A retry policy is a text like "3x then move NAME".
    named = {name for name, value in fields.items() if isinstance(value, str) and f" {value}".endswith(f" {tube}")}
    return json.dumps({name: "" if name in named else value for name, value in fields.items()})


def _erase_sessions(lake: Lake, day: str) -> None:
    """Erase the sessions that no remaining row of gold/workers names."""
    workers = lake.read(gold_table("workers"), [each for each in lake.days(gold_table("workers")) if each >= day])
    known = set(zip(workers["node"].to_pylist(), workers["session"].to_pylist()))
    rows = lake.read(SESSIONS).to_pylist()
    _replace_rows(lake, SESSIONS, [row for row in rows if (row["node"], row["session"]) in known])


def _drop_levels(lake: Lake, tube: str | None, days: Collection[str]) -> None:
    """Erase a tube from levels of days without its events: at the beginning of the lake, or at the end of a gap.

    `days` are the days that are computed again.
    """
    others = [day for day in lake.days(FLOWS) if day not in days]
    rows = lake.read(FLOWS, others)
    kept = rows.filter(pc.not_equal(rows["tube"], tube))
    if len(kept) < len(rows):
        lake.log(FLOWS).commit(write_table(lake.place, FLOWS, kept, 0), lake.files(FLOWS, others))


def _drop_days(lake: Lake, before: date) -> None:
    """Remove the oldest days of silver and gold."""
    for table in (*DERIVED, *lake.user_tables()):
        files = [file for file in lake.files(table) if file.day < str(before)]
        if files:
            after_step(f"before {table.path}")
            opening = _opening(lake, files, before) if table is FLOWS else []
            lake.log(table).commit(opening, files)


def _opening(lake: Lake, files: list[DataFile], before: date) -> list[DataFile]:
    """Write the numbers of open jobs at the end of the removed days, one row for each node and tube."""
    states = ("ready", "taken", "delayed", "buried", "kept")
    rows = lake.read(FLOWS, {file.day for file in files})
    sums = rows.group_by(["tube", "node"]).aggregate([(name, "sum") for name in states]).to_pylist()
    day = before - timedelta(days=1)
    minute = datetime.combine(day, time(23, 59), UTC)
    opening = []
    for row in sums:
        levels = {name: row[f"{name}_sum"] for name in states}
        if any(levels.values()):
            peaks = {"ready_peak": max(0, levels["ready"]), "taken_peak": max(0, levels["taken"])}
            place = {"tube": row["tube"], "node": row["node"], "minute": minute, "position": 0, "date": day}
            opening.append({**place, **levels, **peaks})
    return write_table(lake.place, FLOWS, pa.Table.from_pylist(opening, FLOWS.arrow), 0)
