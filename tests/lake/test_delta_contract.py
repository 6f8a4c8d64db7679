"""The behaviour of deltalake that the lake relies on. A new release of deltalake has to pass these tests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.string())])
HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True)


def create(place: Path, **settings: str) -> DeltaTable:
    configuration: dict[str, str | None] = {name.replace("_", "."): value for name, value in settings.items()}
    return DeltaTable.create(
        str(place), SCHEMA, partition_by=["day"], configuration=configuration, raise_if_key_not_exists=False
    )


def add(place: Path, name: str, numbers: list[int], day: str = "one", **facts: Any) -> AddAction:
    """Write a file of the table. Return the action that adds it."""
    path = place / f"day={day}" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"number": numbers}), path)
    statistics = json.dumps({"numRecords": len(numbers), **facts})
    return AddAction(f"day={day}/{name}", path.stat().st_size, {"day": day}, 0, True, statistics)


def remove(added: AddAction) -> RemoveAction:
    return RemoveAction(added.path, True, int(time.time() * 1000), added.size, added.partition_values)


def commit(table: DeltaTable, *actions: Any, **counters: int) -> None:
    transactions = [Transaction(name, value) for name, value in counters.items()]
    table.create_write_transaction(
        list(actions),
        "append",
        SCHEMA,
        partition_by=["day"],
        commit_properties=CommitProperties({"note": "ours"}, max_commit_retries=0, app_transactions=transactions),
        post_commithook_properties=HOOKS,
    )
    table.update_incremental()


def numbers(place: Path, version: int | None = None) -> list[int]:
    """Return the rows that a reader sees."""
    return sorted(DeltaTable(str(place), version).to_pyarrow_table()["number"].to_pylist())


def log_of(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "_delta_log").iterdir())


def test_a_table_has_the_protocol_that_every_reader_supports(tmp_path: Path) -> None:
    table = create(tmp_path, delta_checkpointInterval="10", penstock_setting="kept")
    commit(table, add(tmp_path, "a.parquet", [1]), counter=1)
    protocol = DeltaTable(str(tmp_path)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features and not protocol.writer_features
    assert DeltaTable(str(tmp_path)).metadata().configuration["penstock.setting"] == "kept"


def test_a_missing_table_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        DeltaTable(str(tmp_path))


def test_one_commit_adds_files_removes_files_and_sets_counters(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = add(tmp_path, "a.parquet", [1, 2])
    commit(table, first, node=10, turn=1)
    commit(table, add(tmp_path, "b.parquet", [3], "two"), remove(first), turn=2)
    assert table.version() == 2
    assert (numbers(tmp_path), numbers(tmp_path, 1)) == ([3], [1, 2])
    fresh = DeltaTable(str(tmp_path))
    counters = [fresh.transaction_version(name) for name in ("node", "turn", "other")]
    assert counters == [10, 2, None]
    assert DeltaTable(str(tmp_path), 1).transaction_version("turn") == 1
    assert fresh.history(1)[0]["note"] == "ours"


def test_the_facts_about_a_file_are_readable(tmp_path: Path) -> None:
    table = create(tmp_path)
    commit(table, add(tmp_path, "a.parquet", [1, 2], "two"))
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert [(row["path"], row["num_records"], row["partition.day"]) for row in found] == [
        ("day=two/a.parquet", 2, "two")
    ]


def test_a_commit_to_a_table_that_has_changed_is_refused(tmp_path: Path) -> None:
    create(tmp_path)
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    commit(one, add(tmp_path, "a.parquet", [1]), turn=1)
    with pytest.raises(CommitFailedError):
        commit(other, add(tmp_path, "b.parquet", [2]), turn=1)
    assert numbers(tmp_path) == [1]
    assert DeltaTable(str(tmp_path)).version() == 1


def test_a_counter_alone_refuses_nothing(tmp_path: Path) -> None:
    # Therefore the lake reads a counter before each commit.
    table = create(tmp_path)
    commit(table, add(tmp_path, "a.parquet", [1]), turn=1)
    commit(table, add(tmp_path, "b.parquet", [2]), turn=1)
    assert numbers(tmp_path) == [1, 2]


def test_a_file_can_be_removed_only_once(tmp_path: Path) -> None:
    table = create(tmp_path)
    first = add(tmp_path, "a.parquet", [1])
    commit(table, first)
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    commit(one, remove(first))
    with pytest.raises(CommitFailedError):
        commit(other, remove(first), add(tmp_path, "b.parquet", [1]))
    assert numbers(tmp_path) == []


def test_checkpoints_are_written_every_ten_commits_and_counters_survive_them(tmp_path: Path) -> None:
    table = create(tmp_path, delta_checkpointInterval="10")
    for turn in range(1, 26):
        commit(table, add(tmp_path, f"{turn}.parquet", [turn]), turn=turn, **({"once": 7} if turn == 1 else {}))
    assert [name for name in log_of(tmp_path) if "checkpoint" in name] == [
        "00000000000000000009.checkpoint.parquet",
        "00000000000000000019.checkpoint.parquet",
        "_last_checkpoint",
    ]
    # Only the log after the checkpoint is left.
    for version in range(19):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    fresh = DeltaTable(str(tmp_path))
    assert (fresh.transaction_version("turn"), fresh.transaction_version("once")) == (25, 7)
    assert numbers(tmp_path) == list(range(1, 26))


def test_log_files_that_are_older_than_the_retention_are_deleted_after_a_checkpoint(tmp_path: Path) -> None:
    table = create(tmp_path, delta_checkpointInterval="10", delta_logRetentionDuration="interval 0 days")
    for turn in range(1, 22):
        commit(table, add(tmp_path, f"{turn}.parquet", [turn]), turn=turn)
    names = log_of(tmp_path)
    assert "00000000000000000000.json" not in names and "00000000000000000021.json" in names
    fresh = DeltaTable(str(tmp_path))
    assert (fresh.transaction_version("turn"), numbers(tmp_path)) == (21, list(range(1, 22)))


def test_a_filter_finds_rows_by_a_column_without_limits_only_if_no_column_has_limits(tmp_path: Path) -> None:
    # This is a defect of deltalake. Because of it, the logs of a lake have no limits, and files of events have their
    # positions in their names. If this test fails, the defect is gone.
    table = create(tmp_path)
    commit(table, add(tmp_path, "a.parquet", [1, 2]), add(tmp_path, "b.parquet", [1, 2], minValues={}, maxValues={}))
    assert table.to_pyarrow_table(filters=[("number", "=", 2)])["number"].to_pylist() == [2]
    assert numbers(tmp_path) == [1, 1, 2, 2]
