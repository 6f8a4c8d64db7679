"""The check of every second that closes clients, within a server: which are closed, and which stay."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.limits import NEVER
from penstock.node.caller import Caller, SlicedCommand
from penstock.server.net.connection import Connection
from penstock.server.server import Server

from .. import in_process
from ..serving import PATIENCE_S, command


class Endless(SlicedCommand):
    """A long command that takes longer than any test."""

    def step(self, caller: Caller, now: int) -> bool:
        return False


def _truncate(server: Server, client: Connection) -> None:
    client.busy = True
    server.turn.start_long(client, Endless())
    server.turn.begin()


def _follow(server: Server, client: Connection) -> None:
    assert server.host.journal is not None
    head = server.host.journal.log.written
    client.data_received(command("JOURNAL", "READ", head, "TIMEOUT", "300s"))


def _be_paused(server: Server, client: Connection) -> None:
    server.turn.pause_clients(NEVER)
    client.data_received(command("PING"))


def _wait(server: Server, client: Connection) -> None:
    client.data_received(command("GETJOB", "FROM", "nothing"))


@pytest.mark.parametrize("begin", [_truncate, _follow, _be_paused, _wait])
def test_a_client_that_waits_for_a_reply_is_not_idle(
    tmp_path: Path, begin: Callable[[Server, Connection], None]
) -> None:
    async def main() -> None:
        async with (
            in_process.server(tmp_path) as server,
            in_process.client(server.config.port) as (reader, _),
        ):
            await in_process.until(lambda: len(server.clients) == 1)
            [asks] = server.clients
            begin(server, asks)
            await asyncio.sleep(0)
            async with in_process.client(server.config.port) as (silent, _):
                await in_process.until(lambda: len(server.clients) == 2)
                _let_time_pass(server)
                await in_process.until(lambda: len(server.clients) == 1)
                assert await asyncio.wait_for(silent.read(), PATIENCE_S) == b""
            assert list(server.clients) == [asks] and not reader.at_eof()

    in_process.run(main())


def test_a_client_that_does_not_read_its_long_reply_is_idle(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            in_process.server(tmp_path) as server,
            in_process.client(server.config.port) as (reader, _),
        ):
            await in_process.until(lambda: len(server.clients) == 1)
            [client] = server.clients
            _truncate(server, client)
            client.pause_writing()
            _let_time_pass(server)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""

    in_process.run(main())


def _let_time_pass(server: Server) -> None:
    """Run the check at a time when all clients have been idle for too long."""
    server.clients.limits.idle_s = 0.001
    since = max(int(client.active) for client in server.clients)
    while server.host.now() <= since + 1:
        pass
    server.clients.sweep(time.monotonic() + 1)


def test_the_size_of_unsent_long_replies_counts_for_the_buffer_limit(tmp_path: Path) -> None:
    """This holds for many concurrent scans of all jobs."""

    async def main() -> None:
        async with (
            in_process.server(tmp_path, "--no-journal", "--maxmemory", "8mb") as server,
            in_process.client(server.config.port),
            in_process.client(server.config.port),
        ):
            await in_process.until(lambda: len(server.clients) == 2)
            for client, share in zip(list(server.clients), (3, 1), strict=True):
                client.busy = True
                client.owed = share << 19
                server.turn.start_long(client, Endless())
            server.clients.sweep(time.monotonic())
            assert len(server.clients) == 2
            for client, share in zip(list(server.clients), (3, 2), strict=True):
                client.owed = share << 19
            # Together they exceed a quarter of the memory.
            server.clients.sweep(time.monotonic())
            await in_process.until(lambda: len(server.clients) == 1)
            assert [client.owed for client in server.clients] == [2 << 19]

    in_process.run(main())


@pytest.mark.parametrize(("seconds", "idle_s"), [("300", 300), ("32768", 32_767), ("7d", 32_767), ("500ms", 1)])
def test_clients_are_served_with_every_value_of_tcp_keepalive(tmp_path: Path, seconds: str, idle_s: int) -> None:
    async def main() -> None:
        words = ("--tcp-keepalive", seconds)
        async with (
            in_process.server(tmp_path, *words) as server,
            in_process.client(server.config.port) as (reader, writer),
        ):
            writer.write(command("PING"))
            assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"+PONG\r\n"
            [client] = server.clients
            found = client.transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle_s

    in_process.run(main())
