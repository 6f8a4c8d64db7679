"""The timeout of a call limits everything that it does, also while the server is away. `retry_for` limits retries.

The upper limits of time are far below what the client may use without the promise (`LONG_S`), and far above what a busy
machine needs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import reach as reach_module
from penstock.client.reach import Reachability
from tests.client.proxy import url
from tests.server.serving import PATIENCE_S, Server, wait_for
from tests.server.slow_loading import SlowLoading

# The time limit of each part of a call: connecting, a reply, and searching for a server.
LONG_S = 120.0
PATIENT = {"connect_timeout": LONG_S, "timeout": LONG_S, "retry_for": LONG_S}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowLoading]:
    """Return a server that a test may kill, stop, or keep in recovery."""
    server = SlowLoading(tmp_path, "--dir", "d")
    yield server
    if server.is_running:
        server.process.send_signal(signal.SIGCONT)
        server.kill()


def limited(work: Callable[[], Any]) -> Any:
    """Return the result of a call that has to end soon."""
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(work).result(LONG_S / 4)
    assert time.monotonic() - began < LONG_S / 4
    return found


class Client:
    """The blocking client, or the asyncio client behind the same interface."""

    def __init__(self, face: str, where: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop() if face == "async" else None
        if self._loop is None:
            self.queue: Any = penstock.connect(where, **options)
            return
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self.queue = penstock.connect_async(where, **options)
            self.run(self.queue.tubes)
        except BaseException:
            self._end()
            raise

    def run(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run one call."""
        if self._loop is None:
            return call(*args, **options)

        async def awaited() -> Any:
            return await call(*args, **options)

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.queue.close)
        self._end()

    def _end(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """Return the client's log lines of one level."""
    return [record.getMessage() for record in caplog.records if record.name == "penstock" and record.levelno == level]


# ---- The first connection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_loading", [False, True])
def test_retry_for_also_waits_for_the_first_connection(
    server: SlowLoading, face: str, is_loading: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    server.connect().add("q")
    server.kill()
    if is_loading:
        server.start_loading()
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(Client, face, url(server.port), retry_for=LONG_S)
        [line] = wait_for(lambda: logged(caplog, logging.WARNING))
        assert line.startswith(f"server not reachable yet: address=127.0.0.1:{server.port} ")
        assert not connecting.done()
        if is_loading:
            server.load()
        else:
            server.start_again()
        with connecting.result(PATIENCE_S) as client:
            assert client.run(client.queue.tubes) == ["q"]
    assert len(logged(caplog, logging.WARNING)) == 1
    assert [line.partition(" after")[0] for line in logged(caplog, logging.INFO)] == [
        f"server reached: address=127.0.0.1:{server.port}"
    ]


def test_retry_for_in_the_url_also_waits_for_the_first_connection(server: SlowLoading) -> None:
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(penstock.connect, url(server.port) + "?retry_for=forever")
        server.start_again()
        connecting.result(PATIENCE_S).close()


def test_without_retry_for_the_first_connection_is_tried_once(
    server: SlowLoading, face: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    with pytest.raises(penstock.NoServer, match="no server listens"):
        Client(face, url(server.port))
    assert logged(caplog, logging.WARNING) == []


def test_the_first_connection_is_given_up_after_retry_for(server: SlowLoading, face: str) -> None:
    """A server that accepts connections and does not reply uses up the time as well."""
    server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(penstock.NoServer, match="does not answer"):
        limited(lambda: Client(face, url(server.port), retry_for=0.3, connect_timeout=0.2))


# ---- Timeouts --------------------------------------------------------------------------------------------------------


def killed(server: SlowLoading) -> None:
    server.kill()


def stopped(server: SlowLoading) -> None:
    server.process.send_signal(signal.SIGSTOP)


def loading(server: SlowLoading) -> None:
    server.kill()
    server.start_loading()


def bring_back(server: SlowLoading, away: Callable[[SlowLoading], None]) -> None:
    if away is stopped:
        server.process.send_signal(signal.SIGCONT)
    elif away is loading:
        server.load()
    else:
        server.start_again()


@pytest.mark.parametrize("away", [killed, stopped, loading])
def test_a_take_returns_in_time_while_the_server_is_away_and_loses_no_job(
    server: SlowLoading, face: str, away: Callable[[SlowLoading], None]
) -> None:
    with Client(face, url(server.port), **PATIENT) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        client.run(tube.put, "a body")
        away(server)
        for _ in range(3):
            assert limited(lambda: client.run(tube.take, timeout=0.2)) is None
        assert limited(lambda: client.run(tube.take_many, 5, timeout=0.2)) == []
        bring_back(server, away)
        job = client.run(tube.take, timeout=LONG_S)
        assert job is not None and job.body == "a body"
        client.run(job.ack)


def test_a_waiting_take_returns_in_time_when_its_server_stops(server: SlowLoading, face: str) -> None:
    with Client(face, url(server.port), **PATIENT) as client, ThreadPoolExecutor(1) as pool:
        tube = client.run(client.queue.tube, "q", "fifo")
        # Longer than the server needs to receive the command.
        taking = pool.submit(client.run, tube.take, timeout=PATIENCE_S / 4)
        wait_for(lambda: waiting(server) or taking.done())
        stopped(server)
        assert taking.result(LONG_S / 4) is None
        bring_back(server, stopped)
        client.run(tube.put, "a body")
        assert client.run(tube.take, timeout=LONG_S) is not None


def waiting(server: Server) -> bool:
    """Return whether a take waits on the server."""
    wire = server.connect()
    try:
        stats = wire.call("TUBE", "STATS", "q")
        return bool(dict(zip(stats[::2], stats[1::2], strict=True))[b"waiting"])
    finally:
        wire.close()


@pytest.mark.parametrize("away", [killed, stopped])
def test_a_wait_for_a_job_returns_in_time_while_the_server_is_away(
    server: SlowLoading, face: str, away: Callable[[SlowLoading], None]
) -> None:
    with Client(face, url(server.port), **PATIENT) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        job = client.run(tube.put, "a body")
        away(server)
        assert not limited(lambda: client.run(job.wait, timeout=0.2))
        bring_back(server, away)


@pytest.mark.parametrize("away", [killed, stopped])
def test_a_put_with_a_timeout_fails_in_time_while_the_server_is_away(
    server: SlowLoading, face: str, away: Callable[[SlowLoading], None]
) -> None:
    with Client(face, url(server.port), **PATIENT) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        away(server)
        for _ in range(2):
            with pytest.raises((penstock.NoServer, penstock.ConnectionLost)):
                limited(lambda: client.run(tube.put, "a body", timeout=0.2))
        bring_back(server, away)


def test_a_take_of_another_thread_does_not_delay_a_take(server: SlowLoading) -> None:
    """A thread that connects to a server that does not reply does not delay another thread."""
    with penstock.connect(url(server.port), **PATIENT) as queue, ThreadPoolExecutor(1) as pool:
        tube = queue.tube("q", "fifo")
        stopped(server)
        assert limited(lambda: tube.take(timeout=0.1)) is None  # From here on there is no connection.
        endless = pool.submit(tube.take)
        wait_for(lambda: queue._session._opener is not None)
        assert limited(lambda: tube.take(timeout=0.1)) is None
        assert not endless.done()
        bring_back(server, stopped)
        assert endless.result(PATIENCE_S) is None


def test_takes_raise_when_the_server_is_away_for_longer_than_retry_for(server: SlowLoading, face: str) -> None:
    with Client(face, url(server.port), retry_for=0) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        server.kill()
        with pytest.raises(penstock.NoServer):
            limited(lambda: client.run(tube.take, timeout=LONG_S))
    with Client(face, url(server_again(server).port), retry_for=0.3) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        server.kill()
        with pytest.raises(penstock.NoServer):
            while True:
                assert limited(lambda: client.run(tube.take, timeout=0.1)) is None


def server_again(server: SlowLoading) -> SlowLoading:
    server.start_again()
    return server


# ---- The log ---------------------------------------------------------------------------------------------------------


def test_the_loss_and_the_return_of_a_server_are_logged_once_for_all_sessions(
    server: SlowLoading, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with penstock.connect(url(server.port), retry_for=LONG_S) as queue, queue.session() as other:
        tubes = [each.tube("q", "fifo") for each in (queue, other)]
        server.kill()
        for tube in tubes * 2:
            assert tube.take(timeout=0.1) is None
        server.start_again()
        for tube in tubes:
            assert tube.take() is None
    [warning], [info] = logged(caplog, logging.WARNING), logged(caplog, logging.INFO)
    assert warning.startswith(f"server lost: address=127.0.0.1:{server.port} error='no server listens on ")
    assert info.startswith(f"server back: address=127.0.0.1:{server.port} after_s=")


def test_a_server_that_does_not_answer_is_logged_as_lost(
    server: SlowLoading, face: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with Client(face, url(server.port), **PATIENT) as client:
        tube = client.run(client.queue.tube, "q", "fifo")
        stopped(server)
        assert client.run(tube.take, timeout=0.1) is None
        [line] = logged(caplog, logging.WARNING)
        assert line.endswith(" error='the server does not answer'")
        bring_back(server, stopped)
        assert client.run(tube.take) is None
        assert len(logged(caplog, logging.INFO)) == 1


def test_a_server_that_comes_and_goes_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    now = 100.0
    monkeypatch.setattr(reach_module.time, "monotonic", lambda: now)
    reach = Reachability("a:1")
    reach.found("a:1")
    for _ in range(1_000):
        reach.lost(OSError("gone"))
        reach.found("a:1")
    now += 11
    reach.lost(OSError("a\x1b[2J line\nand another"))
    assert logged(caplog, logging.WARNING) == [
        *["server lost: address=a:1 error='gone'"] * 10,
        "server lost: address=a:1 error='a\\x1b[2J line\\nand another' not_logged=990",
    ]
    assert logged(caplog, logging.INFO) == ["server back: address=a:1 after_s=0.0"] * 10
