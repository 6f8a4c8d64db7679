"""Servers in the process and event loop of the test, with real ports and sockets, whose internals can be inspected."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from penstock.server.commands import command_table
from penstock.server.config.configuration import load
from penstock.server.main import open_bus, open_host, pages
from penstock.server.net.iproto_port import iproto_ports
from penstock.server.net.listening import Accept
from penstock.server.net.ports import Ports
from penstock.server.peers.admission import open_forwarding
from penstock.server.server import Server
from tests.ports import free_port

from .serving import PATIENCE_S, Word, command

_PORTS = ("port", "iproto-port", "iproto15-port", "cluster-port", "http-port")


@contextlib.asynccontextmanager
async def server(home: Path, *words: str) -> AsyncIterator[Server]:
    """Start a server with a directory, with all ports open."""
    ports = [word for name in _PORTS for word in (f"--{name}", str(free_port()))]
    config = load(None, ["--dir", str(home), *ports, *words], {}, home)
    host = open_host(config)
    server = Server(config, host, asyncio.get_running_loop())
    command_table.install(server)
    server.apply_all()
    iproto_doors = iproto_ports(server)
    open_forwarding(server, list(dict.fromkeys(iproto_doors.values())))
    open_ports = await ports_of(server, {name: door.accept for name, door in iproto_doors.items()})
    await open_bus(server, open_ports)
    await open_ports.accept()
    server.turn.begin()
    try:
        yield server
    finally:
        open_ports.close()
        for client in server.clients:
            client.abort()
        await until(lambda: len(server.clients) == 0)
        server.membership.bus.close()
        server.turn_loop.stop()
        with host.lock:
            host.close()


async def ports_of(server: Server, iproto: dict[str, Accept]) -> Ports:
    """Reserve the ports of a server."""
    clients = server.clients
    ports = Ports(server.config, server.loop, clients.accept, iproto, pages(server), clients.handshakes)
    await ports.bind()
    return ports


async def meet(one: Server, other: Server) -> None:
    """Connect two servers to a cluster."""
    assert one.membership.meet("127.0.0.1", other.config.port, other.config.cluster_port) == ""
    for server, peer in ((one, other), (other, one)):
        await until(lambda server=server, peer=peer: server.membership.bus.is_two_way(peer.host.node.encode()))


async def until(condition: Callable[[], Any]) -> None:
    """Run the event loop until a condition is true."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, "it does not come about"
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a port of a server."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), PATIENCE_S)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, *words: Word) -> bytes:
    """Return the first line of the reply to a command, sent on a new connection."""
    async with client(port) as (reader, writer):
        writer.write(command(*words))
        return await asyncio.wait_for(reader.readline(), PATIENCE_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the event loop that servers use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def run_two(home: Path, script: Callable[[Server, Server], Awaitable[None]]) -> None:
    """Run a test with two nodes. The second has a tube `there`, whose jobs are removed when they fail once."""

    async def main() -> None:
        async with server(home / "one") as one, server(home / "other") as other:
            await meet(one, other)
            made = await ask(other.config.port, "TUBE", "CREATE", "there", "retry", "1x then drop")
            assert made.startswith(b"*")
            await until(lambda: one.membership.cluster.homes.home_of(b"there") and len(other.clients) == 0)
            await script(one, other)

    for name in ("one", "other"):
        (home / name).mkdir()
    run(main())
