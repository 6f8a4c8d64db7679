"""Vacuum: deletes files that no version of a table uses any more, and files of interrupted turns.

A file is in use if the newest version of its table or the version of the last turn has it. Other files are deleted when
they are older than a given time: a file that was removed from its table counts from its removal, because a reader may
still use the version before.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow import fs

from penstock.lake.delta import TableLog
from penstock.lake.files import read_table
from penstock.lake.lake import Lake
from penstock.lake.place import store_errors
from penstock.lake.tables import ALL, TURNS, VERDICTS, Table

# The default age, in seconds.
OLDER_THAN_S: Final = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Unused:
    """A file that can be deleted. The path is relative to the lake."""

    path: str
    size: int


def unused_files(lake: Lake, older_than_s: float) -> list[Unused]:
    """Return the files that can be deleted."""
    turns = TableLog(lake.place, TURNS)
    pinned = {row["table"]: row["version"] for row in read_table(lake.place, TURNS, turns.files).to_pylist()}
    until_ms = (time.time() - older_than_s) * 1000
    found: list[Unused] = []
    for table in (*ALL, TURNS, VERDICTS, *lake.user_tables()):
        found += _unused(lake, table, pinned.get(table.path), until_ms)
    return found


def vacuum(lake: Lake, older_than_s: float = OLDER_THAN_S) -> list[Unused]:
    """Delete the files that are not in use. The caller is the only writer. Return the deleted files."""
    found = unused_files(lake, older_than_s)
    files = lake.place.files()
    with store_errors(lake.place.uri):
        for each in found:
            files.delete_file(each.path)
    return found


def _unused(lake: Lake, table: Table, pinned: int | None, until_ms: float) -> list[Unused]:
    newest = TableLog(lake.place, table)
    used = {file.path for file in newest.files}
    if pinned is not None and pinned != newest.version:
        used |= {file.path for file in TableLog(lake.place, table, pinned).files}
    removed_at = _removed_at(lake, table)
    found = []
    for each in _stored(lake, table.path):
        path = each.path.removeprefix(f"{table.path}/")
        if path.startswith("_delta_log/") or path in used or not path.endswith(".parquet"):
            continue
        if removed_at.get(path, each.mtime.timestamp() * 1000 if each.mtime else 0) <= until_ms:
            found.append(Unused(each.path, each.size))
    return found


def _stored(lake: Lake, folder: str) -> list[Any]:
    with store_errors(lake.place.uri):
        found = lake.place.files().get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
    return [each for each in found if each.type == fs.FileType.File]


def _removed_at(lake: Lake, table: Table) -> dict[str, int]:
    """Return when files were removed from a table (ms), from its last checkpoint and the commits after it."""
    stored = {each.path.rpartition("/")[2]: each.path for each in _stored(lake, f"{table.path}/_delta_log")}
    checkpoints = sorted(name for name in stored if name.endswith(".checkpoint.parquet"))
    found: dict[str, int] = {}
    files = lake.place.files()
    with store_errors(lake.place.uri):
        if checkpoints:
            with files.open_input_file(stored[checkpoints[-1]]) as file:
                removed = pq.read_table(file, columns=["remove"])["remove"].drop_null().to_pylist()
            found |= {row["path"]: row["deletionTimestamp"] or 0 for row in removed}
        for name in sorted(stored):
            if name.endswith(".json") and name[:20].isdigit() and (not checkpoints or name[:20] > checkpoints[-1][:20]):
                with files.open_input_file(stored[name]) as file:
                    lines = file.read().decode().splitlines()
                for action in map(json.loads, filter(None, lines)):
                    if "remove" in action:
                        found[action["remove"]["path"]] = action["remove"].get("deletionTimestamp") or 0
    return found
