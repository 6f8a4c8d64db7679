"""Other programs read every table of a lake through its Delta log and find rows by any column."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.lake.delta import TableLog
from penstock.lake.files import FileWriter, write_table
from penstock.lake.lake import Lake
from penstock.lake.span import Span
from penstock.lake.tables import ALL, EVENTS, TURNS, VERDICTS, Table

NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
COUNT = 6

# A value of a column by its type and the number of the row. Days are equal in each half of the rows.
VALUES: dict[str, Callable[[int], Any]] = {
    "string": lambda n: f"text {n}",
    "binary": lambda n: b"bytes %d" % n,
    "bigint": lambda n: 10 * n,
    "int": lambda n: n,
    "smallint": lambda n: n,
    "tinyint": lambda n: n,
    "boolean": lambda n: n == 1,
    "timestamp": lambda n: NOON + datetime.timedelta(hours=n),
    "date": lambda n: NOON.date() + datetime.timedelta(n // 3),
    "map<string,binary>": lambda n: [("trace", b"%d" % n)],
}
TABLES = (*ALL, TURNS, VERDICTS)

# Returns the number of rows that have a value in a column.
Finder = Callable[[str, Any], int]


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return rows in which every third value is null, except for the day."""
    kinds = dict(table.columns)
    return [
        {
            name: None if name != table.by and (n + index) % 3 == 0 else VALUES[kind](n)
            for index, (name, kind) in enumerate(kinds.items())
        }
        for n in range(COUNT)
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with some rows in every table, in two files."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    with lake.writing():
        lake.create()
        for table in TABLES:
            for half in (rows_of(table)[:3], rows_of(table)[3:]):
                rows = pa.Table.from_pylist(half, table.arrow)
                TableLog(lake.place, table).commit(_written(lake, table, rows))
    return Lake(lake.place)


def _written(lake: Lake, table: Table, rows: pa.Table) -> list[Any]:
    if table is not EVENTS:
        return write_table(lake.place, table, rows, 1)
    writer = FileWriter(lake.place, table, str(rows["date"][0].as_py()), 1, Span("a" * 40, 0, 100))
    writer.write(rows.select(table.file_schema.names))
    return [writer.close()]


def by_pyarrow(path: str) -> Finder:
    table = DeltaTable(path)
    return lambda column, value: len(table.to_pyarrow_table(filters=[(column, "=", value)], columns=[column]))


def by_pyarrow_dataset(path: str) -> Finder:
    import pyarrow.dataset as ds

    found = DeltaTable(path).to_pyarrow_dataset()
    return lambda column, value: found.count_rows(filter=ds.field(column) == pa.scalar(value))


def by_pandas(path: str) -> Finder:
    table = DeltaTable(path)
    return lambda column, value: len(table.to_pandas(filters=[(column, "=", value)], columns=[column]))


def by_polars(path: str) -> Finder:
    import polars

    table: Any = polars.scan_delta(path)
    return lambda column, value: len(table.filter(polars.col(column) == value).select(column).collect())


def by_duckdb(path: str) -> Finder:
    import duckdb
    import duckdb_extension_delta

    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    base = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    base.execute(f"LOAD '{extension}'")
    base.execute(f"ATTACH '{path}' AS lake (TYPE delta, PIN_SNAPSHOT)")

    def find(column: str, value: Any) -> int:
        found = base.execute(f'SELECT count(*) FROM lake WHERE "{column}" = ?', [value]).fetchone()
        assert found is not None
        return int(found[0])

    return find


# The readers, and the package that each needs.
READERS: dict[str, tuple[str, Callable[[str], Finder]]] = {
    "pyarrow table": ("pyarrow", by_pyarrow),
    "pyarrow dataset": ("pyarrow", by_pyarrow_dataset),
    "pandas": ("pandas", by_pandas),
    "Polars": ("polars", by_polars),
    "DuckDB": ("duckdb_extension_delta", by_duckdb),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_filter_of_any_column_finds_the_rows_of_every_table(
    reader: str, lake: Lake, needs: Callable[[object, str], None]
) -> None:
    package, opened = READERS[reader]
    needs(find_spec(package), f"{package} is not installed")
    for table in TABLES:
        rows, find = rows_of(table), opened(f"{lake.place}/{table.path}")
        for column, kind in table.columns:
            if not kind.startswith("map"):  # No reader compares maps.
                there = [row[column] for row in rows if row[column] is not None]
                assert find(column, there[-1]) == there.count(there[-1]), (table.path, column)
        first, kind = table.columns[0]
        assert find(first, VALUES[kind](COUNT + 3)) == 0


def test_the_log_has_the_number_of_rows_of_a_file_and_no_limits(lake: Lake) -> None:
    for table in TABLES:
        (one, other) = pa.table(DeltaTable(f"{lake.place}/{table.path}").get_add_actions(flatten=True)).to_pylist()
        assert (one["num_records"], other["num_records"]) == (3, 3)
        limits = [name for name, value in one.items() if name.startswith(("min.", "max.", "null_count.")) and value]
        assert limits == [], table.path
