"""Closed connections are freed without the garbage collector, which rarely visits old objects of a large queue."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from penstock.server.server import Server
from tests.ports import free_port

from .. import in_process
from ..iproto_wire import call
from ..serving import PATIENCE_S, command

# Classes whose objects belong to a connection of a client or a node.
_OURS = ("Connection", "ForwardedClient", "HttpConnection", "Inbound", "Outbound", "Tunnel")
_TLS = ("Handshake", "_Accepted", "SSLProtocol", "_SSLProtocolTransport", "SSLObject", "socket")
_THEIRS = ("RespTunnel", "CallTunnel", "Outflow", "Inflow", "RespParser", "IprotoParser", "Frames", "TCPTransport")
_KINDS = {*_OURS, *_TLS, *_THEIRS, "Task", "CoroWrapper"}


def there() -> Counter[str]:
    """Return the number of live objects of these classes."""
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in _KINDS)


@pytest.fixture
def left_alone() -> Iterator[None]:
    """Disable the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leaves_nothing(visit: Callable[[], Awaitable[None]]) -> None:
    """Check that a visit leaves no objects behind, without a collection."""
    await visit()  # The first visit may create objects that are created once.
    gc.collect()
    before = there()
    await visit()
    await in_process.until(lambda: there() <= before)


async def talk(port: int, said: bytes, awaited: bytes) -> None:
    """Send bytes, and close the connection after the first reply, or after all of them."""
    async with in_process.client(port) as (reader, writer):
        writer.write(said)
        if awaited:
            await asyncio.wait_for(reader.readuntil(awaited), PATIENCE_S)


VISITS = {
    "PING": ("port", command("PING"), b"+PONG\r\n"),
    "a job": ("port", command("ADDJOB", "q", "b", 0) + command("GETJOB", "FROM", "q"), b"*1\r\n"),
    "one that goes while it waits": ("port", command("PING") + command("TAKE", "none", "TIMEOUT", 9_999_999), b"PONG"),
    "MONITOR": ("port", command("MONITOR"), b"+OK\r\n"),
    "a long command": ("port", command("JSCAN"), b"*2\r\n"),
    "history": ("port", command("JOURNAL", "READ", "0:0", "TIMEOUT", 10), b"\r\n"),
    "nonsense": ("port", b"*1\r\n$x\r\n", b"\r\n"),
    "nothing": ("port", b"", b""),
    "a call": ("iproto_port", call("queue.statistics"), b"\x81"),
    "half a call": ("iproto_port", call("queue.statistics")[:9], b"\n"),
    "a page": ("http_port", b"GET /metrics HTTP/1.1\r\n\r\n", b"\r\n\r\n"),
    "no page": ("http_port", b"", b""),
    "nonsense for nodes": ("cluster_port", b"nonsense" * 100, b""),
    "nothing for nodes": ("cluster_port", b"", b""),
}


@pytest.mark.parametrize(("door", "said", "awaited"), VISITS.values(), ids=VISITS.keys())
def test_a_closed_connection_leaves_no_garbage(
    tmp_path: Path, left_alone: None, door: str, said: bytes, awaited: bytes
) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            await leaves_nothing(lambda: talk(getattr(server.config, door), said, awaited))

    in_process.run(main())


@pytest.mark.parametrize(
    ("said", "closes"),
    [(b"", False), (b"", True), (b"PING\r\n", False), (b"\x16\x03\x01\x00\x05hello", False), (None, False)],
)
def test_a_tls_handshake_leaves_no_garbage(
    tmp_path: Path, left_alone: None, certificate: Path, said: bytes | None, closes: bool
) -> None:
    """The peer disconnects, is closed by the server, sends bytes that are not TLS, or finishes the handshake (None)."""
    port, tls = free_port(), ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    words = ["--tls-port", str(port), "--tls-cert-file", f"{certificate}/cert.pem"]
    words += ["--tls-key-file", f"{certificate}/key.pem"]

    async def main() -> None:
        async with in_process.server(tmp_path, *words) as server:
            handshakes = server.clients.handshakes

            async def visit() -> None:
                if said is None:
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
                else:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(said)
                    if closes:
                        await in_process.until(lambda: len(handshakes) == 1)
                        assert handshakes.close_oldest()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                await in_process.until(lambda: len(handshakes) == len(server.clients) == 0)

            await leaves_nothing(visit)

    in_process.run(main())


@pytest.mark.parametrize("door", ["port", "iproto_port"])
@pytest.mark.parametrize("waits", [False, True], ids=["served", "waits"])
def test_a_forwarded_client_leaves_no_garbage_on_either_node(
    tmp_path: Path, left_alone: None, door: str, waits: bool
) -> None:
    said = {
        ("port", False): command("PUT", "there", "b") + command("TAKE", "there"),
        ("port", True): command("TAKE", "there", "TIMEOUT", 9_999_999),
        ("iproto_port", False): call("queue.tube.there:put", ["b"]),
        ("iproto_port", True): call("queue.tube.there:take", [9_999]),
    }[door, waits]

    async def script(one: Server, other: Server) -> None:
        async def visit() -> None:
            async with in_process.client(getattr(one.config, door)) as (reader, writer):
                if door == "iproto_port":
                    await reader.readexactly(128)
                writer.write(said)
                if waits:
                    await in_process.until(lambda: any(each.is_waiting for each in other.clients))
                else:
                    await asyncio.wait_for(reader.read(1), PATIENCE_S)
            await in_process.until(lambda: len(one.clients) == len(other.clients) == 0)

        await leaves_nothing(visit)

    in_process.run_two(tmp_path, script)


def test_lost_links_leave_no_garbage_of_their_tunnels(tmp_path: Path, left_alone: None) -> None:
    async def script(one: Server, other: Server) -> None:
        async def visit() -> None:
            async with in_process.client(one.config.port) as (reader, writer):
                writer.write(command("TAKE", "there", "TIMEOUT", 9_999_999))
                await in_process.until(lambda: any(each.is_waiting for each in other.clients))
                bus = one.membership.bus
                for link in [*bus._inbound.values(), *bus._outbound.values()]:
                    link.close()
                assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"-NOHOME")
            await in_process.until(lambda: bus.is_two_way(other.host.node.encode()))
            await in_process.until(lambda: other.membership.bus.is_two_way(one.host.node.encode()))

        await leaves_nothing(visit)

    in_process.run_two(tmp_path, script)


def test_failed_connection_attempts_leave_no_garbage(tmp_path: Path, left_alone: None) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            membership = server.membership
            assert membership.meet("127.0.0.1", free_port(), free_port()) == ""
            # Each attempt waits longer than the one before. An attempt is short, so it may not be seen.
            await in_process.until(lambda: max(membership.bus._delays.values(), default=0.0) >= 0.4)
            await in_process.until(lambda: there()["Outbound"] <= len(membership.bus._outbound))

    in_process.run(main())
