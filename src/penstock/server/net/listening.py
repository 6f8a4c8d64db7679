"""TCP and Unix listeners that accept only a few connections at a time.

asyncio accepts up to `backlog` connections before it calls `connection_made` for the first of them, which checks the
limits. So with a large `backlog`, connections could take the last free descriptors. uvloop accepts one at a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

Accept = Callable[[], asyncio.BaseProtocol]

# This many connections of a listener are accepted before the first is counted.
ACCEPTED_AT_ONCE: Final = 4


async def bind(
    loop: asyncio.AbstractEventLoop, accept: Accept, hosts: Sequence[str], port: int, backlog: int
) -> asyncio.Server:
    """Open a TCP port. Up to `backlog` connections wait in the system's queue until `start` is called."""
    listener = await loop.create_server(accept, hosts, port, backlog=ACCEPTED_AT_ONCE, start_serving=False)
    _set_backlog(listener, backlog)
    return listener


async def bind_unix(
    loop: asyncio.AbstractEventLoop, accept: Accept, sock: socket.socket, backlog: int
) -> asyncio.Server:
    """Open a Unix socket that is already bound to its path. Connections are accepted after `start`."""
    listener = await loop.create_unix_server(accept, sock=sock, backlog=ACCEPTED_AT_ONCE, start_serving=False)
    _set_backlog(listener, backlog)
    return listener


async def start(listener: asyncio.Server, backlog: int) -> None:
    """Start to accept connections. At most `backlog` wait in the system's queue."""
    await listener.start_serving()
    _set_backlog(listener, backlog)


def _set_backlog(listener: asyncio.Server, backlog: int) -> None:
    """Set how many connections wait in the system's queue.

    asyncio's argument `backlog` cannot do this, because it also sets how many connections are accepted at a time.
    Several processes can bind a port, but only one can listen on it. In the others this raises OSError.
    """
    for each in listener.sockets:
        with socket.socket(fileno=os.dup(each.fileno())) as same:
            same.listen(backlog)
