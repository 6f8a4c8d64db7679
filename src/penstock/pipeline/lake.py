"""The lake: a directory of Parquet files, and the manifest that says which of them count.

    DIR/bronze/events/date=2026-11-16/00000007-0.parquet      what happened, each event once
    DIR/silver/jobs/ended=2026-11-16/00000008-0.parquet       one row a job
    DIR/gold/TABLE/date=2026-11-16/00000008-0.parquet         answers, a day a folder
    DIR/_state/manifest.json, files/, checkpoint/, staging/, lock

The one rule: a file counts if the manifest names it, and it never changes. A commit writes new files, then replaces the
manifest by one rename. So a turn of the pipeline happens whole or not at all, whatever is killed when; what a killed
one left behind is swept away by the next writer. That is what a table format does, without one: Spark alone has none
here ([ADR 14](docs/adr/0014-a-lake-is-files-and-a-manifest.md)).

Whoever goes by the manifest reads `_state/files`, where a file that no longer counts stays for a while: somebody may
have begun to read it. The folders of the tables have links to what counts and to nothing else, for tools that read
folders as they are.
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

# The oldest version that can be gone on with. Version 2 did not say how far logs were read.
OLDEST: Final = 2

# So long a file that no longer counts is kept for those who read it.
KEPT_S: Final = 15 * 60

# What Spark calls the folder of rows that have no value in the column they are partitioned by.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class Manifest:
    """What counts: the files of each table and their rows, and how far the lake has come."""

    version: int = VERSION
    commits: int = 0
    positions: dict[str, int] = field(default_factory=dict)  # By node, the first position that is not in bronze yet.
    # By node, the first position of its log that was not looked at yet: not only events of jobs have positions.
    read: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)  # By node, when the event before it happened, in ms.
    fresh: list[str] = field(default_factory=list)  # Files of bronze that silver and gold do not know yet.
    files: dict[str, dict[str, int]] = field(default_factory=dict)  # By table, rows by file.
    gone: dict[str, dict[str, int]] = field(default_factory=dict)  # By table, what counts no longer, and since when.
    grain: str = "minute"  # What gold counts by. A short look at a short time may count by the second.


class Lake:
    """A directory of tables. Anybody may read; one process at a time writes."""

    root: Path
    manifest: Manifest

    def __init__(self, root: str | Path) -> None:
        """Look at a lake as it is now. One that is not there yet is empty."""
        self.root = Path(root).absolute()
        self.manifest = _read_manifest(self.state / "manifest.json")

    @property
    def state(self) -> Path:
        """What is no table."""
        return self.root / "_state"

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps how far it has read."""
        return self.state / "checkpoint"

    def must_be_there(self) -> Lake:
        """Refuse a directory that holds no lake, for those who only read."""
        if not self.manifest.commits:
            raise NoLake(f"{self.root} holds no lake; make one with `penstock pipeline once --lake {self.root}`")
        return self

    def count_by(self, grain: str) -> None:
        """Let the minutes of gold be seconds, or minutes: that is decided once, before there is anything."""
        if self.manifest.commits and grain != self.manifest.grain:
            raise BadLake(f"{self.root} counts by the {self.manifest.grain}; make another lake to count by the {grain}")
        self.manifest.grain = grain
        self.begin()

    def begin(self) -> None:
        """Be a lake from now on, if only an empty one."""
        if not self.manifest.commits:
            self.change().commit()

    # Reading

    def folder(self, table: Table) -> Path:
        """Where the files of a table are, for those who go by the manifest."""
        return self.state / "files" / table.path

    def path(self, table: Table, name: str) -> Path:
        """Where a file is."""
        return self.folder(table) / name

    def files(self, table: Table, days: Iterable[str] | None = None) -> list[str]:
        """The files of a table, or of some of its days, oldest first."""
        names = self.manifest.files.get(table.path, {})
        wanted = None if days is None else set(days)
        return sorted(name for name in names if wanted is None or day_of(name) in wanted)

    def days(self, table: Table) -> list[str]:
        """The days that a table tells of."""
        return sorted({day_of(name) for name in self.files(table)} - {NO_DAY})

    def rows(self, table: Table, names: Iterable[str] | None = None) -> int:
        """How many rows a table has, or some of its files."""
        counts = self.manifest.files.get(table.path, {})
        return sum(counts[name] for name in (counts if names is None else names))

    def bytes(self, table: Table) -> int:
        """How large a table is."""
        return sum(self.path(table, name).stat().st_size for name in self.files(table))

    def read(self, spark: SparkSession, table: Table, names: Iterable[str] | None = None) -> DataFrame:
        """A table as it is by the manifest, or some of its files."""
        paths = [str(self.path(table, name)) for name in (self.files(table) if names is None else names)]
        return _parquet(spark, table, self.folder(table), paths)

    def arrow(self, table: Table, days: Iterable[str]) -> list[Any]:
        """Some days of a small table, for Arrow."""
        return [self._arrow_file(table, name) for name in self.files(table, days)]

    def _arrow_file(self, table: Table, name: str) -> Any:
        found = pq.ParquetFile(self.path(table, name)).read()
        day = pa.scalar(date.fromisoformat(day_of(name)), pa.date32())
        return found.append_column(table.by, pa.repeat(day, len(found))).select(table.arrow.names).cast(table.arrow)

    def show(self, spark: SparkSession, tables: Iterable[Table] = ALL) -> None:
        """Let SQL call tables by their names: events, jobs, rates and so on."""
        for table in tables:
            self.read(spark, table).createOrReplaceTempView(table.name)

    # Writing

    def make(self) -> None:
        """Make the directories of the lake. Only their owner may read them, because bodies are in them: a lake that
        others may read is made with `mkdir` before, and keeps its mode.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.mkdir(exist_ok=True)

    @contextmanager
    def writing(self) -> Iterator[Lake]:
        """Be the one who writes; begin with what counts, and nothing else."""
        self.make()
        lock = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LakeInUse(f"{self.root} is being written by another process; wait for it, or stop it") from None
        try:
            self.manifest = _read_manifest(self.state / "manifest.json")
            self._sweep()
            yield self
        finally:
            os.close(lock)

    def change(self) -> Change:
        """Begin a commit."""
        return Change(self)

    def reload(self) -> None:
        """See what was committed meanwhile: Spark calls back from a thread or process of its own."""
        self.manifest = _read_manifest(self.state / "manifest.json")

    def _sweep(self) -> None:
        """Remove what a killed writer left behind, and finish what it began to show."""
        shutil.rmtree(self.state / "staging", ignore_errors=True)
        for table in ALL:
            counted = self.manifest.files.get(table.path, {})
            kept = {*counted, *self.manifest.gone.get(table.path, ())}
            _remove(self.folder(table), _found(self.folder(table)) - kept)
            shown = _found(self.root / table.path)
            self.show_files(table, counted.keys() - shown, shown - counted.keys())

    def show_files(self, table: Table, came: Iterable[str], gone: Iterable[str]) -> None:
        """Let the folder that everybody sees have files, or not have them any more."""
        folder = self.root / table.path
        for name in came:
            _link(self.path(table, name), folder / name)
        _remove(folder, gone)


class Change:
    """A commit under way: what comes, what goes. Nothing counts before `commit`."""

    def __init__(self, lake: Lake) -> None:
        """Start from what the lake is now."""
        self._lake = lake
        self._number = lake.manifest.commits + 1
        self._staging = lake.state / "staging" / f"{self._number:08d}"
        self._came: dict[str, dict[str, Path]] = {}
        self._gone: dict[str, set[str]] = {}

    @property
    def scratch(self) -> Path:
        """Room for what is needed until the commit."""
        return self._staging / "scratch"

    def add(self, table: Table, rows: DataFrame) -> list[str]:
        """Write rows for a table; what the files will be called."""
        folder = self._folder(table)
        rows.write.partitionBy(table.by).parquet(str(folder))
        return self._stage(table)

    def add_arrow(self, table: Table, rows: Any) -> list[str]:
        """The same for rows that are here already."""
        folder = self._folder(table)
        for day in pc.unique(rows[table.by]):
            of_day = folder / f"{table.by}={day}"
            of_day.mkdir(parents=True)
            some = rows.filter(pc.equal(rows[table.by], day)).drop_columns([table.by])
            pq.write_table(some, of_day / "0.parquet", compression="zstd")
        return self._stage(table)

    def staged(self, table: Table) -> list[Path]:
        """The files that were written for a table."""
        return list(self._came[table.path].values())

    def _folder(self, table: Table) -> Path:
        assert table.path not in self._came, "a table is written once a commit"
        return self._staging / table.path

    def _stage(self, table: Table) -> list[str]:
        came = self._came[table.path] = {}
        for path in sorted((self._staging / table.path).glob("*/*.parquet")):
            came[f"{path.parent.name}/{self._number:08d}-{len(came)}.parquet"] = path
        return list(came)

    def remove(self, table: Table, names: Iterable[str]) -> None:
        """Let files of a table count no longer."""
        self._gone.setdefault(table.path, set()).update(names)

    def replace(self, table: Table, rows: Any, days: Iterable[str]) -> None:
        """Write some days of a small table anew."""
        self.add_arrow(table, rows)
        self.remove(table, self._lake.files(table, days))

    def abandon(self) -> None:
        """Let nothing come of it."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def commit(
        self,
        positions: dict[str, int] | None = None,
        fresh: list[str] | None = None,
        newest: dict[str, int] | None = None,
        read: dict[str, int] | None = None,
    ) -> None:
        """Let it all count at once."""
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
            new.gone[table.path] = {name: since for name, since in went.items() if since > now - KEPT_S}
            over[table] = list(went.keys() - new.gone[table.path].keys())
        self._settle()
        write_json(lake.state / "manifest.json", asdict(new))
        lake.manifest = new
        for table in ALL:
            lake.show_files(table, self._came.get(table.path, {}), self._gone.get(table.path, ()))
            _remove(lake.folder(table), over[table])
        self.abandon()

    def _settle(self) -> None:
        """Bring files to their places, and see that all of it is on disk before the manifest names them."""
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
    """The day that a file tells of: `date=2026-11-16/00000007-0.parquet`."""
    return name.partition("/")[0].partition("=")[2]


def _parquet(spark: SparkSession, table: Table, folder: Path, paths: list[str]) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], table.ddl)
    return spark.read.schema(table.ddl).option("basePath", str(folder)).parquet(*paths)


def _found(folder: Path) -> set[str]:
    """The files of a table that are in a folder, by their names."""
    return {str(path.relative_to(folder)) for path in folder.glob("*/*.parquet")}


def _link(file: Path, place: Path) -> None:
    """Let a file be found at another place, too. Where there are no links, it is a copy."""
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
    """See that a file, or which files a folder has, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Write a file of the lake's state: what was there before, or this, whatever is killed when."""
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
        raise BadLake(f"{path} is no manifest ({error}); remove the lake and make it again with `backfill`") from None
    if not OLDEST <= found["version"] <= VERSION:
        other = "a newer" if found["version"] > VERSION else "an older"
        raise BadLake(f"{path} was written by {other} version; use that one, or make the lake again elsewhere")
    return Manifest(**found)
