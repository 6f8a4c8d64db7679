"""Report, replay and whatif, on the history that the demo creates."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.demos import crawler, spark_demo
from penstock.cli.demos.crawler import BROKEN_EVERY
from penstock.cli.main import app
from penstock.lake.lake import Lake
from penstock.lake.report_source import LakeSource
from penstock.pipeline.judge.judge import PROMISES
from penstock.pipeline.replay import as_jobs, replay
from penstock.report.percentiles import percentiles, rank_of
from penstock.report.sections.durations import histograms

from .lake_work import jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = 2 * BROKEN_EVERY
BROKEN = 2
GIVEN_UP = "404 Not Found"


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the lake and the report of the demo."""
    place = tmp_path_factory.mktemp("demo")
    with open(place / "shown", "w") as shown, pytest.MonkeyPatch.context() as patch:
        # One page in a million fails three times by chance, and would be given up in addition to the broken ones.
        patch.setattr(crawler, "FAILING_SHARE", 0)
        assert spark_demo.run_in(place, Console(file=shown, width=110), PAGES) == 0
    return place


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_demo_ends_with_its_result_and_the_path_of_the_report(demo: Path) -> None:
    shown = (demo / "shown").read_text()
    table, _, end = shown.rpartition("Most workers on one domain at a time")[2].partition("With the utube, no domain")
    assert "others" in table and "every guarantee was kept" in end
    assert re.search(rf"Report: {demo}/report.html\n$", end)
    assert "1,600</b><span>jobs put" in (demo / "report.html").read_text()


def test_the_report_of_the_demo_starts_with_its_result_and_the_audit(demo: Path) -> None:
    page = (demo / "report.html").read_text()
    assert re.findall(r'<section id="(\w+)">', page)[:2] == ["result", "rates"]
    result = page.partition('<section id="result">')[2].partition("</section>")[0]
    audit = page.partition('id="audit">')[2].partition("</details>")[0]
    assert re.findall("<th(?: [^>]*)?>(.*?)</th>", result) == ["domain", "pages", "visits", "fifo", "utube"]
    rows = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", result)[1:]]
    assert len(rows) == crawler.POPULAR + 1
    assert sum(int(row[1].replace(",", "")) for row in rows) == PAGES
    # Several workers visited one domain at the same time in the fifo, and never in the utube.
    assert max(int(row[3]) for row in rows) > 1 and {row[4] for row in rows} == {"1"}
    assert "no domain was visited by two workers at a time" in result
    verdicts = re.findall("<td>(kept|broken|not judged)</td>", audit)
    assert len(verdicts) == len(PROMISES) + 3 and set(verdicts) == {"kept"}
    assert f"<b>✓ {len(verdicts)} promises kept</b>" in audit


def test_the_report_has_the_counts_of_the_demo(demo: Path) -> None:
    told = lines(run("report", "--lake", demo / "lake", "--no-page", "--json"))
    rates = {row["tube"]: row for row in told if row["section"] == "rates"}
    for tube in ("pages-fifo", "pages-utube"):
        assert (rates[tube]["put"], rates[tube]["acked"]) == (PAGES, PAGES - BROKEN)
        dead = [row for row in told if row["section"] == "failures" and row["tube"] == tube and row["given up"]]
        assert [(row["cause"], row["given up"]) for row in dead] == [(GIVEN_UP, BROKEN)]
    workers = [row for row in told if row["section"] == "workers"]
    assert workers and all(row["taken"] == row["acked"] + row["failed"] for row in workers)


def test_percentiles_of_the_report_are_accurate(demo: Path) -> None:
    """They are computed from buckets. They differ from the true ones by at most 2 %, and 1 ms below 10 ms."""
    lake = Lake(demo / "lake")
    ranks = [rank_of(percent) for percent in ("50", "95", "99")]
    shown = histograms(LakeSource(lake).gold("durations"), "run", ["tube"])
    acked = [job for job in jobs(lake) if job["outcome"] == "acked"]
    for tube in ("pages-fifo", "pages-utube"):
        runs = sorted(job["run_ms"] for job in acked if job["tube"] == tube)
        assert len(runs) == sum(shown[tube,].values()) == PAGES - BROKEN
        for rank, found in zip(ranks, percentiles(shown[tube,], ranks)):
            true = runs[math.ceil(len(runs) * rank) - 1]
            assert found is not None and 0 <= found - true <= max(1, 0.02 * true)


def test_whatif_shows_measured_and_estimated_wait_times(demo: Path) -> None:
    asked = ("--tube", "pages-utube", "--workers", 1, "--workers", 12)
    measured, *estimates = lines(run("whatif", "--lake", demo / "lake", *asked, "--json"))
    assert measured["kind"] == "measured" and measured["per_key"] == 1 and measured["jobs"] == PAGES
    assert {row["kind"] for row in estimates} == {"estimate"}
    by_workers = {row["workers"]: row["wait_p95_ms"] for row in estimates}
    assert by_workers[1] > by_workers[12] > 0
    people = run("whatif", "--lake", demo / "lake")
    assert "measured" in people.stdout and people.stderr.startswith("An estimate: ")
    wrong = run("whatif", "--lake", demo / "lake", "--tube", "nothing")
    assert wrong.exit_code == 1 and "tubes with such jobs: pages-fifo, pages-utube" in wrong.output


BURIED = "SELECT * FROM jobs WHERE outcome = 'buried' AND tube = 'pages-utube'"


