"""Connections to something that is not Penstock, or that refuses the client: the error says what to do."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import BodyTooLarge, NoServer, NotAllowed, Unauthenticated, WrongPassword, WrongServer
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, Server, wait_for


def errors_of(url: str, **options: Any) -> list[BaseException]:
    """Return the errors of both clients."""
    told: list[BaseException] = []
    try:
        penstock.connect(url, **options).close()
    except (penstock.PenstockError, OSError) as error:
        told.append(error)

    async def connect() -> None:
        async with penstock.connect_async(url, **options):
            pass

    try:
        asyncio.run(connect())
    except (penstock.PenstockError, OSError) as error:
        told.append(error)
    assert len(told) == 2 and type(told[0]) is type(told[1]) and str(told[0]) == str(told[1]), told
    assert "\n" not in str(told[0])
    return told


@pytest.fixture
def stranger() -> Iterator[Callable[[bytes], int]]:
    """Return the port of a server that answers every connection with these bytes and then only reads."""
    listeners: list[socket.socket] = []

    def listen(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    yield listen
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "like a web server"),
        (b"Tarantool 2.11.0 (Binary) 0-0-0\n" + b" " * 64, "like a Tarantool"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "set tls=1"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak RESP"),
        (b"-ERR unknown command 'HELLO'\r\n" * 5, "does not know HELLO"),
        (b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n" + b"-ERR unknown command\r\n" * 4, "is redis, not Penstock"),
        (b"", "closed the connection during the handshake"),
        (b"-ERR max number of clients reached\r\n" * 5, "max number of clients"),
    ],
)
def test_a_server_that_is_not_penstock_is_recognised(
    stranger: Callable[[bytes], int], answer: bytes, told: str
) -> None:
    for error in errors_of(f"penstock://127.0.0.1:{stranger(answer)}"):
        assert told in str(error) and isinstance(error, NoServer) and isinstance(error, ConnectionError)


def test_a_redis_server_is_recognised(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("redis-server"), "redis-server is not installed")
    port = free_port()
    redis = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", ""], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _listens(port))
        for error in errors_of(f"penstock://127.0.0.1:{port}"):
            assert isinstance(error, WrongServer) and "is redis, not Penstock" in str(error)
    finally:
        redis.kill()
        redis.wait(PATIENCE_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_refused_connection_is_reported_at_once() -> None:
    port = free_port()
    for error in errors_of(f"penstock://127.0.0.1:{port}"):
        assert isinstance(error, NoServer) and f"no server listens on 127.0.0.1:{port}; start one" in str(error)
    # A name server may need some time for a name that does not exist.
    for error in errors_of("penstock://no-such-host.invalid", connect_timeout=60):
        assert isinstance(error, NoServer) and "no-such-host.invalid:7711 cannot be reached" in str(error)


def test_a_server_that_does_not_reply_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for error in errors_of(f"penstock://127.0.0.1:{port}?connect_timeout=50ms"):
            assert isinstance(error, NoServer) and "does not answer" in str(error)


def test_tls_on_a_plain_port_is_reported(server: Server) -> None:
    for error in errors_of(f"penstock://127.0.0.1:{server.port}?tls=1"):
        assert isinstance(error, WrongServer) and "the TLS handshake with" in str(error)


def test_a_missing_or_wrong_password_is_reported(start: Callable[..., Server]) -> None:
    server = start("--dir", ".", "--requirepass", "s3cr@t", password="s3cr@t")
    where = f"127.0.0.1:{server.port}"
    for error in errors_of(f"penstock://{where}"):
        assert isinstance(error, Unauthenticated) and "requires a password in the URL" in str(error)
    for error in errors_of(f"penstock://:wrong@{where}"):
        assert isinstance(error, WrongPassword) and "check both in the URL" in str(error)
    with penstock.connect(f"penstock://:s3cr%40t@{where}") as queue:
        assert queue.tubes() == []
    with penstock.connect(f"penstock://{where}", password="s3cr@t") as queue:
        assert queue.tubes() == []
        assert NotAllowed.code == "NOPERM"


def test_a_body_too_large_is_refused_and_the_connection_goes_on(start: Callable[..., Server]) -> None:
    server = start("--dir", ".", "--max-body", "1mb")
    with penstock.connect(f"penstock://127.0.0.1:{server.port}") as queue:
        tube = queue.tube("big")
        for body in (b"x" * (1 << 20) + b"x", b"x" * (8 << 20)):
            with pytest.raises(BodyTooLarge, match="max_body"):
                tube.put(body)
        tube.put(b"x" * (1 << 20))
        assert tube.stats()["ready"] == 1
