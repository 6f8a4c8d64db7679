"""Tables of users: checked at start, updated in each turn, shown in views and in the report."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.lake.errors import PipelineError
from penstock.lake.lake import Lake
from penstock.lake.report_source import LakeSource
from penstock.pipeline.backfill import backfill
from penstock.pipeline.forget import Selection, forget
from penstock.pipeline.project import write_project
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.pipeline.turn import prepare
from penstock.pipeline.user_tables import load_tables
from penstock.pipeline.views import create_views
from penstock.report.build import build_report
from penstock.spark.versions import DECLARATIVE, Feature
from tests.server.serving import Server
from tests.spark.conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = "-- How many jobs were put?\n-- keys: tube string\n-- measures: puts\n"
GOOD = f"{HEADER}SELECT date, tube, count_if(kind = 'put') AS puts FROM steps GROUP BY date, tube"

# The text of a file, and the sentence about it.
WRONG = {
    "no_header": ("SELECT 1", "the header has no keys; add a line like `-- keys: tube string, hour timestamp`"),
    "no_measures": ("-- keys: tube string\nSELECT 1", "the header has no measures"),
    "no_type": ("-- keys: tube\n-- measures: n\nSELECT 1", "the key 'tube' has no valid type"),
    "doubled": ("-- keys: tube string\n-- measures: tube\nSELECT 1", "the column tube is there twice"),
    "rates": (GOOD, "rates is the name of a table of the lake"),
    "Big Name": (GOOD, "the name of a table has lower-case letters"),
}
REFUSED = {
    "syntax": (f"{HEADER}SELEKT 1", "PARSE_SYNTAX_ERROR"),
    "unknown": (f"{HEADER}SELECT date, tubes, 1 AS puts FROM steps", "tubes"),
    "missing": (f"{HEADER}SELECT date, tube FROM steps", "the query does not return the column puts"),
    "extra": (f"{HEADER}SELECT date, tube, 1 AS puts, 2 AS more FROM steps", "the column more is neither a key nor"),
    "text": (f"{HEADER}SELECT date, tube, tube AS puts FROM steps", "the measure puts is a string; measures are whole"),
    "kind": (f"{HEADER}SELECT date, job AS tube, 1 AS puts FROM steps", "returns tube as bigint, and the header says"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_definition_that_is_not_valid_is_refused_with_the_name_of_its_file(name: str, tmp_path: Path) -> None:
    text, sentence = WRONG[name]
    (tmp_path / f"{name}.sql").write_text(text)
    with pytest.raises(PipelineError) as refused:
        load_tables(tmp_path)
    assert sentence in str(refused.value)
    assert f"{name}.sql" in str(refused.value)


def test_a_query_that_does_not_fit_its_header_is_refused_before_the_lake_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    for name, (text, sentence) in REFUSED.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.sql").write_text(text)
        with pytest.raises(PipelineError) as refused, lake.writing():
            lake.create()
            prepare(spark, lake, load_tables(folder))
        assert sentence in str(refused.value), name
        assert f"{name}.sql" in str(refused.value)
        assert "\n" not in str(refused.value)
    assert lake.user_tables() == []


def test_a_table_starts_when_it_is_added_and_grows_with_each_turn(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start()
    source, root = Source((url_of(server),)), tmp_path / "lake"
    write_project(tmp_path / "project")
    tables = load_tables(tmp_path / "project" / "tables")
    with penstock.connect(url_of(server)) as queue:
        mail = queue.tube("mail")
        mail.put("before the table")
        Pipeline(spark, Lake(root), source).once()
        for _ in range(2):
            mail.put("after")
            Pipeline(spark, Lake(root), source, users=tables).once()
    assert puts(Lake(root)) == 2
    backfill(spark, Lake(root), None, users=tables)
    assert puts(Lake(root)) == 3
    create_views(spark, Lake(root))
    assert spark.sql("SELECT sum(puts) AS n FROM puts_by_hour").collect()[0]["n"] == 3
    report = build_report(LakeSource(Lake(root)), datetime.datetime.now(datetime.UTC))
    (section,) = [each for each in report.sections if each.name == "user-puts_by_hour"]
    assert section.question == "How many jobs were put, taken and finished in each hour?"
    assert [(row["tube"], row["puts"]) for row in section.rows] == [("mail", 3)]
    with pytest.raises(PipelineError, match="name the folder of their queries with --tables"):
        forget(spark, Lake(root), Selection(tube="mail"))
    forget(spark, Lake(root), Selection(tube="mail"), users=tables)
    assert puts(Lake(root)) == 0


def puts(lake: Lake) -> int:
    (table,) = [each for each in lake.user_tables() if each.name == "puts_by_hour"]
    return sum(lake.pin().read(table)["puts"].to_pylist())


def test_spark_accepts_the_declarative_pipeline_of_a_project(
    tmp_path: Path, needs: Callable[[object, str], None], needs_feature: Callable[[Feature], None]
) -> None:
    needs_feature(DECLARATIVE)
    needs(all(map(find_spec, ("grpc_status", "yaml", "pandas"))), "pyspark[pipelines] is not installed")
    import pyspark

    write_project(tmp_path / "project", str(tmp_path / "lake"))
    program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    path = str(Path(penstock.__file__).parent.parent)
    done = subprocess.run(
        [str(program), "dry-run", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"],
        cwd=tmp_path / "project",
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "COMPLETED" in done.stdout + done.stderr
