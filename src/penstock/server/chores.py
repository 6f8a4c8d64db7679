"""Periodic tasks of a server. Each is an asyncio task of its own.

A task that fails is logged as an internal error and tried again, because no other code would notice that it ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.server.commands.info_command import SAMPLE_S, Info
from penstock.server.gc_schedule import GarbageCollection
from penstock.server.server import Server

_OFTEN_S: Final = 1.0

# Eviction starts at 95 % of the memory. The last 5 % have to hold the puts of this interval.
_EVICT_S: Final = 0.1

# A task that failed rests this long, because it may fail again and each failure is logged.
_REST_S: Final = 10.0


def start(server: Server, info: Info) -> list[asyncio.Task[None]]:
    """Start all periodic tasks. Return the asyncio tasks, which run until they are cancelled."""
    garbage = GarbageCollection(server)
    chores: list[tuple[float, Callable[[], bool | None]]] = [
        (SAMPLE_S, info.sample),
        (_OFTEN_S, lambda: server.clients.sweep(time.monotonic())),
        (_OFTEN_S, server.drop_idle_queues),
        (_EVICT_S, server.evict),
        (_OFTEN_S, server.make_spaces_left),
        (_OFTEN_S, garbage.collect),
    ]
    return [server.loop.create_task(every(server, seconds, chore)) for seconds, chore in chores]


async def every(server: Server, seconds: float, chore: Callable[[], bool | None], rest_s: float = _REST_S) -> None:
    """Run `chore` every `seconds`. If it returns True, it has more to do, so run it again without this pause."""
    is_done = True
    while True:
        await asyncio.sleep(seconds if is_done else 0)
        try:
            is_done = not chore()
        except Exception as error:
            server.dispatcher.report(error)
            await asyncio.sleep(rest_s)
