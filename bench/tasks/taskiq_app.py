"""The tasks for Taskiq."""

import asyncio
import os

from taskiq_redis import ListQueueBroker

from bench.tasks import meter

broker = ListQueueBroker(os.environ["BROKER"])
_loop = asyncio.new_event_loop()


@broker.task
async def noop(total: int) -> None:
    meter.noop(total)


@broker.task
async def start(sent_ns: int, total: int) -> None:
    meter.start(sent_ns, total)


async def _fill(count: int) -> None:
    await broker.startup()
    for _ in range(count):
        await noop.kiq(count)


def fill(count: int) -> None:
    _loop.run_until_complete(_fill(count))


async def _put_start(sent_ns: int, total: int) -> None:
    await start.kiq(sent_ns, total)


def put_start(sent_ns: int, total: int) -> None:
    _loop.run_until_complete(_put_start(sent_ns, total))
