"""Converts a lake of an older version in place.

Versions 2 and 3 were a manifest (`_state/manifest.json`) and the files that it lists (`_state/files`). The folders of
the tables had links to these files. The files of bronze become files of the new table, mostly without being copied.
Their digests are computed from the events, so the audit notices later changes, but it cannot prove that the old lake
was complete. Silver and gold are computed again.

The manifest is deleted last. As long as it exists, other commands refuse the lake, and a repeated conversion continues.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.journal.history.block import BLOCK_ROWS
from penstock.lake.delta import DataFile
from penstock.lake.errors import BadLake, LakeInUse, NoLake, PipelineError
from penstock.lake.files import FileWriter
from penstock.lake.lake import Lake
from penstock.lake.place import Place, sync_folder
from penstock.lake.span import Span
from penstock.lake.tables import ALL, COVERAGE, EVENTS
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.run import ProgressCallback, no_progress
from penstock.pipeline.steps import after_step
from penstock.pipeline.tasks import run_tasks
from penstock.pipeline.turn import update_derived
from penstock.pipeline.verify import Expected, blocks_in, bodies_digest, files_with, rows_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Versions of the manifest that can be converted.
_VERSIONS: Final = (2, 3)

# Blocks of positions per task.
_BLOCKS: Final = 128

# Columns that must not be null. Files of early versions lack some of them.
_ZEROS: Final = ("flags", "format", "tube_number")


@dataclass
class _FileFacts:
    """What one task has found in a file."""

    file: DataFile
    spans: list[Span] = field(default_factory=list)  # From the first to the last position of each node.
    lacks_columns: bool = False


def convert(spark: SparkSession, lake: Lake, on_progress: ProgressCallback = no_progress) -> int:
    """Convert the lake. Return the number of its events."""
    root = _root(lake)
    with lake.writing(), as_pipeline_error():
        manifest = _manifest(root)
        if manifest is not None:
            with _old_lock(root):
                if not lake.turn:
                    _convert_events(spark, lake, root, manifest, on_progress)
                update_derived(spark, lake, lambda done, total: on_progress("silver and gold", done, total))
                after_step("before old files")
                _remove_old_tables(lake, root, manifest)
                after_step("before the manifest")
                _remove(root / "_state" / "manifest.json")
        lake.require_exists()
        shutil.rmtree(root / "_state", ignore_errors=True)
    return lake.rows(EVENTS)


def _root(lake: Lake) -> Path:
    if not lake.place.is_local:
        raise PipelineError(f"{lake} is not a directory; lakes of older versions were directories")
    root = Path(lake.place.uri)
    if not (root / "_state").exists():
        if lake.exists:
            raise PipelineError(f"{lake} is a lake of this version; there is nothing to convert")
        raise NoLake(f"{lake} holds no lake of an older version")
    return root


def _manifest(root: Path) -> dict[str, Any] | None:
    path = root / "_state" / "manifest.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadLake(f"{path} is not a manifest ({error}); create a new lake and fill it with `backfill`") from None
    if found.get("version") not in _VERSIONS:
        raise BadLake(f"{path} has version {found.get('version')}; only versions 2 and 3 can be converted")
    return dict(found)


@contextmanager
def _old_lock(root: Path) -> Iterator[None]:
    """Hold the lock of the older version, so that no older pipeline writes during the conversion."""
    lock = os.open(root / "_state" / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LakeInUse(f"{root} is in use by a pipeline of an older version; stop it") from None
    finally:
        os.close(lock)


def _convert_events(
    spark: SparkSession, lake: Lake, root: Path, manifest: dict[str, Any], on_progress: ProgressCallback
) -> None:
    """Commit the files of bronze, and what was read, in one turn."""
    lake.create(manifest.get("grain"))
    names: dict[str, int] = manifest["files"].get(EVENTS.path, {})
    turn, total, place = max(1, manifest["commits"]), sum(names.values()), lake.place
    on_progress("events", 0, total)
    for name in names:
        if not (root / "_state" / "files" / EVENTS.path / name).exists():
            raise BadLake(
                f"{root} lacks the file {name} of {EVENTS.path}; create a new lake and fill it with `backfill`"
            )
    facts = run_tasks(spark, lambda name: convert_file(place, root, name), sorted(names))
    on_progress("events", total, total)
    files = [each.file for each in facts]
    ends = {**manifest.get("positions", {})}
    for node, end in manifest.get("read", {}).items():
        ends[node] = max(end, ends.get(node, 0))
    after_step("before bronze/coverage")
    coverage = _coverage(spark, lake, facts, ends, turn)
    lake.set_facts(COVERAGE, turn, pa.Table.from_pylist(coverage, COVERAGE.arrow))
    after_step("before bronze/events")
    # Rows are in order, so the first row of each node remains.
    begins = {row["node"]: row["start"] for row in reversed(coverage)}
    lake.commit_events(turn, files, ends, begins)
    after_step("after bronze/events")


def convert_file(place: Place, root: Path, name: str) -> _FileFacts:
    """Give a file its place in the new table. A file that lacks columns is written again. Runs in a Spark task."""
    old = root / "_state" / "files" / EVENTS.path / name
    found = pq.ParquetFile(old)
    rows = pq.read_table(old, columns=["node", "position"], read_dictionary=["node"], partitioning=None)
    day, _, file_name = name.partition("/")
    day = day.partition("=")[2]
    spans = []
    for node in pc.unique(rows["node"]).to_pylist():
        ends = pc.min_max(rows.filter(pc.equal(rows["node"], node))["position"]).as_py()
        spans.append(Span(node, ends["min"], ends["max"] + 1))
    # A file of several nodes gets no positions in its name.
    span = spans[0] if len(spans) == 1 else None
    turn, _, rest = file_name.partition("-")
    if set(EVENTS.file_schema.names) <= set(found.schema_arrow.names):
        # Always the same name, so that an interrupted conversion leaves no second link.
        positions = f"{span.node}-{span.start}-{span.end}-" if span else ""
        path = f"{EVENTS.by}={day}/{turn}-{positions}{rest.replace('-', '_')}"
        new = root / EVENTS.path / path
        _link(old, new)
        return _FileFacts(DataFile(path, new.stat().st_size, len(rows), day), spans)
    writer = FileWriter(place, EVENTS, day, int(turn), span)
    for group in range(found.num_row_groups):
        writer.write(_with_all_columns(found.read_row_group(group)))
    return _FileFacts(writer.close(), spans, lacks_columns=True)


def _with_all_columns(rows: pa.Table) -> pa.Table:
    columns = []
    for each in EVENTS.file_schema:
        if each.name in rows.column_names:
            columns.append(rows[each.name].cast(each.type))
        elif each.name in _ZEROS:
            columns.append(pa.nulls(len(rows), each.type).fill_null(0))
        else:
            columns.append(pa.nulls(len(rows), each.type))
    return pa.Table.from_arrays(columns, schema=EVENTS.file_schema)


def _link(old: Path, new: Path) -> None:
    """Create a hard link to a file, or a copy if the file system has no links."""
    new.parent.mkdir(parents=True, exist_ok=True)
    if new.exists():
        return
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)
    sync_folder(new.parent)


def _coverage(
    spark: SparkSession, lake: Lake, facts: list[_FileFacts], ends: dict[str, int], turn: int
) -> list[dict[str, Any]]:
    """Return the blocks of positions from the first to the last event of each node, with their digests."""
    spans: dict[str, Span] = {}
    for span in (span for each in facts for span in each.spans):
        spans[span.node] = span.joined(spans.get(span.node, span))
    blocks = []
    for node, span in sorted(spans.items()):
        start, end = span.start, max(span.end, ends.get(node, 0))
        ends[node] = end
        while start < end:
            upto = min(end, start - start % BLOCK_ROWS + BLOCK_ROWS)
            blocks.append(Expected(node, start, upto, 0, b"", None))
            start = upto
    place, files = lake.place, [each.file for each in facts]
    tasks = []
    for first in range(0, len(blocks), _BLOCKS):
        some = blocks[first : first + _BLOCKS]
        tasks.append((some, files_with(files, some)))
    rows = [row for part in run_tasks(spark, lambda task: digests(place, *task), tasks) for row in part]
    for row in rows:
        block = Span(row["node"], row["start"], row["end"])
        if any(each.lacks_columns and any(map(block.overlaps, each.spans)) for each in facts):
            row["rows_digest"] = None
    return [{**row, "turn": turn} for row in sorted(rows, key=lambda row: (row["node"], row["start"]))]


def digests(place: Place, blocks: list[Expected], files: list[DataFile]) -> list[dict[str, Any]]:
    """Return rows of coverage for blocks. This runs in a Spark task."""
    return [
        {
            **{"node": block.node, "start": block.start, "end": block.end, "events": len(events)},
            "rows_digest": rows_digest(events, rows),
            "bodies_digest": bodies_digest(events, rows),
            "last_time": pc.max(events["time"]).as_py(),
        }
        for block, events, rows in blocks_in(place, blocks, files)
    ]


def _remove_old_tables(lake: Lake, root: Path, manifest: dict[str, Any]) -> None:
    """Delete the files of the old tables from the tables' folders, except for those that the new tables use."""
    new = {table.path: table for table in ALL}
    for path in {*manifest["files"], *manifest.get("gone", {})}:
        used = {file.path for file in lake.files(new[path])} if path in new else set()
        folder = root / path
        for file in folder.glob("*/*.parquet"):
            if str(file.relative_to(folder)) not in used:
                file.unlink()
        for day in folder.glob("*=*"):
            if not any(day.iterdir()):
                day.rmdir()
        if path not in new and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
