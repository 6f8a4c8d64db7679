"""The HTTP port: health checks, metrics, and malformed requests."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from penstock.server.net.http import CONNECTIONS_MAX
from tests.ports import free_port

from ..serving import PATIENCE_S, Server

Start = Callable[..., Server]


@pytest.fixture
def watched(start: Start) -> Iterator[tuple[Server, int]]:
    port = free_port()
    yield start("--no-journal", "--http-port", str(port)), port


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def raw(port: int, data: bytes) -> bytes:
    """Send bytes, and return everything until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_health_checks_report_alive_and_ready(watched: tuple[Server, int]) -> None:
    server, port = watched
    assert get(port, "/livez") == (200, "alive\n")
    assert get(port, "/readyz?verbose") == (200, "ready\n")
    assert server.connect().ask("CLUSTER", "LEAVING", "yes") == b"+OK\r\n"
    assert get(port, "/readyz") == (503, "leaving\n")
    assert get(port, "/livez", "HEAD") == (200, "")


def test_the_figures_count_jobs_transitions_and_commands(watched: tuple[Server, int]) -> None:
    server, port = watched
    wire = server.connect()
    wire.add('a "tube"\n')
    wire.add("b")
    wire.get("b")
    status, text = get(port, "/metrics")
    assert status == 200
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert figures['penstock_tube_jobs{tube="a \\"tube\\"\\n",state="ready"}'] == "1"
    assert figures['penstock_tube_transitions_total{tube="b",event="taken",from="ready",to="taken"}'] == "1"
    assert figures['penstock_commands_total{protocol="resp",command="addjob",result="ok"}'] == "2"
    assert float(figures["penstock_jobs"]) == 2 and float(figures["penstock_internal_errors_total"]) == 0
    assert re.fullmatch(r"[\d.e+]+", figures["penstock_memory_used_bytes"])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT / HTTP/1.1\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", 404),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /livez HTTP/0.9\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET livez HTTP/1.1\r\n\r\n", 400),
        (b"*1\r\n$4\r\nPING\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET /livez HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET /livez HTTP/1.1\r\na: " + b"b" * 17_000, 431),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 200),
    ],
)
def test_malformed_http_requests_are_refused_and_closed(watched_shared: int, data: bytes, status: int) -> None:
    answer = raw(watched_shared, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close\r\n" in answer
    assert get(watched_shared, "/livez")[0] == 200


@pytest.fixture(scope="module")
def watched_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    server = Server(tmp_path_factory.mktemp("http"), "--no-journal", "--http-port", str(port))
    yield port
    server.stop()


def test_a_new_connection_takes_the_place_of_the_oldest_that_asks_nothing(watched_shared: int) -> None:
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", watched_shared), PATIENCE_S))
            for _ in range(CONNECTIONS_MAX)
        ]
        assert get(watched_shared, "/livez") == (200, "alive\n")
        assert silent[0].recv(1) == b""
        silent[1].sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert silent[1].recv(1024).startswith(b"HTTP/1.1 200 ")
