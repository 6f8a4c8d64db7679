"""One Spark session for all tests of Spark, and one server: both take longer to start than any test takes.

Tests use tubes and directories of their own. What is about the end of a server has one of its own, by `start`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from tests.server.conftest import start as start
from tests.server.serving import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark is what takes the time here, and it is the same whether our core is compiled: once is enough for `make test`.
collect_ignore_glob = ["test_*.py"] if os.environ.get("PENSTOCK_EXPECT") == "interpreted" else []

# What makes short queries short, which take longer to compile than to run, and a Java that does not live for long.
QUERIES = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TUNED = {**QUERIES, "spark.driver.extraJavaOptions": SHORT_LIVED}


def url_of(server: Server, password: str = "") -> str:
    """Where a server is."""
    who = f":{password}@" if password else ""
    return f"penstock://{who}127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Iterator[SparkSession]:
    """The session: two cores, and a task that failed is tried once more."""
    needs(find_spec("pyspark"), "Spark is not installed")
    from penstock.spark import session

    # Spark's own processes have to find the penstock that is under test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(penstock.__file__).parent.parent))
        warehouse = tmp_path_factory.mktemp("warehouse")
        made = session("local[2,2]", **TUNED, **{"spark.sql.warehouse.dir": str(warehouse)})
        yield made
        made.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server: what was put is in the log for others at once, since it waits for the disk."""
    server = Server(tmp_path_factory.mktemp("node"))
    yield server
    server.stop()


@pytest.fixture
def url(node: Server) -> str:
    """Where that is."""
    return url_of(node)


@pytest.fixture
def queue(url: str) -> Iterator[penstock.client.queue.Queue]:
    """A client of it."""
    with penstock.connect(url) as queue:
        yield queue


@pytest.fixture
def tube(request: pytest.FixtureRequest) -> str:
    """The name of a tube that no other test uses."""
    return request.node.name
