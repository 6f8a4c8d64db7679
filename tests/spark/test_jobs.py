"""format("penstock") as a batch: a scan that takes no job, and an atomic write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.core.table import BLOCK_SLOTS
from penstock.spark import SourceError, sentence_of
from penstock.spark.jobs.options import ReadOptions
from penstock.spark.jobs.scan import JobsReader
from penstock.spark.versions import FILTERS, EqualTo, has
from tests.server.clustering import cluster_of

from .conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def jobs(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.read.format("penstock").option("url", url).options(**options).load()


def write(rows: DataFrame, url: str, tube: str, **options: Any) -> None:
    rows.write.format("penstock").mode("append").option("url", url).option("tube", tube).options(**options).save()


def test_a_scan_takes_no_job_and_lets_the_server_apply_filters(
    spark: SparkSession, url: str, queue: Any, tube: str
) -> None:
    mine = queue.tube(tube)
    for number in range(5):
        mine.put({"n": number}, delay=3600 if number == 4 else 0)
    mine.take()
    rows = jobs(spark, url, tube=tube).orderBy("number").collect()
    assert [row.state for row in rows] == ["taken", "ready", "ready", "ready", "delayed"]
    assert [(bytes(row.body), row.kind, row.tube) for row in rows[:1]] == [(b'{"n":0}', "json", tube)]
    assert mine.stats()["ready"] == 3
    for pushed in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        assert jobs(spark, url).where("tube = 'no such tube'").count() == 0
        ready = jobs(spark, url).where(f"tube = '{tube}' and state in ('ready', 'buried')")
        assert ready.count() == 3
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert jobs(spark, url, tube=tube, columns="id,state,number", states="taken").collect()[0].number == 0


def test_rows_become_jobs_with_the_options_in_their_columns(
    spark: SparkSession, url: str, queue: Any, tube: str
) -> None:
    mine = queue.tube(tube, "utubettl", key_limit=9)
    rows = spark.sql(
        """select encode(concat('{"n":', id, '}'), 'utf-8') as body, 'json' as kind, concat('k', id) as key,
                  3 - id as priority, if(id = 2, 3600, null) as delay, '1h' as ttl, 30.5 as ttr from range(4)"""
    )
    write(rows.repartition(2), url, tube)
    assert [job.body for job in mine.take_many(10)] == [{"n": 3}, {"n": 1}, {"n": 0}]
    assert mine.stats()["delayed"] == 1
    text = spark.createDataFrame([("a", tube), ("b", tube)], "value string, tube string")
    text.write.format("penstock").mode("append").option("url", url).save()
    assert sorted(job.body for job in mine.take_many(10)) == ["a", "b"]


def test_a_failed_write_adds_no_job(spark: SparkSession, url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    rows = spark.range(3_000).selectExpr("cast(id as string) as value", "if(id = 2999, -1, 60) as ttl").repartition(2)
    with pytest.raises(Exception) as failed:
        write(rows, url, tube)
    assert "TTL" in (sentence_of(failed.value) or "")
    assert {name: count for name, count in mine.stats().items() if count} == {}


def test_refused_rows_are_saved_to_the_errors_directory(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    mine = queue.tube(tube)
    rows = spark.range(100).selectExpr("cast(id as string) as value", "if(id % 40 = 0, -1, 60) as ttl").coalesce(1)
    write(rows, url, tube, errors=str(tmp_path / "refused"))
    assert mine.stats()["ready"] == 97
    refused = spark.read.parquet(str(tmp_path / "refused")).collect()
    assert sorted(row.value for row in refused) == ["0", "40", "80"]
    assert all("TTL" in row.error for row in refused)


def test_rows_with_a_unique_value_are_put_once(spark: SparkSession, url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    rows = spark.range(10).selectExpr("cast(id as string) as value", "cast(id % 5 as string) as unique")
    for _ in range(2):
        write(rows, url, tube)
    assert mine.stats()["ready"] == 5


def test_a_tube_of_a_cluster_is_read_at_its_home_and_not_from_every_node(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as cluster:
        here, there = map(url_of, cluster.nodes)
        for url, tube, count in ((here, "orders", 3), (there, "mails", 2)):
            with penstock.connect(url) as queue:
                queue.tube(tube).put_many([b"x"] * count)

        def read(urls: str, tube: str = "", where: str = "") -> int:
            reader = JobsReader(ReadOptions.read({"url": urls, "tube": tube}))
            if where:
                list(reader.pushFilters([EqualTo(("tube",), where)]))
            return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))

        both = f"{here},{there}"
        assert read(both) == 5
        assert (read(both, "orders"), read(both, "mails"), read(both, "orders,mails")) == (3, 2, 5)
        if has(FILTERS):
            assert (read(both, where="orders"), read(both, where="nothing")) == (3, 0)
        assert read(there, "orders") == 3  # The node forwards the scan to the other.
        with pytest.raises(SourceError, match="there is no tube 'nothing'"):
            read(both, "orders,nothing")


def test_a_large_tube_is_read_by_several_tasks_each_job_once(url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    count = 3 * BLOCK_SLOTS
    mine.put_many([b"%d" % number for number in range(count)])
    reader = JobsReader(ReadOptions.read({"url": url, "tube": tube, "rowsPerPartition": str(BLOCK_SLOTS)}))
    parts = reader.partitions()
    assert len(parts) == 3
    read = [[row["body"] for batch in reader.read(part) for row in batch.to_pylist()] for part in parts]
    assert all(read)
    assert sorted(int(body) for part in read for body in part) == list(range(count))
    assert len(JobsReader(ReadOptions.read({"url": url, "rowsPerPartition": "5000"})).partitions()) >= 3
    assert len(JobsReader(ReadOptions.read({"url": url, "tube": tube, "states": "buried"})).partitions()) == 1


def test_headers_since_and_session_are_columns_if_they_are_wanted(url: str, queue: Any, tube: str) -> None:
    mine = queue.tube(tube)
    for number in range(2):
        mine.put(b"%d" % number, headers={"trace": b"t%d" % number})
    taken = mine.take()

    def read(**options: str) -> list[dict[str, Any]]:
        reader = JobsReader(ReadOptions.read({"url": url, "tube": tube, **options}))
        return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    first, second = read(columns="id,state,headers,since,session,created")
    assert [first["headers"], second["headers"]] == [[("trace", b"t0")], [("trace", b"t1")]]
    assert (first["state"], second["state"]) == ("taken", "ready")
    assert first["session"] is not None and second["session"] is None
    assert first["since"] >= first["created"] and second["since"] == second["created"]
    assert "headers" not in read(includeHeaders="false")[0] and "headers" in read()[0]
    assert list(read(columns="id", includeHeaders="true")[0]) == ["id", "headers"]
    taken.ack()
