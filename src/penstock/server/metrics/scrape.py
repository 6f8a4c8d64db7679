"""A scrape: collects the page of metrics in slices, so that clients wait 5 ms at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Final

from penstock.server.metrics.node_metrics import add_node
from penstock.server.metrics.page import Page
from penstock.server.metrics.process_metrics import add_process
from penstock.server.metrics.tube_metrics import add_tubes
from penstock.server.server import Server

# The event loop serves its other work between slices of this length.
SLICE_S: Final = 0.005


class Scrapes:
    """The scrapes of a node. Requests that arrive during a scrape get the page of that scrape."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._running: asyncio.Task[list[bytes]] | None = None

    async def page(self) -> list[bytes]:
        """Return the page of metrics in parts."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._scrape())
        # Another request may wait for the same page when this one is cancelled.
        return await asyncio.shield(self._running)

    async def _scrape(self) -> list[bytes]:
        disk, parts = self._server.host.disk, list[bytes]()
        # A disk that hangs must not stop the event loop.
        free = None if disk is None else await asyncio.to_thread(disk.free)
        work = collect(self._server, free, parts)
        is_done = False
        while not is_done:
            is_done = run_slice(work, SLICE_S)
            if not is_done:
                await asyncio.sleep(0)
        return parts


def run_slice(work: Generator[None], seconds: float) -> bool:
    """Run a generator for some time. Return whether it has ended."""
    until = time.perf_counter() + seconds
    for _ in work:
        if time.perf_counter() >= until:
            return False
    return True


def collect(server: Server, free: int | None, parts: list[bytes]) -> Generator[None]:
    """Collect all metrics, and append the page to `parts`. Yield where other work can be done.

    `free` is the free space of the journal's disk, if there is one.
    """
    page = Page()
    if free is not None:
        page.add("penstock_journal_free_bytes", free)
    add_process(page)
    yield from add_node(page, server)
    yield from add_tubes(page, server)
    for chunk in page.chunks():
        parts.append(chunk)
        yield
