"""A lake: its tables, turns and counters, its consistent view, and what is refused. Without Spark."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from penstock.lake.delta import DataFile, TableLog
from penstock.lake.errors import BadLake, BadPlace, LakeInUse, NoLake
from penstock.lake.files import FileWriter, read_table, write_table
from penstock.lake.lake import DIGEST, VERSION, Lake
from penstock.lake.span import Span
from penstock.lake.tables import COVERAGE, EVENTS, TURNS, Table, gold_table

RATES = gold_table("rates")
DAY = datetime.date(2026, 11, 16)
NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


def rates(puts: int, day: datetime.date = DAY) -> pa.Table:
    return pa.Table.from_pylist([{"tube": "mail", "minute": NOON, "puts": puts, "date": day}], RATES.arrow)


def block(turn: int, start: int, end: int, node: str = "n") -> dict[str, Any]:
    return {"turn": turn, "node": node, "start": start, "end": end, "events": end - start}


def events(lake: Lake, turn: int, first: int, end: int, days: int = 1) -> list[DataFile]:
    """Write events at some positions to files."""
    rows = [
        {"node": "n", "position": at, "time": NOON, "event": "put", "date": DAY + datetime.timedelta(at % days)}
        for at in range(first, end)
    ]
    return write_table(lake.place, EVENTS, pa.Table.from_pylist(rows, EVENTS.arrow), turn)


def run_turn(lake: Lake, turn: int, first: int, end: int, puts: int = 1) -> None:
    """Add a turn to bronze and to one gold table."""
    with lake.writing():
        lake.create()
        lake.set_facts(COVERAGE, turn, pa.Table.from_pylist([block(turn, first, end)], COVERAGE.arrow))
        lake.commit_events(turn, events(lake, turn, first, end), {"n": end}, {})
        lake.log(RATES).commit(write_table(lake.place, RATES, rates(puts), turn), (), {DIGEST: turn})
        lake.close_turn(turn)


def puts(lake: Lake) -> list[int]:
    return sorted(lake.read(RATES)["puts"].to_pylist())


# ---- Turns


def test_a_turn_is_committed_with_its_positions(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert not lake.exists
    with pytest.raises(NoLake, match="holds no lake; create one with"):
        lake.require_exists()
    run_turn(lake, 1, 0, 10)
    run_turn(lake, 2, 10, 15, puts=5)
    fresh = Lake(tmp_path / "lake").require_exists()
    assert (fresh.turn, fresh.position("n"), fresh.position("other"), fresh.digested(RATES)) == (2, 15, 0, 2)
    assert (fresh.rows(EVENTS), puts(fresh), fresh.days(RATES)) == (15, [1, 5], [str(DAY)])
    assert [file.turn for file in fresh.files(EVENTS)] == [1, 2]
    assert fresh.bytes(EVENTS) == sum(path.stat().st_size for path in tmp_path.glob("lake/bronze/events/*/*.parquet"))
    assert (tmp_path / "lake").stat().st_mode & 0o777 == 0o700


def test_a_pinned_lake_shows_all_tables_at_the_same_turn(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    pinned = Lake(tmp_path).pin()
    with (lake := Lake(tmp_path)).writing():  # Another turn, which does not end.
        lake.commit_events(2, events(lake, 2, 10, 15), {"n": 15}, {})
    assert (pinned.turn, pinned.rows(EVENTS)) == (1, 10)
    late = Lake(tmp_path).pin()
    assert (late.turn, late.rows(EVENTS), puts(late)) == (1, 10, [1])
    late.reload()
    assert (late.turn, late.rows(EVENTS)) == (2, 15)


def test_a_lake_that_has_been_read_does_not_change_until_it_is_reloaded(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    lake = Lake(tmp_path)
    assert lake.turn == 1
    run_turn(Lake(tmp_path), 2, 10, 20)
    assert (lake.turn, lake.rows(EVENTS)) == (1, 10)
    lake.reload()
    assert (lake.turn, lake.rows(EVENTS)) == (2, 20)


def test_facts_of_an_interrupted_turn_do_not_count_and_are_replaced(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    lake = Lake(tmp_path)
    # The turn ends before its events are committed. The next attempt reads further.
    lake.set_facts(COVERAGE, 2, pa.Table.from_pylist([block(2, 10, 20)], COVERAGE.arrow))
    assert [(row["start"], row["end"]) for row in Lake(tmp_path).coverage()] == [(0, 10)]
    run_turn(Lake(tmp_path), 2, 10, 30)
    assert [(row["start"], row["end"]) for row in Lake(tmp_path).coverage()] == [(0, 10), (10, 30)]
    assert len(Lake(tmp_path).files(COVERAGE)) == 2


def test_coverage_is_in_order_of_nodes_and_positions(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    rows = [block(1, 10, 20), block(1, 0, 10), block(1, 5, 6, "a")]
    lake.set_facts(COVERAGE, 1, pa.Table.from_pylist(rows, COVERAGE.arrow))
    lake.commit_events(1, [], {"n": 20}, {})
    assert [(row["node"], row["start"]) for row in lake.coverage()] == [("a", 5), ("n", 0), ("n", 10)]


def test_versions_of_all_tables_are_one_small_file(tmp_path: Path) -> None:
    for turn in (1, 2, 3):
        run_turn(Lake(tmp_path), turn, 10 * turn, 10 * turn + 10)
    rows = read_table(Lake(tmp_path).place, TURNS, TableLog(Lake(tmp_path).place, TURNS).files).to_pylist()
    assert {row["turn"] for row in rows} == {3}
    assert {row["table"]: row["version"] for row in rows} == {EVENTS.path: 3, COVERAGE.path: 3, RATES.path: 3}


# ---- Files


def test_rows_are_written_to_one_file_for_each_day_and_read_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    files = events(lake, 7, 0, 10, days=2)
    assert [(file.day, file.rows, file.turn) for file in files] == [("2026-11-16", 5, 7), ("2026-11-17", 5, 7)]
    assert [file.span for file in files] == [None, None]
    lake.commit_events(7, files, {"n": 10}, {})
    assert lake.read(EVENTS)["position"].to_pylist() == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    assert lake.read(EVENTS, ["2026-11-17"])["date"].unique().to_pylist() == [datetime.date(2026, 11, 17)]
    some = read_table(lake.place, EVENTS, lake.files(EVENTS), pc.field("position") > 7, ["position", "date"])
    assert some.to_pylist() == [{"position": 8, "date": DAY}, {"position": 9, "date": datetime.date(2026, 11, 17)}]
    assert lake.read(EVENTS, []).schema == EVENTS.arrow


def test_a_file_is_written_in_several_steps(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    writer = FileWriter(lake.place, RATES, str(DAY), 0)
    for count in (3, 1):
        writer.write(rates(count).select(RATES.file_schema.names))
    file = writer.close()
    assert (file.rows, file.turn) == (2, 0)
    assert file.size == (tmp_path / RATES.path / file.path).stat().st_size
    assert read_table(lake.place, RATES, [file])["puts"].to_pylist() == [3, 1]


@pytest.mark.parametrize("turn", [0, 7])
def test_the_name_of_a_file_has_its_turn_and_its_positions(tmp_path: Path, turn: int) -> None:
    lake, span = Lake(tmp_path), Span("a" * 40, 10, 20)
    lake.create()
    rows = pa.Table.from_pylist([{"node": span.node, "position": 12, "event": "put"}], EVENTS.file_schema)
    writer = FileWriter(lake.place, EVENTS, str(DAY), turn, span)
    writer.write(rows)
    lake.commit_events(7, [writer.close()], {}, {})
    (file,) = Lake(tmp_path).files(EVENTS)
    assert (file.turn, file.span) == (turn, span)


def test_files_of_an_older_version_have_their_positions_in_the_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    limits = {
        "00000001-one.parquet": (("a", 10), ("a", 19)),
        "compact-several.parquet": (("a", 10), ("b", 19)),
    }
    for name, (low, high) in limits.items():
        low_values, high_values = (dict(zip(("node", "position"), each)) for each in (low, high))
        statistics = {"numRecords": 1, "minValues": low_values, "maxValues": high_values, "nullCount": {}}
        action = AddAction(f"date={DAY}/{name}", 100, {"date": str(DAY)}, 0, True, json.dumps(statistics))
        DeltaTable(str(tmp_path / EVENTS.path)).create_write_transaction([action], "append", EVENTS.arrow, ["date"])
    assert [(file.turn, file.span) for file in Lake(tmp_path).files(EVENTS)] == [(1, Span("a", 10, 20)), (0, None)]


@pytest.mark.parametrize(
    ("other", "overlaps", "joined"),
    [
        (Span("a", 20, 30), False, (10, 30)),
        (Span("a", 19, 20), True, (10, 20)),
        (Span("a", 0, 11), True, (0, 20)),
        (Span("a", 0, 10), False, (0, 20)),
        (Span("b", 10, 20), False, None),
    ],
)
def test_spans_overlap_if_they_have_a_position_of_the_same_node(
    other: Span, overlaps: bool, joined: tuple[int, int] | None
) -> None:
    span = Span("a", 10, 20)
    assert span.overlaps(other) == other.overlaps(span) == overlaps
    if joined is not None:
        assert span.joined(other) == other.joined(span) == Span("a", *joined)


def test_files_do_not_exist_for_readers_before_the_commit(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    events(Lake(tmp_path), 2, 10, 20)
    assert Lake(tmp_path).rows(EVENTS) == 10
    assert len(DeltaTable(str(tmp_path / EVENTS.path)).to_pyarrow_table()) == 10


# ---- Logs


def test_files_are_replaced_in_one_commit_and_the_counters_stay(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10, puts=3)
    log = Lake(tmp_path).log(RATES)
    log.commit(write_table(Lake(tmp_path).place, RATES, rates(4), 0), log.files, changes_data=False)
    fresh = Lake(tmp_path)
    assert (puts(fresh), fresh.digested(RATES), fresh.log(RATES).version) == ([4], 1, log.version)
    assert [file.turn for file in fresh.files(RATES)] == [0]


def test_a_missing_table_is_empty(tmp_path: Path) -> None:
    log = TableLog(Lake(tmp_path).place, RATES)
    assert (log.exists, log.version, log.files, log.rows, log.counter(DIGEST), log.settings) == (
        (False, -1, [], 0, 0, {})
    )
    assert list(tmp_path.iterdir()) == []


def test_many_turns_leave_a_short_log_that_is_still_complete(tmp_path: Path) -> None:
    log = TableLog(Lake(tmp_path).place, RATES)
    for turn in range(1, 31):
        log.commit(write_table(Lake(tmp_path).place, RATES, rates(turn), turn), (), {DIGEST: turn})
    fresh = TableLog(Lake(tmp_path).place, RATES)
    assert (fresh.counter(DIGEST), fresh.rows) == (30, 30)
    assert len(list(tmp_path.glob(f"{RATES.path}/_delta_log/*.checkpoint.parquet"))) == 3


# ---- Refusals


def test_only_one_writer_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(LakeInUse, match="is in use by another writer")
    with Lake(tmp_path).writing(), refused, Lake(tmp_path).writing():
        pass
    with Lake(tmp_path).writing():
        pass


def test_a_writer_that_has_not_seen_the_newest_commit_is_refused(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    late = Lake(tmp_path)
    assert late.turn == 1
    run_turn(Lake(tmp_path), 2, 10, 20)
    with pytest.raises(LakeInUse, match="was changed by another writer; only one pipeline can write to a lake"):
        late.commit_events(2, events(late, 2, 10, 20), {"n": 20}, {})
    assert Lake(tmp_path).rows(EVENTS) == 20


def test_the_grain_cannot_change(tmp_path: Path) -> None:
    Lake(tmp_path).create("second")
    lake = Lake(tmp_path)
    lake.create()
    assert lake.grain == "second"
    with pytest.raises(BadLake, match="counts by the second; create another lake to count by the minute"):
        lake.create("minute")


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    log = TableLog(Lake(tmp_path).place, EVENTS)
    log.create({"penstock.lakeVersion": str(VERSION + 1)})
    with pytest.raises(BadLake, match="was written by a newer version of Penstock"):
        Lake(tmp_path)


def test_a_lake_of_an_older_version_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "_state").mkdir()
    (tmp_path / "_state" / "manifest.json").write_text("{}")
    with pytest.raises(BadLake, match="is a lake of an older version; convert it with `penstock pipeline convert"):
        Lake(tmp_path)


def test_another_delta_table_is_refused(tmp_path: Path) -> None:
    other = Table(EVENTS.path, (("number", "bigint"),))
    TableLog(Lake(tmp_path).place, other).create()
    with pytest.raises(BadLake, match="is a Delta table, but not one of a lake; choose another place"):
        Lake(tmp_path)


def test_a_folder_that_is_a_delta_table_is_refused(tmp_path: Path) -> None:
    TableLog(Lake(tmp_path).place, Table("other", (("number", "bigint"),))).create()
    with pytest.raises(BadLake, match="other is a Delta table, but not a lake; choose another place"):
        Lake(tmp_path / "other")


def test_a_file_is_not_a_lake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadPlace, match="file is a file and cannot be a lake; name a directory"):
        Lake(tmp_path / "file")


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed" / "lake"
    closed.parent.mkdir(mode=0o500)
    # Root may write to every directory, but not to /proc.
    for place in [Path("/proc/lake")] if os.geteuid() == 0 else [closed]:
        with pytest.raises(BadPlace, match=r"Permission denied|No such file") as error, Lake(place).writing():
            pass
        assert str(error.value).startswith(f"{place}: ")


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    (tmp_path / RATES.path / "_delta_log" / "00000000000000000000.json").write_text("{broken")
    with pytest.raises(BadLake, match=r"gold/rates: the table cannot be read") as error:
        Lake(tmp_path).log(RATES)
    assert "\n" not in str(error.value)


def test_a_deleted_file_is_named(tmp_path: Path) -> None:
    run_turn(Lake(tmp_path), 1, 0, 10)
    path = next(tmp_path.glob(f"{RATES.path}/*/*.parquet"))
    path.unlink()
    with pytest.raises(BadPlace, match=path.name) as error:
        puts(Lake(tmp_path))
    assert "\n" not in str(error.value)
