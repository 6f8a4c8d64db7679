"""Which files compaction merges, and the merged files, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.lake.delta import DataFile
from penstock.lake.files import FileWriter, read_table
from penstock.lake.lake import Lake
from penstock.lake.place import Place
from penstock.lake.span import Span
from penstock.lake.tables import EVENTS
from penstock.pipeline.compact import FILE_BYTES, merge_files, mergeable_files

DAY = "2026-11-16"
HERE, THERE = "a" * 40, "b" * 40


def file(node: str, start: int, size: int = 100) -> DataFile:
    return DataFile(f"date={DAY}/00000001-{node}-{start}-{start + 10}-f.parquet", size, 10, DAY)


def test_the_small_files_of_each_node_are_merged_in_order_of_their_positions() -> None:
    here = [file(HERE, 20), file(HERE, 0), file(HERE, 10)]
    there = [file(THERE, 10), file(THERE, 0)]
    large = file(HERE, 30, FILE_BYTES)
    found = mergeable_files([here[0], there[0], large, *here[1:], *there[1:]])
    assert [[each.span for each in some] for some in found] == [
        [Span(HERE, 0, 10), Span(HERE, 10, 20), Span(HERE, 20, 30)],
        [Span(THERE, 0, 10), Span(THERE, 10, 20)],
    ]


def test_files_of_many_nodes_are_not_merged_if_each_node_has_one() -> None:
    assert mergeable_files([file(f"{number:040x}", 0) for number in range(200)]) == []


def written(place: Place, start: int, span: Span | None) -> DataFile:
    rows = [{"node": HERE, "position": at, "event": "put"} for at in range(start, start + 10)]
    writer = FileWriter(place, EVENTS, DAY, 1, span)
    writer.write(pa.Table.from_pylist(rows, EVENTS.file_schema))
    return writer.close()


def test_a_merged_file_has_the_positions_of_all_its_files(tmp_path: Path) -> None:
    place = Lake(tmp_path).place
    files = [written(place, start, Span(HERE, start, start + 10)) for start in (0, 10, 20)]
    (merged,) = merge_files(place, EVENTS, files)
    assert (merged.turn, merged.rows, merged.span) == (0, 30, Span(HERE, 0, 30))
    assert read_table(place, EVENTS, [merged])["position"].to_pylist() == list(range(30))
    # A file of an older version may have unknown positions.
    (unknown,) = merge_files(place, EVENTS, [merged, written(place, 30, None)])
    assert (unknown.rows, unknown.span) == (40, None)
