"""One Delta table: its files, its commits and its counters.

This module is the only one that calls deltalake to write. A commit adds and removes files and sets counters (`txn` in
Delta's protocol) atomically. It is refused if the table has changed since it was read, so two writers cannot both
commit. Tables use protocol versions 1 and 2 and no table features, because every reader supports them.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from penstock.lake.errors import BadLake, LakeInUse
from penstock.lake.place import Place, first_line, store_errors, sync_folder
from penstock.lake.span import Span
from penstock.lake.tables import Table

# A checkpoint is written after this many commits. Older log files are deleted after a day.
_SETTINGS: Final = {"delta.checkpointInterval": "10", "delta.logRetentionDuration": "interval 1 days"}

# Field of a commit that identifies it.
_COMMIT: Final = "penstockCommit"

_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


@dataclass(frozen=True)
class DataFile:
    """A file of a table: its path in the table's folder, and the facts that Delta's log has about it."""

    path: str
    size: int
    rows: int
    day: str  # Value of the partition column.
    logged_span: Span | None = None  # Only for a file of an older version, which has limits in Delta's log.

    @property
    def turn(self) -> int:
        """The turn that wrote the file, according to its name. 0: compaction, or another program."""
        number = self._name_parts[0]
        return int(number) if number.isdigit() else 0

    @property
    def span(self) -> Span | None:
        """The positions that the file may have, according to its name. None: unknown, or not a file of events."""
        parts = self._name_parts
        if len(parts) == 5 and parts[2].isdigit() and parts[3].isdigit():
            return Span(parts[1], int(parts[2]), int(parts[3]))
        return self.logged_span

    @property
    def _name_parts(self) -> list[str]:
        return self.path.rpartition("/")[2].split("-")


class TableLog:
    """The log of one table at one version."""

    table: Table
    place: Place

    def __init__(self, lake: Place, table: Table, version: int | None = None) -> None:
        """Read the log of a table at a version, or at its newest one. The table may not exist yet (version -1)."""
        self.table = table
        self.place = lake.sub(table.path)
        self._files: dict[str, DataFile] | None = None
        self._delta = self._open(version)

    def _open(self, version: int | None) -> DeltaTable | None:
        if version == -1:
            return None
        # For a folder that does not exist, deltalake creates it.
        if self.place.is_local and not Path(self.place.uri, "_delta_log").is_dir():
            return None
        try:
            with store_errors(self.place.uri):
                return DeltaTable(self.place.uri, version, storage_options=dict(self.place.options) or None)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise BadLake(f"{self.place}: the table cannot be read ({first_line(error)})") from None

    @property
    def exists(self) -> bool:
        return self._delta is not None

    @property
    def version(self) -> int:
        """The number of the last commit, or -1 if the table does not exist."""
        return -1 if self._delta is None else self._delta.version()

    @property
    def settings(self) -> dict[str, str]:
        return {} if self._delta is None else self._delta.metadata().configuration

    def counter(self, name: str) -> int:
        """Return the value of a counter, or 0."""
        return 0 if self._delta is None else self._delta.transaction_version(name) or 0

    @property
    def files(self) -> list[DataFile]:
        """The files of the table, in order of their paths."""
        if self._files is None:
            self._files = {} if self._delta is None else _files(self._delta, self.table)
        return list(self._files.values())

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def create(self, settings: Mapping[str, str] | None = None) -> None:
        """Create the table if it does not exist."""
        if self._delta is None:
            with _commit_errors(self.place), store_errors(self.place.uri):
                self._delta = DeltaTable.create(
                    self.place.uri,
                    self.table.arrow,
                    partition_by=[self.table.by] if self.table.by else None,
                    configuration={**_SETTINGS, **(settings or {})},
                    storage_options=dict(self.place.options) or None,
                    raise_if_key_not_exists=False,
                )
            self._make_durable()

    def commit(
        self,
        add: Iterable[DataFile] = (),
        remove: Iterable[DataFile] = (),
        counters: Mapping[str, int] | None = None,
        changes_data: bool = True,
    ) -> None:
        """Add and remove files and set counters in one commit. Compaction does not change data."""
        self.create()
        assert self._delta is not None
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, self._partition(file), now, changes_data, _statistics(file)) for file in add
        ]
        actions += [RemoveAction(file.path, changes_data, now, file.size, self._partition(file)) for file in remove]
        transactions = [Transaction(name, value) for name, value in (counters or {}).items()]
        commit = uuid.uuid4().hex
        properties = CommitProperties({_COMMIT: commit}, max_commit_retries=0, app_transactions=transactions)
        with _commit_errors(self.place), store_errors(self.place.uri):
            try:
                self._delta.create_write_transaction(
                    actions,
                    "append",
                    self.table.arrow,
                    partition_by=[self.table.by] if self.table.by else None,
                    commit_properties=properties,
                    post_commithook_properties=_HOOKS,
                )
            except CommitFailedError:
                if not self._is_newest(commit):
                    raise
            self._delta.update_incremental()
        self._files = None
        self._make_durable()

    def _is_newest(self, commit: str) -> bool:
        """Return whether a commit succeeded although it was refused.

        If a store's reply is lost, deltalake sends the commit again, and the store refuses it because it is there.
        """
        newest = DeltaTable(self.place.uri, storage_options=dict(self.place.options) or None)
        return any(each.get(_COMMIT) == commit for each in newest.history(1))

    def _partition(self, file: DataFile) -> dict[str, str | None]:
        return {self.table.by: file.day} if self.table.by else {}

    def _make_durable(self) -> None:
        """Sync the last commit of a local table, because deltalake does not."""
        if self.place.is_local:
            log = Path(self.place.uri, "_delta_log")
            newest = log / f"{self.version:020d}.json"
            if newest.exists():
                with open(newest, "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(log)


@contextmanager
def _commit_errors(place: Place) -> Iterator[None]:
    """Turn the refusal of a commit into LakeInUse, and other errors of Delta into BadLake."""
    try:
        yield
    except CommitFailedError:
        raise LakeInUse(f"{place} was changed by another writer; only one pipeline can write to a lake") from None
    except DeltaError as error:
        raise BadLake(f"{place}: the commit failed ({first_line(error)})") from None


def _files(delta: DeltaTable, table: Table) -> dict[str, DataFile]:
    found = {}
    for row in pa.table(delta.get_add_actions(flatten=True)).to_pylist():
        day = row.get(f"partition.{table.by}") if table.by else ""
        shown = day.isoformat() if isinstance(day, date) else str(day)
        found[row["path"]] = DataFile(row["path"], row["size_bytes"], row["num_records"] or 0, shown, _logged_span(row))
    return {path: found[path] for path in sorted(found)}


def _logged_span(row: Mapping[str, Any]) -> Span | None:
    """Return the positions of a file that an older version has written. A file of several nodes has no span."""
    node = row.get("min.node")
    if node is None or node != row.get("max.node") or row.get("max.position") is None:
        return None
    return Span(node, row["min.position"], row["max.position"] + 1)


def _statistics(file: DataFile) -> str:
    # Without limits of columns: if some columns have them, deltalake finds no row by a filter of another column.
    return json.dumps({"numRecords": file.rows})
