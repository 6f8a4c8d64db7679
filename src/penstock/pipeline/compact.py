"""Compaction: merges the small files of a day into few large ones with the same rows.

Files that are large enough are not touched, so a row is rewritten only a few times, however often compaction runs. In
silver and gold, rows with equal keys are also merged. Events are merged by node, so that a file has the positions of
one node. Each day is a commit of its own.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.delta import DataFile
from penstock.lake.files import FileWriter, read_table, write_table
from penstock.lake.lake import Lake
from penstock.lake.merging import merge
from penstock.lake.place import Place
from penstock.lake.span import Span
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

# The tables in the order in which they are compacted. Tables of users follow.
COMPACTED: Final = (*_FACTS, EVENTS, *DERIVED)


def compact(spark: SparkSession, lake: Lake, only_many: bool = False) -> tuple[int, int]:
    """Merge small files. Return the number of merged files, and of the files that replace them.

    With `only_many`, skip days that have few small files. The caller is the only writer.
    """
    before = after = 0
    reached = min(lake.digested(table) for table in DERIVED)
    for table in (*COMPACTED, *lake.user_tables()):
        for day in lake.days(table):
            files = lake.files(table, [day])
            if table is EVENTS:
                # Silver and gold recognise the events that they lack by the names of files.
                files = [file for file in files if file.turn <= reached]
            mergeable = mergeable_files(files)
            if sum(len(some) - 1 for some in mergeable) >= (MANY if only_many else 1):
                old = [file for some in mergeable for file in some]
                made = _merge(spark, lake, table, mergeable)
                after_step(f"before compaction of {table.path}")
                lake.log(table).commit(made, old, changes_data=False)
                before, after = before + len(old), after + len(made)
    if before:
        after_step("before _turns")
        lake.close_turn()
    return before, after


def mergeable_files(files: list[DataFile]) -> list[list[DataFile]]:
    """Return the small files of each node that has several. In tables without nodes, all files are of one group."""
    found: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < FILE_BYTES // 2:
            found.setdefault(file.span.node if file.span else "", []).append(file)
    return [sorted(some, key=_first_position) for some in found.values() if len(some) > 1]


def _first_position(file: DataFile) -> int:
    return file.span.start if file.span else 0


def _merge(spark: SparkSession, lake: Lake, table: Table, mergeable: list[list[DataFile]]) -> list[DataFile]:
    place = lake.place
    if table in _FACTS:
        rows = read_table(place, table, [file for some in mergeable for file in some])
        # An interrupted turn may have left rows, which do not count.
        return write_table(place, table, rows.filter(pc.less_equal(rows["turn"], lake.turn)), 0)
    groups = [group for some in mergeable for group in groups_of(some)]
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
    known = [file.span for file in files if file.span]
    span = reduce(Span.joined, known) if len(known) == len(files) else None
    writer = FileWriter(place, EVENTS, files[0].day, 0, span)
    folder = place.sub(EVENTS.path).files()
    for file in files:
        with folder.open_input_file(file.path) as stored:
            # As dictionaries, texts are copied as integers.
            found = pq.ParquetFile(stored, read_dictionary=list(DICTIONARIES), page_checksum_verification=True)
            for group in range(found.num_row_groups):
                writer.write(found.read_row_group(group))
    return writer.close()
