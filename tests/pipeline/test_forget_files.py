"""The tasks of `forget` that read and write files, without Spark."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.delta import DataFile
from penstock.lake.files import FileWriter
from penstock.lake.lake import Lake
from penstock.lake.place import Place
from penstock.lake.tables import EVENTS
from penstock.pipeline.forget import jobs_in, matches_in, without_jobs

NODE = "n"
DAY = "2026-11-16"
NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


def events(tubes: list[str]) -> pa.Table:
    """Return one event for each name, whose column of tubes is a dictionary as in a task that copies a log."""
    rows = [
        {"node": NODE, "position": at, "job": at, "time": NOON, "event": "put", "tube": tube, "key": tube.encode()}
        for at, tube in enumerate(tubes)
    ]
    found = pa.Table.from_pylist(rows, EVENTS.file_schema)
    at = found.schema.get_field_index("tube")
    return found.set_column(at, "tube", found["tube"].dictionary_encode())


def write(place: Place, rows: pa.Table) -> DataFile:
    writer = FileWriter(place, EVENTS, DAY, 1)
    writer.write(rows)
    return writer.close()


def test_jobs_are_found_by_tube_and_key(tmp_path: Path) -> None:
    place = Lake(tmp_path).place
    files = [write(place, events(["a", "b"])), write(place, events(["b", "b", "a"]))]
    assert jobs_in(place, files, "b", ())[NODE].tolist() == [0, 1]
    assert jobs_in(place, files, "a", (b"a",))[NODE].tolist() == [0, 2]
    assert jobs_in(place, files, "a", (b"b",)) == {}


def test_a_file_is_written_again_without_the_names_of_erased_tubes(tmp_path: Path) -> None:
    place = Lake(tmp_path).place
    # The rows of the tube are in another file, but the dictionary of this file still has its name.
    file = write(place, events(["kept", "quokka", "kept"]).filter(pa.array([True, False, True])))
    stored = Path(place.uri, EVENTS.path)
    assert b"quokka" in (stored / file.path).read_bytes()
    jobs, starts = {NODE: np.array([1])}, {NODE: np.array([0])}
    assert matches_in(place, [file], jobs, starts) == []
    assert matches_in(place, [file], jobs, starts, "quokka") == [(file, 0, set())]
    new = without_jobs(place, file, jobs)
    assert new is not None and new.rows == 2
    assert b"quokka" not in (stored / new.path).read_bytes()
    assert pq.ParquetFile(stored / new.path).read()["position"].to_pylist() == [0, 2]


def test_a_file_with_only_erased_jobs_is_not_replaced(tmp_path: Path) -> None:
    place = Lake(tmp_path).place
    file = write(place, events(["a", "b"]))
    jobs = {NODE: np.array([0, 1])}
    assert matches_in(place, [file], jobs, {NODE: np.array([0, 1])}) == [(file, 2, {(NODE, 0), (NODE, 1)})]
    assert without_jobs(place, file, jobs) is None
