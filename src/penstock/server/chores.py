"""What a server does by itself, now and then, for as long as it serves. Each chore is a task of its own.

One that fails is told of as an internal error, and tried again: nobody waits for it who would notice that it is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.server.garbage import Garbage
from penstock.server.info import SAMPLE_S, Info
from penstock.server.server import Server

_OFTEN_S: Final = 1.0

# From 95 % of the memory on it is evicted; the last 5 % have to be enough for what is put until that is noticed.
_EVICT_S: Final = 0.1

# How long a chore rests that has failed: whatever was wrong with it may be so again, and is told each time.
_REST_S: Final = 10.0


def start(server: Server, info: Info) -> list[asyncio.Task[None]]:
    """Begin with all of them."""
    garbage = Garbage(server)
    chores: list[tuple[float, Callable[[], bool | None]]] = [
        (SAMPLE_S, info.sample),
        (_OFTEN_S, lambda: server.clients.sweep(time.monotonic())),
        (_OFTEN_S, server.drop_idle_queues),
        (_EVICT_S, server.evict),
        (_OFTEN_S, server.make_spaces_left),
        (_OFTEN_S, garbage.look),
    ]
    return [server.loop.create_task(every(server, seconds, chore)) for seconds, chore in chores]


async def every(server: Server, seconds: float, chore: Callable[[], bool | None], rest_s: float = _REST_S) -> None:
    """Do something again and again; at once, when others had their turn, if it tells that there is more to do."""
    is_done = True
    while True:
        await asyncio.sleep(seconds if is_done else 0)
        try:
            is_done = not chore()
        except Exception as error:
            server.desk.report(error)
            await asyncio.sleep(rest_s)
