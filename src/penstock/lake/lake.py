"""The lake: a set of Delta tables that are written in turns.

A turn has a number. It adds files to bronze in one commit, and that commit also sets counters: `penstock/turn`, and for
each node `penstock/bronze/NODE`, the first position of its log that was not read. So each event is in bronze exactly
once. Then the turn adds its results to silver and gold. A table that gets new rows has the counter `penstock/digest`:
the last turn that it includes. After a crash, the tables that lack a turn are completed.

Delta commits one table at a time. The table `_turns` is written last and has the versions of all tables after the
turn. Its counter `penstock/turn` is the last turn that is complete in all tables. Readers of this class use these
versions, so they see all tables at the same turn. Other programs may see tables that are one turn apart.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from penstock.lake.delta import DataFile, TableLog
from penstock.lake.errors import BadLake, LakeInUse, NoLake
from penstock.lake.files import read_table, write_table
from penstock.lake.place import Place, parse_place, store_errors
from penstock.lake.tables import ALL, BRONZE, COVERAGE, EVENTS, TURNS, USER, USER_KEYS, USER_MEASURES, Table, tally

# Version of the tables and their columns. Versions 2 and 3 were Parquet files with a manifest.
VERSION: Final = 4

TURN: Final = "penstock/turn"
DIGEST: Final = "penstock/digest"
_POSITION: Final = "penstock/bronze/"
_BEGIN: Final = "penstock/begin/"
_VERSION: Final = "penstock.lakeVersion"
_GRAIN: Final = "penstock.grain"


class Lake:
    """A set of tables. Any number of processes can read it; one process at a time can write."""

    place: Place

    def __init__(
        self, place: str | Path | Place, options: Mapping[str, str] | None = None, converting: bool = False
    ) -> None:
        """Open a lake. Nothing is created. With `converting`, the place may also have a lake of an older version."""
        self.place = place if isinstance(place, Place) else parse_place(str(place), options)
        self._logs: dict[Table, TableLog] = {}
        self._pinned: dict[str, int] | None = None
        self._check(converting)

    def __str__(self) -> str:
        return str(self.place)

    def _check(self, converting: bool) -> None:
        if not converting and self.place.is_local and Path(self.place.uri, "_state", "manifest.json").exists():
            raise BadLake(
                f"{self} is a lake of an older version; convert it with `penstock pipeline convert --lake {self}`"
            )
        found = self.log(EVENTS).settings.get(_VERSION)
        if self.exists and found is None:
            raise BadLake(f"{self.place}/{EVENTS.path} is a Delta table, but not one of a lake; choose another place")
        if not self.exists and self.place.is_delta_table:
            raise BadLake(f"{self} is a Delta table, but not a lake; choose another place")
        if found is not None and int(found) > VERSION:
            raise BadLake(f"{self} was written by a newer version of Penstock; use that version to read it")

    # Reading

    @property
    def exists(self) -> bool:
        return self.log(EVENTS).exists

    def require_exists(self) -> Lake:
        """Raise NoLake if there is no lake. Return this lake."""
        if not self.exists:
            raise NoLake(f"{self} holds no lake; create one with `penstock pipeline once --lake {self}`")
        return self

    def log(self, table: Table) -> TableLog:
        """Return the log of a table: its newest version, or the version of the last turn after `pin`."""
        if table not in self._logs:
            # A table that was created later did not exist in the pinned turn. Bronze has been there since the creation.
            missing = 0 if table is EVENTS else -1
            version = None if self._pinned is None else self._pinned.get(table.path, missing)
            self._logs[table] = TableLog(self.place, table, version)
        return self._logs[table]

    def pin(self) -> Lake:
        """Read all tables at the same turn from now on. Return this lake."""
        rows = read_table(self.place, TURNS, TableLog(self.place, TURNS).files).to_pylist()
        self._pinned = {row["table"]: row["version"] for row in rows}
        self._logs.clear()
        return self

    def reload(self) -> None:
        """Forget what was read, so that the newest versions are read next."""
        self._pinned = None
        self._logs.clear()

    @property
    def grain(self) -> str:
        """The time unit of gold: minute, or second for short histories."""
        return self.log(EVENTS).settings.get(_GRAIN, "minute")

    @property
    def turn(self) -> int:
        """The number of the last turn that bronze includes."""
        return self.log(EVENTS).counter(TURN)

    def position(self, node: str) -> int:
        """Return the first position of a node's log that was not read, or 0."""
        return self.log(EVENTS).counter(_POSITION + node)

    def begin(self, node: str) -> int:
        """Return the position from which on the lake has all events of a node, or 0."""
        return self.log(EVENTS).counter(_BEGIN + node)

    def digested(self, table: Table) -> int:
        """Return the number of the last turn that a table of silver or gold includes."""
        return max(self.log(table).counter(DIGEST), self.log(TURNS).counter(TURN))

    def files(self, table: Table, days: Iterable[str] | None = None) -> list[DataFile]:
        """Return the files of a table, or of some of its days."""
        found = self.log(table).files
        if days is None:
            return found
        wanted = set(days)
        return [file for file in found if file.day in wanted]

    def days(self, table: Table) -> list[str]:
        return sorted({file.day for file in self.files(table)})

    def rows(self, table: Table) -> int:
        return self.log(table).rows

    def bytes(self, table: Table) -> int:
        return sum(file.size for file in self.files(table))

    def read(self, table: Table, days: Iterable[str] | None = None, only: Any = None) -> pa.Table:
        """Return the rows of a small table, or of some of its days."""
        return read_table(self.place, table, self.files(table, days), only)

    def user_tables(self) -> list[Table]:
        """Return the tables that users have defined, in order of their names."""
        with store_errors(self.place.uri):
            found = self.place.files().get_file_info(fs.FileSelector(USER, allow_not_found=True))
        tables = []
        for name in sorted(each.base_name for each in found if each.type == fs.FileType.Directory):
            settings = TableLog(self.place, Table(f"{USER}/{name}", ())).settings
            if USER_KEYS in settings:
                tables.append(tally(name, settings[USER_KEYS], settings[USER_MEASURES], USER))
        return tables

    def coverage(self) -> list[dict[str, Any]]:
        """Return which positions were read, in order. Rows of a turn that was not committed are left out."""
        rows = self.read(COVERAGE).to_pylist()
        return sorted(
            (row for row in rows if row["turn"] <= self.turn), key=lambda row: (row["node"], row["start"], row["end"])
        )

    def last_blocks(self, nodes: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the newest row of `coverage` for each of these nodes. Only the newest files are read."""
        found: dict[str, dict[str, Any]] = {}
        files = sorted(self.files(COVERAGE), key=lambda file: file.turn, reverse=True)
        for file in files:
            if file.turn <= self.turn and found.keys() < set(nodes):
                rows = read_table(self.place, COVERAGE, [file]).to_pylist()
                newest = {row["node"]: row for row in sorted(rows, key=lambda row: row["end"]) if row["node"] in nodes}
                found = {**newest, **found}
        return found

    # Writing

    def create(self, grain: str | None = None) -> None:
        """Create the tables if there are none. The grain cannot change later."""
        if self.exists and grain not in (None, self.grain):
            raise BadLake(f"{self} counts by the {self.grain}; create another lake to count by the {grain}")
        if not self.exists:
            if self.place.is_local:
                # Only the owner can read a lake, because it contains bodies. An existing directory keeps its mode.
                Path(self.place.uri).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.log(EVENTS).create({_VERSION: str(VERSION), _GRAIN: grain or "minute"})

    @contextmanager
    def writing(self) -> Iterator[Lake]:
        """Be the only writer during the block.

        A local lake has a lock. An object store has none: there, Delta refuses the second of two commits.
        """
        self.reload()
        if not self.place.is_local:
            yield self
            return
        with store_errors(self.place.uri):
            Path(self.place.uri).mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(Path(self.place.uri, ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LakeInUse(f"{self} is in use by another writer; wait until it ends, or stop it") from None
        try:
            yield self
        finally:
            os.close(lock)

    def begin_turn(self) -> int:
        """Claim the next turn in an object store, which has no lock. Return the number of the turn.

        The claim is a commit of `bronze/events`, so the events of a writer that claimed earlier are refused. The logs
        of the other bronze tables are read before the claim, so that a writer without the claim cannot replace the
        rows of the writer that has it.
        """
        for table in BRONZE:
            self.log(table)
        if not self.place.is_local:
            self.log(EVENTS).commit(counters={TURN: self.turn})
        return self.turn + 1

    def set_facts(self, table: Table, turn: int, rows: pa.Table) -> None:
        """Add rows of a turn to a small table. Rows that an interrupted attempt at this turn added are replaced."""
        log = self.log(table)
        stale = [file for file in log.files if file.turn == turn]
        if len(rows) or stale:
            log.commit(write_table(self.place, table, rows, turn), stale, {TURN: turn})

    def commit_events(
        self, turn: int, files: list[DataFile], positions: Mapping[str, int], begins: Mapping[str, int]
    ) -> None:
        """Add the events of a turn to bronze, and set the new ends and beginnings of the nodes' histories."""
        counters = {_POSITION + node: position for node, position in positions.items()}
        counters |= {_BEGIN + node: position for node, position in begins.items()}
        self.log(EVENTS).commit(files, (), {TURN: turn, **counters})

    def close_turn(self, turn: int | None = None) -> None:
        """Write the versions of all tables to `_turns`, in one file that replaces the one before.

        `turn` is the last turn that all tables include, if it has changed.
        """
        log = self.log(TURNS)
        turn = log.counter(TURN) if turn is None else turn
        logs = [self.log(each) for each in (*ALL, *self.user_tables()) if self.log(each).exists]
        rows = [{"turn": turn, "table": each.table.path, "version": each.version} for each in logs]
        found = pa.Table.from_pylist(rows, TURNS.arrow)
        log.commit(write_table(self.place, TURNS, found, turn), log.files, {TURN: turn})
