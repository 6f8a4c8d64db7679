"""TLS: commands, errors and the life of connections."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.session import LOST
from penstock.core.errors import Closed, NoServer
from penstock.wire.resp_client import encode
from tests.ports import free_port
from tests.server.serving import Server, Wire, wait_for

_names = itertools.count()


class TlsServer(Server):
    """Return a server with TLS on a second port."""

    def __init__(self, home: Path, certificate: Path) -> None:
        self.tls_port = free_port()
        self.ca = str(certificate / "cert.pem")
        files = ["--tls-cert-file", self.ca, "--tls-key-file", str(certificate / "key.pem")]
        super().__init__(home, "--tls-port", str(self.tls_port), *files, "--appendfsync", "everysec")

    @property
    def url(self) -> str:
        return f"penstock://localhost:{self.tls_port}?ca={self.ca}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path_factory.mktemp("tls"), certificate)
    yield server
    server.stop()


@pytest.fixture
def name() -> str:
    return f"tls {next(_names)}"


def hang_up_on_all(wire: Wire) -> None:
    """Let the server close all other connections, and wait until they are closed."""
    wire.call("CLIENT", "KILL", "TYPE", "normal")
    wait_for(lambda: wire.call("CLIENT", "LIST").count(b"\n") == 1)


def test_threads_put_take_and_ack_over_tls(server: TlsServer, name: str) -> None:
    with penstock.connect(server.url) as queue:
        tube = queue.tube(name)
        # Longer than one TLS record, and than one read.
        bodies = [b"x" * 300_000, b"y", {"n": 1}]
        tube.put_many(bodies)
        with queue.pipeline() as pipeline:
            pipeline.put(tube, b"z" * 100_000)
        jobs = tube.take_many(9)
        assert [job.body for job in jobs] == [*bodies, b"z" * 100_000]
        for job in jobs:
            job.ack()
        assert tube.take(timeout=0.01) is None


async def test_tasks_put_take_and_ack_over_tls(server: TlsServer, name: str) -> None:
    async with penstock.connect_async(server.url) as queue:
        tube = await queue.tube(name)
        await asyncio.gather(*(tube.put(b"%d" % number * 1_000) for number in range(100)))
        jobs = await asyncio.gather(*(tube.take() for _ in range(100)))
        await asyncio.gather(*(job.ack() for job in jobs))
        assert {job.body for job in jobs} == {b"%d" % number * 1_000 for number in range(100)}
        assert await tube.take(timeout=0.01) is None


def test_an_idle_connection_that_the_server_closed_is_replaced(server: TlsServer, name: str) -> None:
    with penstock.connect(server.url) as queue:
        tube = queue.tube(name)
        for number in range(3):
            hang_up_on_all(server.connect())
            # It must not be sent on a dead connection, because it cannot be repeated.
            tube.put(number)
        assert [job.body for job in tube.take_many(9)] == [0, 1, 2]


async def test_an_idle_connection_that_the_server_closed_is_replaced_for_tasks(server: TlsServer, name: str) -> None:
    async with penstock.connect_async(server.url) as queue:
        tube = await queue.tube(name)
        for number in range(3):
            shared = queue._session._shared
            hang_up_on_all(server.connect())
            await shared.wait_closed()
            await tube.put(number)
        assert [job.body for job in await tube.take_many(9)] == [0, 1, 2]


async def test_a_take_cancelled_over_tls_loses_no_job(server: TlsServer, name: str) -> None:
    async with penstock.connect_async(server.url) as queue:
        tube = await queue.tube(name, "fifo")
        seen: list[int] = []
        for number in range(10):
            take = asyncio.ensure_future(tube.take(timeout=None))
            await asyncio.sleep(0.001 * (number % 4))
            await tube.put(number)
            take.cancel()
            outcome: Any = (await asyncio.gather(take, return_exceptions=True))[0]
            if not isinstance(outcome, BaseException) and outcome is not None:
                seen.append(outcome.body)
        while len(seen) < 10:
            job = await tube.take(timeout=10)
            assert job is not None
            seen.append(job.body)
        assert sorted(seen) == list(range(10))


def test_a_closed_queue_gives_its_jobs_back_over_tls(server: TlsServer, name: str) -> None:
    with penstock.connect(server.url) as other:
        tube = other.tube(name, "fifottl")
        tube.put("x")
        with penstock.connect(server.url, grace=3600) as queue:
            assert queue.find_tube(name).take() is not None
        assert tube.take(timeout=10) is not None


def test_a_call_in_progress_raises_closed_when_its_queue_is_closed(server: TlsServer, name: str) -> None:
    told: list[BaseException] = []

    def ask(queue: penstock.Queue) -> None:
        try:
            while True:
                queue.tubes()
        except BaseException as error:
            told.append(error)

    for _ in range(25):
        queue = penstock.connect(server.url)
        threads = [threading.Thread(target=ask, args=(queue,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda queue=queue: len(queue._session._busy) > 1)
        queue.close()
        for thread in threads:
            thread.join(20)
    assert {type(error) for error in told} == {Closed}, told


def test_an_interrupted_connection_still_encrypts(server: TlsServer) -> None:
    with penstock.connect(server.url) as queue:
        connection = queue._session._idle[-1]
        connection.interrupt()
        assert connection._socket.version() is not None  # type: ignore[attr-defined]
        with pytest.raises(LOST):
            connection.ask(encode([b"PING"]), 1, 5)
        assert queue.tubes() is not None


def test_an_untrusted_certificate_or_missing_tls_is_reported(server: TlsServer) -> None:
    with pytest.raises(NoServer, match=r"the certificate of .* is not good"):
        penstock.connect(f"penstock://localhost:{server.tls_port}?tls=1")
    with pytest.raises(NoServer, match=r"the certificate of .* is not good"):
        penstock.connect(f"penstock://127.0.0.1:{server.tls_port}?ca={server.ca}")  # The certificate is for localhost.
    with pytest.raises(NoServer, match="tls=1"):
        penstock.connect(f"penstock://localhost:{server.tls_port}")
