"""Our clients compared with redis-py, with the same server in one run: the cost of a call for its caller.

The server is a separate process that shares the cores with its client, so only ratios are meaningful.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import penstock
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.trial import Sample, Trial

_BODY = b"x" * 40
_TASKS = 100
_BATCH = 1_000

# Goals: the rate of puts relative to a PING loop of redis-py, and that of our tasks relative to its ADDJOB tasks.
_SYNC_RATIO_MIN = 0.8
_ASYNC_RATIO_MIN = 2.0


def trials(scale: Scale) -> list[Trial]:
    """Return trials of one call at a time, of a hundred tasks, and of batches."""
    calls, together = scale.jobs(10_000, 2_500), scale.jobs(40_000, 10_000)
    found = [
        Trial(
            (Spec("client/mput-always", "put_many of 1,000, fsync always", Unit.PUTS, goal=Goal(150_000)),),
            partial(_prepare_batches, scale.jobs(100_000, 20_000)),
            scale.rounds_server,
        ),
    ]
    try:
        import redis  # noqa: F401
    except ImportError:
        return found
    ratio = Goal(_SYNC_RATIO_MIN, Of.RATIO)
    return [
        Trial(
            (
                Spec("client/redis-ping", "redis-py: PING, one at a time", Unit.COMMANDS),
                Spec("client/put", "put of 40 bytes, one at a time", Unit.COMMANDS, "client/redis-ping", ratio),
                Spec("client/take-ack", "take and ack of them, calls", Unit.COMMANDS, "client/redis-ping"),
                Spec("client/pipeline", "put in pipelines of 1,000", Unit.COMMANDS, "client/redis-ping"),
            ),
            partial(_prepare_one, calls),
            scale.rounds_server,
        ),
        Trial(
            (
                Spec("client/redis-addjob", f"redis-py for asyncio: ADDJOB, {_TASKS} tasks", Unit.COMMANDS),
                Spec(
                    *("client/async-put", f"put of 40 bytes, {_TASKS} tasks", Unit.COMMANDS, "client/redis-addjob"),
                    Goal(_ASYNC_RATIO_MIN, Of.RATIO),
                ),
                Spec(
                    *("client/async-take-ack", f"take and ack of them, calls, {_TASKS} tasks", Unit.COMMANDS),
                    "client/redis-addjob",
                ),
            ),
            partial(_prepare_tasks, together),
            scale.rounds_server,
        ),
        *found,
    ]


def _url(server: Server) -> str:
    return f"penstock://{server.host}:{server.port}"


def _prepare_one(count: int) -> Sample:
    import redis

    server = processes.penstock("--fsync", "never")
    client, queue = redis.Redis(server.host, server.port), penstock.connect(_url(server))

    def sample() -> list[float]:
        server.ask("DEBUG", "FLUSHALL")
        tube = queue.tube("bench")
        rates = [_rate(count, client.ping), _rate(count, lambda: tube.put(_BODY))]
        rates.append(2 * _rate(count, lambda: tube.take().ack()))  # type: ignore[union-attr]

        def together() -> None:
            with queue.pipeline() as pipe:
                for _ in range(_BATCH):
                    pipe.put(tube, _BODY)

        return [*rates, _BATCH * _rate(max(1, count // _BATCH), together)]

    return sample


def _rate(count: int, call: Any) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - began)


def _prepare_tasks(count: int) -> Sample:
    server = processes.penstock("--fsync", "never")

    def sample() -> list[float]:
        server.ask("DEBUG", "FLUSHALL")
        return asyncio.run(_tasks(server, count))

    return sample


async def _tasks(server: Server, count: int) -> list[float]:
    import redis.asyncio

    other = redis.asyncio.Redis(host=server.host, port=server.port)
    added = await _together(count, lambda: other.execute_command("ADDJOB", "other", _BODY, 0))
    await other.aclose()
    async with penstock.connect_async(_url(server)) as queue:
        tube = await queue.tube("bench")
        put = await _together(count, lambda: tube.put(_BODY))

        async def take_and_ack() -> None:
            job = await tube.take()
            assert job is not None
            await job.ack()

        return [added, put, 2 * await _together(count, take_and_ack)]


async def _together(count: int, call: Any) -> float:
    async def task() -> None:
        for _ in range(count // _TASKS):
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(_TASKS)))
    return count // _TASKS * _TASKS / (time.perf_counter() - began)


def _prepare_batches(count: int) -> Sample:
    server = processes.penstock("--fsync", "always")
    queue = penstock.connect(_url(server))
    bodies = [_BODY] * _BATCH

    def sample() -> list[float]:
        server.ask("DEBUG", "FLUSHALL")
        tube = queue.tube("bench")
        return [_BATCH * _rate(max(1, count // _BATCH), lambda: tube.put_many(bodies))]

    return sample
