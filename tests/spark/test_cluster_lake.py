"""The pipeline on a Spark cluster, a master and two workers, that share nothing but a bucket of S3 (moto).

Four runs of the pipeline on a cluster take minutes of CPU, so `make test-cluster-lake` runs these tests, and
`make test` does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.lake.tables import EVENTS, gold_table
from tests.lake.stores import S3, s3_server
from tests.server.serving import Server

from .conftest import url_of
from .test_clusters import cluster
from .test_clusters import run as run
from .test_object_store import COUNT, EVENTS_OF_JOBS, work

pytestmark = pytest.mark.skipif("PENSTOCK_CLUSTER_LAKE" not in os.environ, reason="`make test-cluster-lake` runs it")


@pytest.fixture(scope="module")
def s3(needs: Callable[[object, str], None]) -> Iterator[S3]:
    needs(find_spec("moto"), "moto is not installed")
    with s3_server() as store:
        yield store


@pytest.mark.parametrize("speculation", ["false", "true"])
def test_turns_on_a_cluster_that_shares_nothing_but_the_bucket(
    run: Callable[..., subprocess.Popen[bytes]], start: Callable[..., Server], s3: S3, tmp_path: Path, speculation: str
) -> None:
    server = start()
    master = cluster(run, tmp_path)
    place = s3.new_lake()
    settings = tmp_path / "conf"
    settings.mkdir()
    # With these limits, Spark starts a second attempt of a task very soon.
    (settings / "spark-defaults.conf").write_text(
        f"spark.speculation {speculation}\n"
        "spark.speculation.interval 100ms\nspark.speculation.multiplier 1.1\nspark.speculation.quantile 0.1\n"
        "spark.speculation.minTaskRuntime 50ms\nspark.executor.memory 512m\n"
    )
    # The workers get the settings of the store with their tasks, not from their environment.
    environment = s3.options | {"SPARK_CONF_DIR": str(settings)}
    for _ in range(2):
        work(server)
        words = ("-m", "penstock", "pipeline", "once", "--from", url_of(server), "--lake", place, "--master", master)
        code = run(sys.executable, *words, **environment).wait(400)
        said = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
        assert code == 0, said[-8_000:]
    lake = Lake(place, s3.options).pin()
    assert (lake.turn, lake.rows(EVENTS)) == (2, 2 * EVENTS_OF_JOBS)
    positions = lake.read(EVENTS)["position"].to_pylist()
    assert len(set(positions)) == 2 * EVENTS_OF_JOBS
    assert sum(lake.read(gold_table("rates"))["puts"].to_pylist()) == 2 * COUNT
    assert all((tmp_path / f"worker{number}").exists() for number in range(2))
    assert not list(tmp_path.rglob("*.parquet"))
