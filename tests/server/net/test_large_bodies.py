"""A request above `max_body` is refused with TOOBIG and the limit, is not kept in memory, and costs no connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import asynctnt
import pytest
import redis

from tests.server import raw_clients
from tests.server.iproto_wire import CALL, IprotoWire, request
from tests.server.raw_clients import Watch, figures, serving, warm_up
from tests.server.serving import PATIENCE_S, Refusal, Server, Wire, command, configured
from tests.wire.client_input import encode

MB = 1 << 20
DEFAULT = 64 * MB
ENVELOPE = 64 * 1024  # An argument may have this many bytes more than a body.
PIECE = bytes(256 * 1024)


def toobig(limit: int) -> str:
    return (
        f"TOOBIG the request is too large; a body may have {limit} bytes (max_body); "
        "store the data elsewhere and queue a reference to it"
    )


def test_a_body_of_65_mib_is_refused_with_the_limit_and_the_connection_goes_on(server: Server, queue: bytes) -> None:
    with redis.Redis(port=server.port, socket_timeout=PATIENCE_S, single_connection_client=True) as client:
        number = client.client_id()
        for size in (DEFAULT + ENVELOPE + 1, 65 * MB, 100 * MB):
            with pytest.raises(redis.ResponseError) as refused:
                client.execute_command("ADDJOB", queue, bytes(size), 0)
            assert str(refused.value) == toobig(DEFAULT)
        assert client.execute_command("QLEN", queue) == 0
        assert client.execute_command("ADDJOB", queue, b"x", 0).startswith(b"D-")
        assert client.client_id() == number


def test_a_body_just_above_the_limit_gets_the_same_code_and_the_limit(wire: Wire, queue: bytes) -> None:
    with pytest.raises(Refusal, match=f"^TOOBIG .*{DEFAULT}.*max_body"):
        wire.call("ADDJOB", queue, bytes(DEFAULT + 1), 0)


@pytest.mark.parametrize("limit", [0, 10, 1_000, 100_000])
def test_commands_before_and_behind_a_refused_one_run_in_their_order(wire: Wire, queue: bytes, limit: int) -> None:
    with configured(wire, "max-body", limit):
        above = command("ADDJOB", queue, b"x" * (limit + ENVELOPE + 1), 0)
        one, ping = command("ADDJOB", queue, b"", 0), command("PING")
        for pieces in (
            [ping + above + ping + above + one + ping],
            [ping, above, ping + above[:-1], above[-1:], one, ping],
            [ping + above[:50], *(bytes([byte]) for byte in above[50:99]), above[99:-9]]
            + [bytes([byte]) for byte in above[-9:] + ping + above[:40]]
            + [above[40:] + one + ping],
        ):
            for piece in pieces:
                wire.send_raw(piece)
            refused = f"-{toobig(limit)}\r\n".encode()
            assert [wire.read() for _ in range(4)] == [b"+PONG\r\n", refused, b"+PONG\r\n", refused]
            assert wire.read().startswith(b"+D-")
            assert wire.read() == b"+PONG\r\n"
        assert wire.call("QLEN", queue) == 3


def test_a_changed_limit_holds_for_clients_that_are_connected(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    with configured(wires(), "max-body", 1_000):
        with pytest.raises(Refusal) as refused:
            wire.call("ADDJOB", queue, bytes(200_000), 0)
        assert str(refused.value) == toobig(1_000)
    assert wire.call("ADDJOB", queue, bytes(200_000), 0).startswith(b"D-")


def test_a_silent_client_gets_no_refusal_either(wire: Wire, queue: bytes) -> None:
    with configured(wire, "max-body", 1_000):
        wire.send_raw(
            command("CLIENT", "REPLY", "SKIP") + command("ADDJOB", queue, bytes(200_000), 0) + command("PING")
        )
        assert wire.read() == b"+PONG\r\n"


def test_a_size_above_every_setting_is_a_protocol_error(wires: Callable[[], Wire]) -> None:
    wire = wires()
    wire.send_raw(b"*1\r\n$536870913\r\n")
    assert wire.read() == b"-ERR Protocol error: invalid bulk length\r\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[raw_clients.Server]:
    with serving(tmp_path_factory.mktemp("large-bodies"), "--max-body", "1mb") as server:
        with server.client() as client:
            warm_up(client)
        yield server


def test_many_clients_with_large_bodies_do_not_grow_the_memory(small: raw_clients.Server) -> None:
    """Forty clients send 20 MiB each, all at the same time, to a server that allows 1 MiB."""
    with small.client() as client:
        client.send(
            encode([b"ADDJOB", b"q", bytes(20 * MB), b"0"])
        )  # Memory for the first one is reused for the others.
        assert client.answer() == raw_clients.Refusal(toobig(MB))
    with Watch(small, growth_max=16 * MB) as watch:
        clients = [small.client() for _ in range(40)]
        for client in clients:
            client.send(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n" % (20 * MB))
        for _ in range(20 * MB // len(PIECE)):
            for client in clients:
                client.send(PIECE)
        watch.look()
        with small.client() as other:
            assert int(figures(other)["connected_clients"]) >= 41  # All are still connected.
        assert small.rss() - watch.rss < 16 * MB  # None of the 800 MiB is in memory.
        for client in clients:
            client.send(b"\r\n$1\r\n0\r\nPING\r\n")
        for client in clients:
            assert client.answer() == raw_clients.Refusal(toobig(MB))
            assert client.answer() == b"PONG"
            client.close()


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(small: raw_clients.Server) -> None:
    with Watch(small), small.client() as client:
        client.send(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n" % (20 * MB) + PIECE)
        client.half_close()
        assert client.rest() == b""


def test_limits_before_the_password_are_small_and_close_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-body", "1mb", "--requirepass", "secret") as server:
        with server.client() as client:
            client.send(b"*2\r\n$4\r\nPING\r\n$16385\r\n")
            assert client.rest() == b"-ERR Protocol error: unauthenticated bulk length\r\n"
        with server.client() as client:
            client.send(encode([b"AUTH", b"secret"]) + encode([b"ADDJOB", b"q", bytes(2 * MB), b"0"]) + b"PING\n")
            assert [client.answer() for _ in range(3)] == [b"OK", raw_clients.Refusal(toobig(MB)), b"PONG"]


# IPROTO


def test_a_packet_above_the_limit_is_refused_by_its_sync_and_the_connection_goes_on(
    iproto: IprotoWire, tube: str
) -> None:
    sync = iproto.start(f"queue.tube.{tube}:put", "x" * (65 * MB))
    behind = iproto.start(f"queue.tube.{tube}:put", "y")
    code, answered, body = iproto.read()
    assert (code & 0x7FFF, answered) == (32, sync)
    assert body[0x31] == toobig(DEFAULT).partition(" ")[2]
    assert iproto.result(behind)[0][2] == "y"


def test_a_body_just_above_the_limit_is_refused_over_iproto_with_the_limit(iproto: IprotoWire, tube: str) -> None:
    iproto.send_raw(request(CALL, {0x22: f"queue.tube.{tube}:put", 0x21: ["x" * (DEFAULT + 1)]}, 77))
    code, sync, body = iproto.read()
    assert (code & 0x7FFF, sync) == (32, 77) and str(DEFAULT) in body[0x31] and "max_body" in body[0x31]


def test_asynctnt_gets_the_limit_and_keeps_its_connection(server: Server, tube: str) -> None:
    async def put() -> None:
        async with asynctnt.Connection(host="127.0.0.1", port=server.iproto_port, fetch_schema=False) as connection:
            with pytest.raises(asynctnt.exceptions.TarantoolDatabaseError, match=f"a body may have {DEFAULT} bytes"):
                await connection.call(f"queue.tube.{tube}:put", ["x" * (65 * MB)])
            stored = await connection.call(f"queue.tube.{tube}:put", ["x"])
            assert stored.body[0][2] == "x"

    asyncio.run(put())
