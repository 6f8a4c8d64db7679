"""Compaction: merges the small files of a day into few large ones with the same rows.

Files that are large enough are not touched, so a row is rewritten only a few times, however often compaction runs. In
silver and gold, rows with equal keys are also merged. Each day is a commit of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.delta import DataFile
from penstock.lake.files import FileWriter, read_table, write_table
from penstock.lake.lake import Lake
from penstock.lake.merging import merge
from penstock.lake.place import Place
from penstock.lake.tables import COVERAGE, DERIVED, EVENTS, SESSIONS, TUBES, Table
from penstock.pipeline.log_reader import DICTIONARIES
from penstock.pipeline.steps import after_step
from penstock.pipeline.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Target size. Files of at least half this size are not merged.
FILE_BYTES: Final = 128 * 1024 * 1024

# A running pipeline compacts a day when it has more small files than this.
MANY: Final = 64

# Small tables without days. The driver merges their files.
_FACTS: Final = (COVERAGE, TUBES, SESSIONS)


def compact(spark: SparkSession, lake: Lake, only_many: bool = False) -> tuple[int, int]:
    """Merge small files. Return the number of merged files, and of the files that replace them.

    With `only_many`, skip days that have few small files. The caller is the only writer.
    """
    before = after = 0
    reached = min(lake.digested(table) for table in DERIVED)
    for table in (*_FACTS, EVENTS, *DERIVED, *lake.user_tables()):
        for day in lake.days(table):
            small = [file for file in lake.files(table, [day]) if file.size < FILE_BYTES // 2]
            if table is EVENTS:
                # Silver and gold recognise the events that they lack by the names of files.
                small = [file for file in small if file.turn <= reached]
            if len(small) > (MANY if only_many else 1):
                made = _merge(spark, lake, table, small)
                after_step(f"before compaction of {table.path}")
                lake.log(table).commit(made, small, changes_data=False)
                before, after = before + len(small), after + len(made)
    if before:
        lake.close_turn()
    return before, after


def _merge(spark: SparkSession, lake: Lake, table: Table, files: list[DataFile]) -> list[DataFile]:
    place = lake.place
    if table in _FACTS:
        rows = read_table(place, table, files)
        # An interrupted turn may have left rows, which do not count.
        return write_table(place, table, rows.filter(pc.less_equal(rows["turn"], lake.turn)), 0)
    groups = groups_of(sorted(files, key=lambda file: (file.low.get("node", ""), file.low.get("position", 0))))
    return [file for some in run_tasks(spark, lambda group: merge_files(place, table, group), groups) for file in some]


def groups_of(files: list[DataFile]) -> list[list[DataFile]]:
    """Divide files into groups of about FILE_BYTES."""
    found: list[list[DataFile]] = [[]]
    for file in files:
        if found[-1] and sum(each.size for each in found[-1]) + file.size > FILE_BYTES:
            found.append([])
        found[-1].append(file)
    return found


def merge_files(place: Place, table: Table, files: list[DataFile]) -> list[DataFile]:
    """Write the merged rows of several files of a day to a new file. This runs in a Spark task."""
    if table == EVENTS:
        return [_merge_events(place, files)]
    return write_table(place, table, merge(table, read_table(place, table, files)), 0)


def _merge_events(place: Place, files: list[DataFile]) -> DataFile:
    """Copy events, a row group at a time. There are too many of them to read all at once."""
    writer = FileWriter(place, EVENTS, files[0].day, 0)
    folder = place.sub(EVENTS.path).files()
    for file in files:
        with folder.open_input_file(file.path) as stored:
            # As dictionaries, texts are copied as integers.
            found = pq.ParquetFile(stored, read_dictionary=list(DICTIONARIES), page_checksum_verification=True)
            for group in range(found.num_row_groups):
                writer.write(found.read_row_group(group))
    return writer.close()
