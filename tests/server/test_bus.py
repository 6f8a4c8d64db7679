"""How a link to a node is opened, where a name has several addresses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
import uvloop

from penstock.server.bus import connected
from tests.ports import free_port


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
