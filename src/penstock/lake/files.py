"""Writes and reads the Parquet files of a table. Files get unique names, and exist for readers only after a commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.lake.delta import DataFile
from penstock.lake.errors import BadLake
from penstock.lake.place import Place, store_errors
from penstock.lake.span import Span
from penstock.lake.tables import Table

# Rows of a row group. Readers skip row groups by their statistics, so smaller ones are found faster.
ROW_GROUP_ROWS: Final = 256 * 1024

# Pages have checksums, so that a changed byte is an error and not a wrong number.
_FORMAT: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


def new_path(table: Table, day: str, turn: int, span: Span | None = None) -> str:
    """Return a path for a new file: TURN-ID.parquet, or TURN-NODE-START-END-ID.parquet for a file with a span.

    Readers skip files of events by these positions. If `turn` is 0, the name starts with `compact`.
    """
    positions = f"-{span.node}-{span.start}-{span.end}" if span else ""
    name = f"{f'{turn:08d}' if turn else 'compact'}{positions}-{uuid.uuid4().hex}.parquet"
    return f"{table.by}={day}/{name}" if table.by else name


class FileWriter:
    """Writes one file in several steps. `close` makes it durable and returns its facts."""

    def __init__(self, place: Place, table: Table, day: str, turn: int, span: Span | None = None) -> None:
        """`span` contains the positions of all events of the file, as far as they are known before it is written."""
        self._table = table
        self._day = day
        self._path = new_path(table, day, turn, span)
        self._file = place.sub(table.path).writing(self._path)
        self._out = self._file.__enter__()
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows. The columns are those of the table without its partition column. Texts may be dictionaries."""
        if self._writer is None:
            # Without Arrow's own schema in the file, dictionaries are read as plain texts.
            self._writer = pq.ParquetWriter(
                self._out,
                rows.schema,
                compression="zstd",
                store_schema=False,
                use_dictionary=_texts(self._table),
                write_page_checksum=True,
            )
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._rows += len(rows)

    def close(self) -> DataFile:
        assert self._writer is not None, "a file has at least one row"
        self._writer.close()
        size = self._out.tell()
        self._file.__exit__(None, None, None)
        return DataFile(self._path, size, self._rows, self._day)

    def discard(self) -> None:
        """End writing without a result. `vacuum` deletes the file."""
        if self._writer is not None:
            self._writer.close()
        self._file.__exit__(None, None, None)


def write_table(place: Place, table: Table, rows: pa.Table, turn: int) -> list[DataFile]:
    """Write rows of a table to new files, one for each day. Return the facts about them."""
    if not table.by:
        return [_write(place, table, rows, "", turn)] if len(rows) else []
    days = rows[table.by]
    found = []
    for day in pc.unique(days):
        some = rows.filter(pc.equal(days, day)) if len(rows) else rows
        found.append(_write(place, table, some, str(day.as_py()), turn))
    return found


def _write(place: Place, table: Table, rows: pa.Table, day: str, turn: int) -> DataFile:
    writer = FileWriter(place, table, day, turn)
    writer.write(rows.select(table.file_schema.names).cast(table.file_schema))
    return writer.close()


def read_table(
    place: Place, table: Table, files: Iterable[DataFile], only: Any = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the rows of some files of a table. `only` is a filter of pyarrow."""
    wanted = list(columns) if columns is not None else table.arrow.names
    parts = [read_file(place, table, file, only, wanted) for file in files]
    schema = pa.schema([table.arrow.field(name) for name in wanted])
    return pa.concat_tables([schema.empty_table(), *parts])


def read_file(place: Place, table: Table, file: DataFile, only: Any, columns: Sequence[str]) -> pa.Table:
    stored = [name for name in columns if name != table.by]
    with store_errors(f"{place}/{table.path}/{file.path}"):
        fragment = _FORMAT.make_fragment(file.path, place.sub(table.path).files())
        if not set(fragment.physical_schema.names) <= set(table.file_schema.names):
            raise BadLake(
                f"{place}/{table.path}/{file.path} has other columns than its table; it was damaged or replaced"
            )
        found = fragment.to_table(schema=table.file_schema, columns=stored, filter=only)
    if table.by in columns:
        day = pa.scalar(date.fromisoformat(file.day), pa.date32())
        found = found.append_column(table.by, pa.repeat(day, len(found)))
    return found.select(list(columns))


def _texts(table: Table) -> list[str]:
    """Return the columns that repeat few values, for which Parquet's dictionaries are worth their cost."""
    few = ("string", "int", "boolean")
    return [name for name, kind in table.columns if kind in few and name != table.by]