def test_a_query_is_replayed_once_and_every_job_is_named_after_its_origin(
    demo: Path, url: str, queue: penstock.client.queue.Queue, tube: str
) -> None:
    where = ("--lake", demo / "lake", "--tube", tube, "--to", url)
    planned = lines(run("replay", BURIED, *where, "--dry-run", "--json"))
    assert [(row["tube"], row["jobs"], row["bodiless"]) for row in planned] == [(tube, BROKEN, 0)]
    missing = run("replay", BURIED, *where)
    assert missing.exit_code == 3 and "there is no tube" in missing.output  # Replay creates no tubes.

    queue.tube(tube, "utube")
    for _ in range(2):
        assert run("replay", BURIED, *where).exit_code == 0
    jobs = queue.tube(tube).jobs("ready")
    assert sorted(job.body["path"] for job in jobs) == [0, BROKEN_EVERY]
    for job in jobs:
        meta = job.meta()
        assert re.fullmatch(r"replay of [0-9a-f]{40}/\d+", meta["name"]) and meta["key"].startswith("site")


def test_a_table_is_replayed_at_the_given_rate_including_equal_rows(
    spark: SparkSession, tmp_path: Path, url: str, queue: penstock.client.queue.Queue, tube: str
) -> None:
    rows = [(f"{number % 4} of 4", 5) for number in range(8)]
    spark.createDataFrame(rows, "value STRING, priority INT").write.parquet(str(tmp_path / "table"))
    queue.tube(tube)
    began = time.monotonic()
    result = run("replay", "--table", tmp_path / "table", "--tube", tube, "--to", url, "--rate", 10, "--json")
    assert lines(result) == [{"put": 8, "there": 0, "bodiless": 0, "refused": 0}]
    assert time.monotonic() - began >= 0.7
    jobs = queue.tube(tube).jobs("ready")
    assert sorted(job.body for job in jobs) == sorted(value for value, _ in rows)
    assert {job.meta()["priority"] for job in jobs} == {5}


def test_bodies_are_replayed_as_they_were_put(
    spark: SparkSession, url: str, queue: penstock.client.queue.Queue, tube: str
) -> None:
    were = [(b"\x91\x81\xa1n\x01", 3), (b'{ "n": 1.0 }', 2), (b"text", 1), (b"\xff", 0)]
    rows = spark.createDataFrame(were, "body BINARY, body_kind INT")
    queue.tube(tube)
    assert replay(as_jobs(rows, tube, False), queue, "again").put == len(were)
    jobs = queue.tube(tube).jobs("ready")
    assert sorted((job._facts.raw_body, job._facts.body_kind) for job in jobs) == sorted(were)


def test_bodies_that_a_query_computes_keep_their_type(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, queue: Any, tube: str
) -> None:
    queue.tube(tube)
    values = ["array(named_struct('a', 1, 'b', null))", "7", "date'2026-01-01'", "'text'", "named_struct('c', 1.5)"]
    for number, value in enumerate(values):
        # Columns may have the names of internal columns.
        rows = spark.sql(f"SELECT {value} AS body, {number} AS copy, 'x' AS origin")
        assert replay(as_jobs(rows, tube, False), queue, "values").put == 1
    bodies = [job.body for job in queue.tube(tube).jobs("ready")]
    assert bodies == [[{"a": 1, "b": None}], 7, "2026-01-01", "text", {"c": 1.5}]
    # A path without a slash.
    monkeypatch.chdir(tmp_path)
    spark.sql("SELECT 'text' AS body, 1 AS body_kind").write.parquet(str(tmp_path / "chosen"))
    result = run("replay", "--table", "chosen", "--tube", tube, "--to", url)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1 job put, in this run or in an earlier run of the same name")


def test_a_refused_row_is_counted_and_the_others_are_replayed(spark: SparkSession, queue: Any, tube: str) -> None:
    queue.tube(tube, "fifottl")
    rows = f"""
        SELECT * FROM VALUES
            ('spark has decimals', '{tube}', 1.5, 3, '1h', 1),
            ('no such time', '{tube}', 0.0, 3, 'soon', 1),
            ('a time that is over', '{tube}', -1.0, 3, '1h', 1),
            ('no such kind', '{tube}', 0.0, 3, '1h', 9),
            ('nowhere', null, 0.0, 3, '1h', 1),
            ('good', '{tube}', null, null, null, 1)
        AS (Value, tube, delay, PRIORITY, ttl, body_kind)"""
    done = replay(as_jobs(spark.sql(rows), None, False), queue, "odd")
    assert (done.put, done.refused.total()) == (2, 4)
    assert sorted(done.refused) == [
        "a row has no tube; give it with --tube",
        "body_kind must be a number from 0 to 3, not 9",
        "delay must be 0 to 31622400000 seconds, or none for no limit",
        "ttl must be a time like 30, 1.5, 250ms, 5m or 2h, not 'soon'",
    ]
    there = {job.body: job.meta() for state in ("ready", "delayed") for job in queue.tube(tube).jobs(state)}
    assert set(there) == {"spark has decimals", "good"}
    assert there["spark has decimals"]["priority"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "use either a query or --table"),
        (["SELECT 1", "--rate", "nan"], 2, "nan is not a valid number of jobs per second"),
        (["SELECT 1 AS body, 2 AS body", "LAKE", "--tube", "t"], 1, "`body`"),
        (["SELECT 1"], 2, "name it with --lake PLACE"),
        (["SELECT nothing FROM jobs", "LAKE"], 1, "`nothing`"),
        (["SELECT 1 AS x, 'a' AS tube", "LAKE"], 1, "the rows need a column body (or value)"),
        (["SELECT 'x' AS body", "LAKE"], 1, "give the tube with --tube"),
    ],
)
def test_an_invalid_replay_is_refused_with_one_sentence(
    demo: Path, arguments: list[str], code: int, words: str
) -> None:
    given = [word for each in arguments for word in (["--lake", demo / "lake"] if each == "LAKE" else [each])]
    result = run("replay", *given)
    assert result.exit_code == code and words in result.output
    assert result.output.count("\n") == 1, result.output
