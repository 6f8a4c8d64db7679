"""The lake: a directory of Parquet files, and the manifest that lists the valid ones.

    DIR/bronze/events/date=2026-11-16/00000007-0.parquet      events, each once
    DIR/silver/jobs/ended=2026-11-16/00000008-0.parquet       one row per job
    DIR/gold/TABLE/date=2026-11-16/00000008-0.parquet         statistics, a folder per day
    DIR/_state/manifest.json, files/, checkpoint/, staging/, lock

Invariant: a file is valid if and only if the manifest lists it, and valid files never change. A commit writes new files
and then replaces the manifest with one rename, so it is atomic even if the process is killed. The next writer deletes
the files of an incomplete commit. A table format would do the same, but Spark has none built in
([ADR 14](docs/adr/0014-a-lake-is-files-and-a-manifest.md)).

Readers that use the manifest read `_state/files`. Files that are no longer valid stay there for a while, because a
reader may have started with an older manifest. The folders of the tables have links to the valid files only, for tools
that read whole folders.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.errors import BadLake, LakeInUse, NoLake
from penstock.pipeline.tables import ALL, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 3

# The oldest version that can be updated. Version 2 did not store how far the logs were read.
VERSION_MIN: Final = 2

# Removed files are kept this long for readers with an older manifest.
REMOVED_FILES_KEPT_S: Final = 15 * 60

# Spark's name for the folder of rows whose partition column is null.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class Manifest:
    """The valid files of each table with their number of rows, and the positions that the lake has reached."""

    version: int = VERSION
    commits: int = 0
    positions: dict[str, int] = field(default_factory=dict)  # By node: the first position that bronze lacks.
    # By node: the first position of the log that was not read. It may be greater, because not all rows are events.
    read: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)  # By node: time of the last event in bronze, in ms.
    fresh: list[str] = field(default_factory=list)  # Files of bronze that silver and gold do not include yet.
    files: dict[str, dict[str, int]] = field(default_factory=dict)  # By table: number of rows by file.
    gone: dict[str, dict[str, int]] = field(default_factory=dict)  # By table: time of removal by file, in s.
    grain: str = "minute"  # Time resolution of gold: minute, or second for short histories.


class Lake:
    """A directory of tables. Any process can read it; one process at a time can write."""

    root: Path
    manifest: Manifest

    def __init__(self, root: str | Path) -> None:
        """Read the manifest of a lake. A lake that does not exist is empty."""
        self.root = Path(root).absolute()
        self.manifest = _read_manifest(self.state / "manifest.json")

    @property
    def state(self) -> Path:
        """The directory of the manifest, the checkpoint and all other files outside of the tables' folders."""
        return self.root / "_state"

    @property
    def checkpoint(self) -> Path:
        return self.state / "checkpoint"

    def require_exists(self) -> Lake:
        """Raise NoLake if the directory has no lake. Return this lake."""
        if not self.manifest.commits:
            raise NoLake(f"{self.root} holds no lake; create one with `penstock pipeline once --lake {self.root}`")
        return self

    def count_by(self, grain: str) -> None:
        """Set whether gold counts events per minute or per second. This cannot change after the first commit."""
        if self.manifest.commits and grain != self.manifest.grain:
            raise BadLake(
                f"{self.root} counts by the {self.manifest.grain}; create another lake to count by the {grain}"
            )
        self.manifest.grain = grain
        self.begin()

    def begin(self) -> None:
        """Commit an empty lake if there is none."""
        if not self.manifest.commits:
            self.change().commit()

    # Reading

    def folder(self, table: Table) -> Path:
        """Return the folder with all files of a table, valid or not. Its readers need the manifest."""
        return self.state / "files" / table.path

    def path(self, table: Table, name: str) -> Path:
        return self.folder(table) / name

    def files(self, table: Table, days: Iterable[str] | None = None) -> list[str]:
        """Return the files of a table, or of some of its days, the oldest first."""
        names = self.manifest.files.get(table.path, {})
        wanted = None if days is None else set(days)
        return sorted(name for name in names if wanted is None or day_of(name) in wanted)

    def days(self, table: Table) -> list[str]:
        return sorted({day_of(name) for name in self.files(table)} - {NO_DAY})

    def rows(self, table: Table, names: Iterable[str] | None = None) -> int:
        counts = self.manifest.files.get(table.path, {})
        return sum(counts[name] for name in (counts if names is None else names))

    def has_nulls(self, table: Table, column: str, names: Iterable[str]) -> bool:
        """Return whether a row of these files may have no value in `column`, according to the files' statistics."""
        return any(_may_have_nulls(self.path(table, name), column) for name in names)

    def bytes(self, table: Table) -> int:
        return sum(self.path(table, name).stat().st_size for name in self.files(table))

    def read(self, spark: SparkSession, table: Table, names: Iterable[str] | None = None) -> DataFrame:
        """Return the valid rows of a table, or those of some of its files."""
        paths = [str(self.path(table, name)) for name in (self.files(table) if names is None else names)]
        if not paths:
            return spark.createDataFrame([], table.ddl)
        return spark.read.schema(table.ddl).option("basePath", str(self.folder(table))).parquet(*paths)

    def arrow(self, table: Table, days: Iterable[str]) -> list[Any]:
        """Return some days of a small table as Arrow tables."""
        return [self._arrow_file(table, name) for name in self.files(table, days)]

    def _arrow_file(self, table: Table, name: str) -> Any:
        found = pq.ParquetFile(self.path(table, name)).read()
        day = pa.scalar(date.fromisoformat(day_of(name)), pa.date32())
        return found.append_column(table.by, pa.repeat(day, len(found))).select(table.arrow.names).cast(table.arrow)

    def show(self, spark: SparkSession, tables: Iterable[Table] = ALL) -> None:
        """Create a temporary SQL view for each table, with the table's name: events, jobs, rates and so on."""
        for table in tables:
            self.read(spark, table).createOrReplaceTempView(table.name)

    # Writing

    def make(self) -> None:
        """Create the directories of the lake. Only their owner can read them, because they contain bodies.

        To share a lake, create its directory beforehand. An existing directory keeps its mode.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.mkdir(exist_ok=True)

    @contextmanager
    def writing(self) -> Iterator[Lake]:
        """Hold the lock for writing during the block. Before the block, delete the files of incomplete commits."""
        self.make()
        lock = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LakeInUse(f"{self.root} is in use by another writer; wait until it ends, or stop it") from None
        try:
            self.reload()
            self._sweep()
            yield self
        finally:
            os.close(lock)

    def change(self) -> LakeCommit:
        return LakeCommit(self)

    def reload(self) -> None:
        """Read the manifest again, because Spark's callbacks commit from another thread or process."""
        self.manifest = _read_manifest(self.state / "manifest.json")

    def _sweep(self) -> None:
        """Remove the files that a killed writer left behind, and make the tables' folders match the manifest."""
        shutil.rmtree(self.state / "staging", ignore_errors=True)
        for table in ALL:
            counted = self.manifest.files.get(table.path, {})
            kept = {*counted, *self.manifest.gone.get(table.path, ())}
            _remove(self.folder(table), _found(self.folder(table)) - kept)
            shown = _found(self.root / table.path)
            self.update_links(table, counted.keys() - shown, shown - counted.keys())

    def update_links(self, table: Table, came: Iterable[str], gone: Iterable[str]) -> None:
        """In the folder of a table, add links to the files `came` and remove the links to the files `gone`."""
        folder = self.root / table.path
        for name in came:
            _link(self.path(table, name), folder / name)
        _remove(folder, gone)


