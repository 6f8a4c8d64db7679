"""The writer of a task, without Java: each row becomes one job, also if the task is retried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructField, StructType

from penstock.client.commands import REPEAT, Call
from penstock.core.errors import BadAnswer, WrongType
from penstock.spark import SourceError
from penstock.spark.jobs import columns as job_columns
from penstock.spark.jobs.options import WriteOptions
from penstock.spark.jobs.source import _check_schema
from penstock.spark.jobs.stage import FilledStage
from penstock.spark.jobs.write import JobsStreamWriter, JobsWriter, TaskResult
from penstock.spark.node import Node

from .test_jobs_stream import there


def rows(*values: dict[str, Any], **kinds: pa.DataType) -> pa.RecordBatch:
    """Return a batch with these columns, as Spark passes it to a writer."""
    return pa.RecordBatch.from_pylist(list(values), pa.schema(kinds))


@pytest.fixture
def writer(url: str, queue: Any, tube: str) -> Callable[..., JobsWriter]:
    """Creates writers to the tube of the test."""
    queue.tube(tube)

    def made(batch: pa.RecordBatch, **options: str) -> JobsWriter:
        return JobsWriter(WriteOptions.read({"url": url, "tube": tube, **options}), tuple(batch.schema.names))

    return made


def test_rows_without_a_dedup_value_are_staged_and_the_others_are_put_directly(
    writer: Callable[..., JobsWriter], queue: Any, tube: str
) -> None:
    some = [{"body": str(number), "dedup": str(number) if number % 2 else None} for number in range(10)]
    batch = rows(*some, {"body": None, "dedup": None}, body=pa.string(), dedup=pa.string())
    for _ in range(2):  # A task that fails at its last row and is retried.
        with pytest.raises(SourceError, match="the body of a row is null"):
            writer(batch).write(iter([batch]))
    assert there(queue.tube(tube).stats()) == {"ready": 5}
    good = writer(batch)
    good.commit([good.write(iter([batch.slice(0, 10)]))])
    assert sorted(job.body for job in queue.tube(tube).jobs("ready")) == [str(number) for number in range(10)]


def test_a_row_has_a_map_of_headers(writer: Callable[..., JobsWriter], queue: Any, tube: str) -> None:
    some: list[dict[str, Any]] = [
        {"body": "staged", "headers": [("trace", b"1"), ("raw", b"\xff"), ("null", None)]},
        {"body": "put directly", "unique": "u", "headers": [("trace", b"2")]},
        {"body": "none", "headers": None},
        {"body": "empty", "headers": []},
    ]
    batch = rows(*some, body=pa.string(), unique=pa.string(), headers=pa.map_(pa.string(), pa.binary()))
    good = writer(batch)
    good.commit([good.write(iter([batch]))])
    found = {job.body: job.headers for job in queue.tube(tube).jobs("ready")}
    assert found == {
        "staged": {"trace": "1", "raw": "\udcff"},
        "put directly": {"trace": "2"},
        "none": {},
        "empty": {},
    }


@pytest.mark.parametrize(
    ("kind", "is_accepted"),
    [
        ("map<string,string>", True),
        ("map<string,binary>", True),
        ("map<string,int>", False),
        ("map<int,string>", False),
        ("string", False),
    ],
)
def test_headers_are_a_map_of_text_to_text_or_binary(
    kind: str, is_accepted: bool, url: str, queue: Any, tube: str
) -> None:
    types = {"string": StringType(), "binary": BinaryType(), "int": IntegerType()}
    key, _, value = kind.removeprefix("map<").removesuffix(">").partition(",")
    column = MapType(types[key], types[value]) if value else types[key]
    schema = StructType([StructField("body", StringType()), StructField("headers", column)])
    queue.tube(tube)
    options = WriteOptions.read({"url": url, "tube": tube})
    if is_accepted:
        assert _check_schema(options, schema) == options
    else:
        with pytest.raises(WrongType, match="headers"):
            _check_schema(options, schema)


def test_jobs_are_read_with_their_headers(url: str, queue: Any, tube: str) -> None:
    queue.tube(tube).put("1", headers={"trace": "1", "raw": b"\xff"})
    queue.tube(tube).put("2")
    with Node(url) as node:
        for more, columns in (([], ("body",)), ([b"HEADERS"], ("body", "headers"))):
            cursor, groups = b"0", []
            while cursor != b"0" or not groups:
                words = [b"JOB", b"SCAN", cursor, b"TUBE", tube.encode(), b"COUNT", b"1000", b"PACKED", *more]
                cursor, some = node.call(Call(words, lambda answer: (answer[0], answer[1]), REPEAT))
                groups += job_columns.groups_of(some)
            table = job_columns.batch(groups * 2, columns).to_pydict()
            assert table["body"] == [b"1", b"2"] * 2
        assert table["headers"] == [[("trace", b"1"), ("raw", b"\xff")], None] * 2
        broken = [*groups[0][:-1], groups[0][-1] + b"x"]
        for wrong in (broken, groups[0][:-1], [*groups[0], b""]):
            with pytest.raises(BadAnswer):
                job_columns.groups_of([wrong])
        with pytest.raises(BadAnswer):
            job_columns.groups_of([groups[0], groups[0][:16]])


def test_a_row_with_bad_headers_is_refused_and_the_others_are_put(
    writer: Callable[..., JobsWriter], queue: Any, tube: str, tmp_path: Path
) -> None:
    kinds = {"body": pa.string(), "headers": pa.map_(pa.string(), pa.string())}
    bad: list[list[tuple[str, str]]] = [[("", "x")], [("n", "1"), ("n", "2")], [("n", "x" * 9_000)]]
    some = [{"body": "good", "headers": [("n", "1")]}, *({"body": "bad", "headers": headers} for headers in bad)]
    batch = rows(*some, **kinds)
    for one in some[1:]:
        with pytest.raises(SourceError, match="header"):
            writer(batch).write(iter([rows(one, **kinds)]))
    good = writer(batch, errors=str(tmp_path))
    good.commit([good.write(iter([batch]))])
    assert [job.headers for job in queue.tube(tube).jobs("ready")] == [{"n": "1"}]
    assert sum(pq.read_table(file).num_rows for file in tmp_path.rglob("*.parquet")) == 3


def test_a_stage_that_lost_jobs_is_neither_extended_nor_published(
    writer: Callable[..., JobsWriter], queue: Any, tube: str, tmp_path: Path
) -> None:
    batch = rows(*({"value": str(number)} for number in range(5)), value=pa.string())

    def emptied() -> Iterator[pa.RecordBatch]:
        yield batch
        queue.tube(tube).truncate()
        yield batch

    # The rows are not the cause, so the error is raised despite the errors directory.
    with pytest.raises(SourceError, match=r"^\[STAGEOVER\] .* has 0 jobs, not 5; start again"):
        writer(batch, errors=str(tmp_path)).write(emptied())
    one = writer(batch)
    done = one.write(iter([batch]))
    queue.tube(tube).truncate()
    with pytest.raises(SourceError, match=r"^\[STAGEOVER\] .* has 0 jobs, not 5; start again"):
        one.commit([done, one.write(iter([batch]))])
    assert queue.tube(tube).stats()["ready"] == 0


def test_refused_rows_of_a_repeated_batch_are_saved_once(url: str, queue: Any, tube: str, tmp_path: Path) -> None:
    mine = queue.tube(tube)
    batch = rows({"value": "good"}, {"value": None}, value=pa.string())
    options = WriteOptions.read({"url": url, "tube": tube, "errors": str(tmp_path)})
    for again in (False, True):
        writer = JobsStreamWriter(options, ("value",))
        done = replace(writer.write(iter([batch])), mark=f"{tube}/query/7")
        if again:
            # If the publication fails, refused rows are not saved.
            with pytest.raises(SourceError, match="there is no stage"):
                writer.commit([replace(done, mark="", stage=replace(done.stage, name=b"none", jobs=0))], 7)
        writer.commit([done], 7)
    assert mine.stats()["ready"] == 1
    [file] = tmp_path.iterdir()
    assert pq.read_table(file)["value"].to_pylist() == [None]


def test_a_row_without_a_tube_is_a_refused_row(
    writer: Callable[..., JobsWriter], url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    batch = rows(
        *({"body": "x", "tube": name} for name in (None, tube, "", f"{tube} nowhere")),
        body=pa.string(),
        tube=pa.string(),
    )
    options = WriteOptions.read({"url": url, "errors": str(tmp_path)})
    one = JobsWriter(options, ("body", "tube"))
    one.commit([one.write(iter([batch]))])
    assert queue.tube(tube).stats()["ready"] == 1
    [file] = tmp_path.iterdir()
    assert sorted(row["error"].partition("]")[0] for row in pq.read_table(file).to_pylist()) == [
        "[BADNAME",
        "[BADNAME",
        "[NOTUBE",
    ]
    strict = JobsWriter(replace(options, errors=None), ("body", "tube"))
    with pytest.raises(SourceError, match=r"a row has no tube; fill the column, or use .option\(\"tube\", …\)"):
        strict.write(iter([batch]))


def test_an_errors_directory_that_cannot_be_written_fails_with_one_sentence(
    writer: Callable[..., JobsWriter], queue: Any, tube: str, tmp_path: Path
) -> None:
    batch = rows({"value": "good"}, {"value": None}, value=pa.string())
    (tmp_path / "file").touch()
    one = writer(batch, errors=str(tmp_path / "file" / "refused"))
    done = one.write(iter([batch]))
    with pytest.raises(SourceError, match=r"^errors: .*/file/refused: Not a directory; nothing was published"):
        one.commit([done])
    assert queue.tube(tube).stats()["ready"] == 0


def test_more_tasks_than_can_be_published_together_are_refused(writer: Callable[..., JobsWriter]) -> None:
    batch = rows(value=pa.string())
    tasks = [TaskResult(FilledStage(b"%d" % number, b"t", 1), "", b"") for number in range(10_001)]
    with pytest.raises(SourceError, match="10001 tasks have rows, but a write can have at most 10000; use coalesce"):
        writer(batch).commit(tasks)


def test_string_columns_without_a_kind_become_text_bodies(
    writer: Callable[..., JobsWriter], queue: Any, tube: str
) -> None:
    some = rows({"body": "a", "kind": None}, {"body": "{}", "kind": "json"}, body=pa.string(), kind=pa.string())
    large = rows({"body": "b"}, body=pa.large_string())
    for batch in (some, large):
        one = writer(batch)
        one.commit([one.write(iter([batch]))])
    assert [job.body for job in queue.tube(tube).jobs("ready")] == ["a", {}, "b"]


def test_a_row_with_an_invalid_time_is_a_refused_row(
    writer: Callable[..., JobsWriter], queue: Any, tube: str, tmp_path: Path
) -> None:
    times = [60.0, math.nan, math.inf, -math.inf]
    batch = rows(*({"body": "x", "ttl": each} for each in times), body=pa.string(), ttl=pa.float64())
    with pytest.raises(SourceError, match=r"^\[RANGE\] TTL must be a time like 30"):
        writer(batch).write(iter([batch]))
    one = writer(batch, errors=str(tmp_path))
    one.commit([one.write(iter([batch]))])
    assert queue.tube(tube).stats()["ready"] == 1
    [file] = tmp_path.iterdir()
    assert pq.read_table(file).num_rows == 3
