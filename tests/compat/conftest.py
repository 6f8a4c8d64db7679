"""Queues for tests of the originals' APIs: in this process, and on a shared server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock import embedded
from tests.server.serving import Server, wait_for


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), "--appendfsync", "everysec")
    yield server
    server.stop()


@pytest.fixture
def empty(server: Server) -> Server:
    """Return the shared server without jobs and tubes, after the connections of the test before are closed."""
    server.connect().call("DEBUG", "FLUSHALL")
    wait_for(lambda: blocked(server) == 0)
    return server


def blocked(server: Server) -> int:
    """Return the number of calls that wait on the server."""
    wire = server.connect()
    lines = wire.call("CLIENT", "LIST").decode().splitlines()
    wire.close()
    return sum("b" in dict(part.partition("=")[::2] for part in line.split(" "))["flags"] for line in lines)


@pytest.fixture(params=["memory", "server"])
def below(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a queue of each kind. No queue has a journal, because these tests could not see a difference."""
    if request.param == "server":
        server = request.getfixturevalue("empty")
        with penstock.connect(f"penstock://127.0.0.1:{server.port}") as connected:
            yield connected
    else:
        with penstock.open(":memory:") as queue:
            yield queue


@pytest.fixture
def until_waiting(request: pytest.FixtureRequest, below: Any) -> Callable[[int], None]:
    """Return a function that waits until a number of calls wait."""

    def waiting() -> int:
        if isinstance(below, embedded.Queue):
            with below._host.lock:
                return sum(len(session.connection.waits) for session in below._host.sessions)
        return blocked(request.getfixturevalue("server"))

    return lambda count: wait_for(lambda: waiting() >= count)
