"""`penstock pipeline init`: a folder with queries and jobs that the user owns and changes.

The queries of Penstock are copied as examples. The project for `spark-pipelines` reads the files of the lake through
Penstock, because pip's Spark cannot read Delta tables.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from penstock.lake.errors import PipelineError
from penstock.pipeline.queries import sql

_README: Final = """\
# A project on the history of queues

- `tables/`: your own tables. `penstock pipeline once --lake {lake} --tables tables` updates them together with the
  lake's tables. `penstock pipeline backfill --again --lake {lake} --tables tables` computes them for all days.
- `sql/`: the queries that compute Penstock's own tables, as examples. `sql/silver/steps.sql` describes the view
  `steps`.
- `spark-pipeline.yml`, `transformations/`: a project for Spark Declarative Pipelines. It needs
  `pip install 'pyspark[pipelines]'`. Check it with `spark-pipelines dry-run`. To run it more than once, use
  `spark-pipelines run --conf spark.sql.catalogImplementation=hive`.
- `airflow/penstock_lake.py`: a DAG for Apache Airflow that loads new events every hour. Copy it to your DAGs.
- `dbt/`: a dbt project that reads the lake with dbt-duckdb.
"""

_TABLES: Final = {
    "puts_by_hour": """\
-- How many jobs were put, taken and finished in each hour?
-- keys: tube string, hour timestamp
-- measures: puts takes acks
SELECT
  date, tube,
  date_trunc('HOUR', time) AS hour,
  count_if(kind = 'put') AS puts,
  count_if(kind = 'take') AS takes,
  count_if(kind = 'ack') AS acks
FROM steps
WHERE kind IS NOT NULL
GROUP BY date, tube, hour
""",
    "slow_waits": """\
-- How many jobs waited longer than a minute, and how long at most?
-- keys: tube string
-- measures: jobs wait_ms_max
SELECT date, tube, count(*) AS jobs, max(ms) AS wait_ms_max
FROM steps
WHERE kind = 'take' AND ms > 60000
GROUP BY date, tube
""",
}

_SPEC: Final = """\
name: penstock_history
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

_LAKE: Final = '''\
"""The tables of the lake as views, for the queries in this folder."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.lake.lake import Lake
from penstock.lake.tables import EVENTS, JOBS, Table
from penstock.pipeline.tasks import read_files

LAKE = os.environ.get("PENSTOCK_LAKE", {lake!r})


def rows_of(table: Table) -> DataFrame:
    lake = Lake(LAKE).pin()
    return read_files(SparkSession.active(), lake.place, table, lake.files(table))


@dp.temporary_view
def events() -> DataFrame:
    return rows_of(EVENTS)


@dp.temporary_view
def job_parts() -> DataFrame:
    return rows_of(JOBS)
'''

_OUTCOMES: Final = """\
CREATE MATERIALIZED VIEW outcomes_by_day AS
SELECT date, tube, outcome, count(*) AS jobs, avg(wait_ms) AS wait_ms, avg(run_ms) AS run_ms
FROM jobs
GROUP BY date, tube, outcome
"""

_AIRFLOW: Final = '''\
"""Loads new events into the lake every hour, and audits it every night."""

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LAKE = {lake!r}
NODE = "penstock://127.0.0.1:7711"

with DAG("penstock_lake", schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    BashOperator(
        task_id="once",
        bash_command=f"penstock pipeline once --from {{NODE}} --lake {{LAKE}} --tables {tables}",
        retries=3,
    )

with DAG("penstock_audit", schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    BashOperator(task_id="audit", bash_command=f"penstock pipeline audit --lake {{LAKE}}")
'''

_DBT_PROJECT: Final = """\
name: penstock_lake
version: "1.0"
config-version: 2
profile: penstock_lake
model-paths: [models]
models:
  penstock_lake:
    +materialized: table
"""

_DBT_PROFILES: Final = """\
penstock_lake:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: penstock.duckdb
      extensions: [delta]
"""

_DBT_SOURCES: Final = """\
version: 2
sources:
  - name: lake
    tables:
      - name: rates
        config:
          external_location: "delta_scan('{lake}/gold/rates')"
"""

_DBT_MODEL: Final = """\
-- Rows with equal keys are added, because each turn of the pipeline adds rows.
select date, tube, sum(puts) as puts, sum(takes) as takes, sum(acks) as acks, sum(fails) as fails
from {{ source('lake', 'rates') }}
group by date, tube
"""


def write_project(folder: str | Path, lake: str = "./lake") -> list[Path]:
    """Write the project. Return its files. Raise PipelineError if the folder is not empty."""
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise PipelineError(f"{root} is not an empty folder; name a new one")
    place = lake if "://" in lake else str(Path(lake).absolute())
    found = {root / path: text for path, text in _texts(root.absolute(), place).items()}
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(found)


def _texts(root: Path, lake: str) -> dict[str, str]:
    """Return the files of the project by their paths."""
    jobs = sql("silver/merge").replace("{parts}", "job_parts")
    return {
        "README.md": _README.format(lake=lake),
        **{f"tables/{name}.sql": text for name, text in _TABLES.items()},
        **{f"sql/{name}.sql": sql(name) for name in _own_queries()},
        "spark-pipeline.yml": _SPEC.format(storage=(root / "storage").as_uri()),
        "transformations/lake.py": _LAKE.format(lake=lake),
        "transformations/jobs.sql": f"CREATE MATERIALIZED VIEW jobs AS\n{jobs}",
        "transformations/outcomes_by_day.sql": _OUTCOMES,
        "airflow/penstock_lake.py": _AIRFLOW.format(lake=lake, tables=root / "tables"),
        "dbt/dbt_project.yml": _DBT_PROJECT,
        "dbt/profiles.yml": _DBT_PROFILES,
        "dbt/models/sources.yml": _DBT_SOURCES.format(lake=lake),
        "dbt/models/rates_by_day.sql": _DBT_MODEL,
    }


def _own_queries() -> list[str]:
    folder = files("penstock.pipeline") / "sql"
    return sorted(
        f"{layer}/{file.name.removesuffix('.sql')}"
        for layer in ("silver", "gold")
        for file in (folder / layer).iterdir()
        if file.name.endswith(".sql")
    )