class LakeCommit:
    """An open commit: files to add and files to remove. Nothing changes before `commit`."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._number = lake.manifest.commits + 1
        self._staging = lake.state / "staging" / f"{self._number:08d}"
        self._came: dict[str, dict[str, Path]] = {}
        self._gone: dict[str, set[str]] = {}

    @property
    def scratch(self) -> Path:
        """A directory for temporary files until the commit."""
        return self._staging / "scratch"

    def add(self, table: Table, rows: DataFrame) -> list[str]:
        """Write rows for a table with Spark. Return the names that the files will have."""
        folder = self._folder(table)
        rows.write.partitionBy(table.by).parquet(str(folder))
        return self._stage(table)

    def add_arrow(self, table: Table, rows: Any) -> list[str]:
        """Write the rows of an Arrow table. Return the names that the files will have."""
        folder = self._folder(table)
        for day in pc.unique(rows[table.by]):
            of_day = folder / f"{table.by}={day}"
            of_day.mkdir(parents=True)
            some = rows.filter(pc.equal(rows[table.by], day)).drop_columns([table.by])
            pq.write_table(some, of_day / "0.parquet", compression="zstd")
        return self._stage(table)

    def staged(self, table: Table) -> list[Path]:
        return list(self._came[table.path].values())

    def _folder(self, table: Table) -> Path:
        assert table.path not in self._came, "a commit can write a table only once"
        return self._staging / table.path

    def _stage(self, table: Table) -> list[str]:
        came = self._came[table.path] = {}
        for path in sorted((self._staging / table.path).glob("*/*.parquet")):
            came[f"{path.parent.name}/{self._number:08d}-{len(came)}.parquet"] = path
        return list(came)

    def remove(self, table: Table, names: Iterable[str]) -> None:
        """Mark files of a table for removal by this commit."""
        self._gone.setdefault(table.path, set()).update(names)

    def replace(self, table: Table, rows: Any, days: Iterable[str]) -> None:
        """Replace some days of a small table by `rows`."""
        self.add_arrow(table, rows)
        self.remove(table, self._lake.files(table, days))

    def abandon(self) -> None:
        """Drop the commit and its files."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def commit(
        self,
        positions: dict[str, int] | None = None,
        fresh: list[str] | None = None,
        newest: dict[str, int] | None = None,
        read: dict[str, int] | None = None,
    ) -> None:
        """Publish all changes atomically, with a new manifest. If an argument is None, its old value is kept."""
        lake, old = self._lake, self._lake.manifest
        now = int(time.time())
        new = Manifest(VERSION, self._number, grain=old.grain)
        new.positions = old.positions if positions is None else positions
        new.newest = old.newest if newest is None else newest
        new.read = old.read if read is None else read
        new.fresh = old.fresh if fresh is None else fresh
        over: dict[Table, list[str]] = {}
        for table in ALL:
            came, gone = self._came.get(table.path, {}), self._gone.get(table.path, set())
            kept = old.files.get(table.path, {})
            new.files[table.path] = {name: rows for name, rows in kept.items() if name not in gone}
            new.files[table.path] |= {name: pq.read_metadata(staged).num_rows for name, staged in came.items()}
            went = old.gone.get(table.path, {}) | dict.fromkeys(gone, now)
            new.gone[table.path] = {name: since for name, since in went.items() if since > now - REMOVED_FILES_KEPT_S}
            over[table] = list(went.keys() - new.gone[table.path].keys())
        self._install_files()
        write_json(lake.state / "manifest.json", asdict(new))
        lake.manifest = new
        for table in ALL:
            lake.update_links(table, self._came.get(table.path, {}), self._gone.get(table.path, ()))
            _remove(lake.folder(table), over[table])
        self.abandon()

    def _install_files(self) -> None:
        """Move the new files to their places, and sync everything before the manifest lists them."""
        folders: set[Path] = set()
        for path, came in self._came.items():
            for name, staged in came.items():
                place = self._lake.state / "files" / path / name
                place.parent.mkdir(parents=True, exist_ok=True)
                sync(staged)
                staged.rename(place)
                folders |= {folder for folder in place.parents if folder.is_relative_to(self._lake.root)}
        for folder in folders:
            sync(folder)


def day_of(name: str) -> str:
    """Return the day of a file like `date=2026-11-16/00000007-0.parquet`."""
    return name.partition("/")[0].partition("=")[2]


def _found(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("*/*.parquet")}


def _may_have_nulls(path: Path, column: str) -> bool:
    found = pq.read_metadata(path)
    for group in map(found.row_group, range(found.num_row_groups)):
        columns = {each.path_in_schema: each for each in map(group.column, range(group.num_columns))}
        statistics = columns[column].statistics if column in columns else None
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return True
    return False


def _link(file: Path, place: Path) -> None:
    """Create a hard link to a file, or a copy if the file system has no links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Replace a file of the lake's state atomically and durably."""
    new = path.with_suffix(".new")
    with open(new, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync(path.parent)


def _read_manifest(path: Path) -> Manifest:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return Manifest()
    except ValueError as error:
        raise BadLake(
            f"{path} is not a manifest ({error}); remove the lake and create it again with `backfill`"
        ) from None
    if not VERSION_MIN <= found["version"] <= VERSION:
        other = "a newer" if found["version"] > VERSION else "an older"
        raise BadLake(f"{path} was written by {other} version; use that version, or create a new lake elsewhere")
    return Manifest(**found)
