"""A client that disconnects in the turn that delivers a job to it has never received the job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.core import states as s
from penstock.core.tube import Tube
from penstock.server.server import Server

from .. import in_process
from ..iproto_wire import call
from ..serving import PATIENCE_S, command

ONCE = ("TUBE", "CREATE", "once", "retry", "1x then drop")


async def _made(server: Server) -> Tube:
    """Create a tube whose jobs are removed when they fail once."""
    assert (await in_process.ask(server.config.port, *ONCE)).startswith(b"*")
    await in_process.until(lambda: len(server.clients) == 0)
    return server.turn.engine.tubes[b"once"]


def _is_untouched(tube: Tube) -> bool:
    """Return whether the only job of a tube is ready and was never delivered."""
    jobs = [tube.ready.first()] if tube.total() == 1 else []
    return [(job.state, job.deliveries) for job in jobs if job] == [(s.READY, 0)]


@pytest.mark.parametrize("takes", [1, 3])
@pytest.mark.parametrize("door", ["port", "iproto_port"])
def test_a_job_for_a_client_that_disconnects_in_the_same_turn_is_not_delivered(
    tmp_path: Path, door: str, takes: int
) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            tube = await _made(server)
            async with (
                in_process.client(getattr(server.config, door)) as (_, writer),
                in_process.client(server.config.port),
            ):
                for sync in range(takes):
                    take = command("TAKE", "once", "TIMEOUT", "1h")
                    writer.write(take if door == "port" else call("queue.tube.once:take", [3_600], sync))
                await in_process.until(lambda: tube.take_line.length == (takes if door == "iproto_port" else 1))
                await in_process.until(lambda: len(server.clients) == 2)
                taker, putter = sorted(server.clients, key=lambda client: not client.is_waiting)
                # This is the order of events if both arrive at once.
                putter.data_received(command("PUT", "once", "body"))
                server.turn.run(putter)
                taker.connection_lost(ConnectionResetError())
                taker.transport.abort()
                await asyncio.sleep(0)
                assert _is_untouched(tube)

    in_process.run(main())


@pytest.mark.parametrize("door", ["port", "iproto_port"])
def test_a_job_for_a_socket_that_the_system_has_closed_is_not_delivered(tmp_path: Path, door: str) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            tube = await _made(server)
            async with (
                in_process.client(getattr(server.config, door)) as (_, writer),
                in_process.client(server.config.port),
            ):
                take = command("TAKE", "once", "TIMEOUT", "1h")
                writer.write(take if door == "port" else call("queue.tube.once:take", [3_600], 1))
                await in_process.until(lambda: tube.take_line.length == 1 and len(server.clients) == 2)
                taker, putter = sorted(server.clients, key=lambda client: not client.is_waiting)
                putter.data_received(command("PUT", "once", "body"))
                taker.transport.abort()
                assert not taker.lost
                server.turn_loop.end_turn()
                await in_process.until(lambda: taker.lost)
                await in_process.until(lambda: _is_untouched(tube))

    in_process.run(main())


def test_a_job_for_a_forwarded_client_that_disconnects_in_the_same_turn_is_not_delivered(tmp_path: Path) -> None:
    async def script(one: Server, other: Server) -> None:
        tube = other.turn.engine.tubes[b"there"]
        async with (
            in_process.client(one.config.port) as (_, writer),
            in_process.client(other.config.port),
        ):
            writer.write(command("TAKE", "there", "TIMEOUT", "1h"))
            await in_process.until(lambda: tube.take_line.length == 1)
            [putter] = [client for client in other.clients if not client.entry_node]
            putter.data_received(command("PUT", "there", "body"))
            other.turn.run(putter)
            other.membership.bus.forwarding.link_lost(one.host.node.encode())  # type: ignore[union-attr]
            await asyncio.sleep(0)
            assert _is_untouched(tube)

    in_process.run_two(tmp_path, script)


def test_a_closed_forwarded_client_is_not_opened_again(tmp_path: Path) -> None:
    """Its client learns that the connection was closed, so no client would receive its replies."""

    async def script(one: Server, other: Server) -> None:
        async with in_process.client(one.config.port) as (reader, writer):
            writer.write(command("TAKE", "there", "TIMEOUT", 0))
            await asyncio.wait_for(reader.readline(), PATIENCE_S)
            [guest], [client] = other.clients, one.clients
            guest.abort()
            # Before the client learns of that, it changes its name, which the next command sends to the other node.
            client.data_received(command("CLIENT", "SETNAME", "me") + command("TAKE", "there", "TIMEOUT", "1h"))
            one.turn.run(client)
            assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"+OK\r\n"
            assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"-NOHOME")
            await in_process.until(lambda: len(other.clients) == 0)

    in_process.run_two(tmp_path, script)
