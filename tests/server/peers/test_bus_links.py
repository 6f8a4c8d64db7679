"""Opening a link to a node whose name has several addresses, and the warning if the node cannot be reached."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from penstock.cluster.members import MEET_MS
from penstock.server.peers.bus import connected
from tests.ports import free_port

from .. import in_process


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_first_address_that_can_be_reached_is_used(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    loop = new_loop()
    with contextlib.closing(loop), socket.create_server(("127.0.0.1", 0)) as door:
        stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        nobody, there = (*stream, ("127.0.0.1", free_port())), (*stream, door.getsockname())
        unheard_of = (-2, socket.SOCK_STREAM, 0, "", ("nowhere", 1))
        with loop.run_until_complete(connected(loop, [unheard_of, nobody, there, nobody])) as made:
            assert made.getpeername() == door.getsockname()
        for none in ([], [unheard_of], [nobody, nobody]):
            with pytest.raises(OSError):
                loop.run_until_complete(connected(loop, none))


def test_the_log_has_the_address_of_a_node_that_was_not_met(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            port, bus_port = free_port(), free_port()
            assert server.membership.meet("127.0.0.1", port, bus_port) == ""
            [peer] = server.membership.members.peers.values()
            # A minute passes.
            peer.added -= MEET_MS
            with caplog.at_level(logging.WARNING, "penstock"):
                await in_process.until(lambda: caplog.messages)
            assert f"node not met: address=127.0.0.1:{port} bus_port={bus_port};" in caplog.text

    in_process.run(main())
