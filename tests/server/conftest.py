"""Fixtures of servers: one that most tests share, and separate ones for tests that depend on its state or its end.

Every server must end cleanly: without internal errors, without error lines in its log, and with exit code 0.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .clustering import Cluster, cluster_of
from .iproto_wire import IprotoWire
from .serving import Server, Wire


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that many tests share. Tests use their own queues and restore changed settings.

    It has a journal, but does not wait for syncs. Tests of durability have their own server.
    """
    server = Server(tmp_path_factory.mktemp("server"), "--appendfsync", "everysec")
    yield server
    server.stop()


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A connection to the shared server."""
    wire = Wire(server.port)
    yield wire
    wire.close()


@pytest.fixture
def wires(server: Server) -> Iterator[Callable[[], Wire]]:
    """A function that opens more connections to the shared server."""
    made: list[Wire] = []

    def connect() -> Wire:
        made.append(Wire(server.port))
        return made[-1]

    yield connect
    for wire in made:
        wire.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that tests share. A test that stops one starts it again, and waits until the cluster is complete."""
    with cluster_of(tmp_path_factory.mktemp("three"), 3, "--appendfsync", "everysec") as cluster:
        yield cluster


@pytest.fixture
def dial() -> Iterator[Callable[[Server], IprotoWire]]:
    """A function that opens IPROTO connections to any server."""
    made: list[IprotoWire] = []

    def connect(server: Server) -> IprotoWire:
        made.append(IprotoWire(server.iproto_port))
        return made[-1]

    yield connect
    for wire in made:
        wire.close()


@pytest.fixture
def iproto(server: Server, dial: Callable[[Server], IprotoWire]) -> IprotoWire:
    """An IPROTO connection to the shared server."""
    return dial(server)


@pytest.fixture
def iprotos(server: Server, dial: Callable[[Server], IprotoWire]) -> Callable[[], IprotoWire]:
    """A function that opens more IPROTO connections to the shared server."""
    return lambda: dial(server)


@pytest.fixture
def tube(iproto: IprotoWire, queue: bytes) -> str:
    """The name of a new fifottl tube."""
    name = queue.decode().translate({ord(mark): "_" for mark in "[].:-"})
    iproto.call("queue.create_tube", name, "fifottl")
    return name


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> bytes:
    """The name of a queue that no other test uses."""
    return request.node.nodeid.rpartition("::")[2].encode("ascii", "backslashreplace")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Path:
    """A directory with a certificate for localhost and its key."""
    needs(shutil.which("openssl"), "openssl is not installed")
    directory = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=DNS:localhost -keyout {directory}/key.pem -out {directory}/cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True)
    return directory


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts servers in the test's directory. Those that still run are stopped cleanly at the end."""
    started: list[Server] = []

    def start(*words: str, password: str = "", is_forked: bool = True) -> Server:
        started.append(Server(tmp_path, *words, password=password, is_forked=is_forked))
        return started[-1]

    yield start
    for server in started:
        server.stop()
