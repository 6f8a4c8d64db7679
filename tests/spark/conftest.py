"""One Spark session and one server for all tests of Spark, because both start more slowly than a test runs.

Each test uses its own tubes and directories. Tests that stop a server start their own with `start`.
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
from tests.short_spark import TUNED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.versions import Feature

# These tests are slow because of Spark, and do not depend on whether the core is compiled. `make test` runs them once.
collect_ignore_glob = ["test_*.py", "*/test_*.py"] if os.environ.get("PENSTOCK_EXPECT") == "interpreted" else []


def url_of(server: Server, password: str = "") -> str:
    """Return the URL of a server."""
    who = f":{password}@" if password else ""
    return f"penstock://{who}127.0.0.1:{server.port}"


@pytest.fixture(scope="session")
def needs_feature() -> Callable[[Feature], None]:
    """Skip a test if the installed Spark lacks a feature. The newest Spark has all features."""
    from penstock.spark.versions import VERSION, has

    def check(feature: Feature) -> None:
        if not has(feature):
            pytest.skip(f"Spark {'.'.join(map(str, VERSION))} lacks: {feature.name}")

    return check


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Iterator[SparkSession]:
    """A session with two cores, in which a failed task is retried once."""
    needs(find_spec("pyspark"), "Spark is not installed")
    from penstock.spark import session

    # Spark's Python processes must import the penstock that is under test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(penstock.__file__).parent.parent))
        warehouse = tmp_path_factory.mktemp("warehouse")
        made = session("local[2,2]", **TUNED, **{"spark.sql.warehouse.dir": str(warehouse)})
        yield made
        made.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that syncs before each reply, so that events can be read from its log at once."""
    server = Server(tmp_path_factory.mktemp("node"))
    yield server
    server.stop()


@pytest.fixture
def url(node: Server) -> str:
    """The URL of the shared server."""
    return url_of(node)


@pytest.fixture
def queue(url: str) -> Iterator[penstock.client.queue.Queue]:
    """A client of the shared server."""
    with penstock.connect(url) as queue:
        yield queue


@pytest.fixture
def tube(request: pytest.FixtureRequest) -> str:
    """A tube name that no other test uses."""
    return request.node.name
