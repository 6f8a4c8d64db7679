"""The lake: a directory of Parquet files, and the manifest that says which of them count.

    DIR/bronze/events/date=2026-11-16/00000007-0.parquet      what happened, each event once
    DIR/silver/jobs/ended=2026-11-16/00000008-0.parquet       one row a job
    DIR/gold/TABLE/date=2026-11-16/00000008-0.parquet         answers, a day a folder
    DIR/_state/manifest.json, checkpoint/, staging/, lock

The one rule: a file counts if the manifest names it, and it never changes. A commit writes new files, then replaces the
manifest by one rename, then removes the files that no longer count. So a turn of the pipeline happens whole or not at
all, whatever is killed when; what a killed one left behind is swept away by the next writer. That is what a table
format does, without one: Spark alone has none here ([ADR 14](docs/adr/0014-a-lake-is-files-and-a-manifest.md)).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
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

VERSION: Final = 1

# What Spark calls the folder of rows that have no value in the column they are partitioned by.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class Manifest:
    """What counts: the files of each table and their rows, and how far the lake has come."""

    version: int = VERSION
    commits: int = 0
    positions: dict[str, int] = field(default_factory=dict)  # By node, the first position that is not in bronze yet.
    fresh: list[str] = field(default_factory=list)  # Files of bronze that silver and gold do not know yet.
    files: dict[str, dict[str, int]] = field(default_factory=dict)  # By table, rows by file.
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
        if not self.manifest.commits:
            self.manifest.grain = grain
            self.change().commit()

    # Reading

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
        return sum((self.root / table.path / name).stat().st_size for name in self.files(table))

    def read(self, spark: SparkSession, table: Table, names: Iterable[str] | None = None) -> DataFrame:
        """A table as it is by the manifest, or some of its files."""
        folder = self.root / table.path
        paths = [str(folder / name) for name in (self.files(table) if names is None else names)]
        return _parquet(spark, table, folder, paths)

    def arrow(self, table: Table, days: Iterable[str]) -> list[Any]:
        """Some days of a small table, for Arrow."""
        return [self._arrow_file(table, name) for name in self.files(table, days)]

    def _arrow_file(self, table: Table, name: str) -> Any:
        found = pq.ParquetFile(self.root / table.path / name).read()
        day = pa.scalar(date.fromisoformat(day_of(name)), pa.date32())
        return found.append_column(table.by, pa.repeat(day, len(found))).select(table.arrow.names).cast(table.arrow)

    def show(self, spark: SparkSession, tables: Iterable[Table] = ALL) -> None:
        """Let SQL call tables by their names: events, jobs, rates and so on."""
        for table in tables:
            self.read(spark, table).createOrReplaceTempView(table.name)

    # Writing

    @contextmanager
    def writing(self) -> Iterator[Lake]:
        """Be the one who writes; begin with what counts, and nothing else."""
        self.state.mkdir(parents=True, exist_ok=True)
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
        """Remove what a killed writer left behind."""
        shutil.rmtree(self.state / "staging", ignore_errors=True)
        for table in ALL:
            folder = self.root / table.path
            counted = self.manifest.files.get(table.path, {})
            for path in folder.glob("*/*.parquet"):
                if str(path.relative_to(folder)) not in counted:
                    path.unlink()


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

    def commit(self, positions: dict[str, int] | None = None, fresh: list[str] | None = None) -> None:
        """Let it all count at once."""
        lake = self._lake
        new = Manifest(VERSION, self._number, grain=lake.manifest.grain)
        new.positions = lake.manifest.positions if positions is None else positions
        new.fresh = lake.manifest.fresh if fresh is None else fresh
        for path in (table.path for table in ALL):
            kept = lake.manifest.files.get(path, {})
            new.files[path] = {name: rows for name, rows in kept.items() if name not in self._gone.get(path, ())}
            for name, staged in self._came.get(path, {}).items():
                new.files[path][name] = pq.read_metadata(staged).num_rows
                _settle(staged, lake.root / path / name)
        _write_manifest(new, lake.state / "manifest.json")
        lake.manifest = new
        for path, names in self._gone.items():
            for name in names:
                (lake.root / path / name).unlink(missing_ok=True)
        self.abandon()


def day_of(name: str) -> str:
    """The day that a file tells of: `date=2026-11-16/00000007-0.parquet`."""
    return name.partition("/")[0].partition("=")[2]


def _parquet(spark: SparkSession, table: Table, folder: Path, paths: list[str]) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], table.ddl)
    return spark.read.schema(table.ddl).option("basePath", str(folder)).parquet(*paths)


def _settle(staged: Path, place: Path) -> None:
    """Bring a file to its place, and see that it is on disk before the manifest names it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(staged, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    staged.rename(place)


def _read_manifest(path: Path) -> Manifest:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return Manifest()
    except ValueError as error:
        raise BadLake(f"{path} is no manifest ({error}); remove the lake and make it again with `backfill`") from None
    if found["version"] > VERSION:
        raise BadLake(f"{path} was written by a newer version; use that one, or make the lake again elsewhere")
    return Manifest(**found)


def _write_manifest(manifest: Manifest, path: Path) -> None:
    new = path.with_suffix(".new")
    with open(new, "w") as file:
        json.dump(asdict(manifest), file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
