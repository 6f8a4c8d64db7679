"""Runs a scenario next to a worker, in one event loop and on a queue in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import penstock
from penstock.tasks.workers.worker import Worker

LIMIT_S = 30


def run_with_worker(
    app: penstock.App, scenario: Callable[[Worker], Awaitable[None]], *, concurrency: int = 10, drain: float = 5
) -> None:
    """Run a scenario while a worker of the app runs. The worker stops at its end."""

    async def main() -> None:
        worker = await app.worker(concurrency=concurrency, drain=drain)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(LIMIT_S):
                await worker.started.wait()
                await scenario(worker)
        finally:
            worker.stop()
            await running
            await worker.close()
            await app.aclose()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():
        await asyncio.sleep(0.002)
