"""Queues that the originals' APIs run over: in this process, and on a server that all tests here share."""

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
    """The server without jobs and tubes, when it has noticed that the test before is over."""
    server.connect().call("DEBUG", "FLUSHALL")
    wait_for(lambda: blocked(server) == 0)
    return server


def blocked(server: Server) -> int:
    """How many calls wait on the server."""
    wire = server.connect()
    lines = wire.call("CLIENT", "LIST").decode().splitlines()
    wire.close()
    return sum("b" in dict(part.partition("=")[::2] for part in line.split(" "))["flags"] for line in lines)


@pytest.fixture(params=["memory", "server"])
def below(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A queue, of each kind. A journal changes nothing that these tests can see, and takes its time."""
    if request.param == "server":
        server = request.getfixturevalue("empty")
        with penstock.connect(f"penstock://127.0.0.1:{server.port}") as connected:
            yield connected
    else:
        with penstock.open(":memory:") as queue:
            yield queue


@pytest.fixture
def until_waiting(request: pytest.FixtureRequest, below: Any) -> Callable[[int], None]:
    """Returns when so many calls wait."""

    def waiting() -> int:
        if isinstance(below, embedded.Queue):
            with below._host.lock:
                return sum(len(session.connection.waits) for session in below._host.sessions)
        return blocked(request.getfixturevalue("server"))

    return lambda count: wait_for(lambda: waiting() >= count)
