"""Single commands without a journal, compared with a bare PING, with Redis, and with other Disque servers."""

from __future__ import annotations

from functools import partial

from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.server.redis_benchmark import CLIENTS, per_second
from bench.trial import Sample, Trial

BODY = "x" * 40

# Commands per sample, by pipeline depth.
_COUNTS = {1: 30_000, 16: 200_000, 128: 400_000}
_BARE_RATIO_MIN = 0.85
_ADD_GOALS = {1: Goal(_BARE_RATIO_MIN, Of.RATIO), 128: Goal(200_000)}
_GET_GOALS = {1: Goal(_BARE_RATIO_MIN, Of.RATIO), 128: Goal(230_000)}


def trials(scale: Scale) -> list[Trial]:
    """Return trials of each command with several pipeline depths."""
    if not processes.is_there("redis-benchmark"):
        return []
    return [trial for pipeline in _COUNTS for trial in _trials(scale, pipeline)]


def _trials(scale: Scale, pipeline: int) -> list[Trial]:
    count = scale.jobs(_COUNTS[pipeline], _COUNTS[pipeline] // 4)
    told = f"{CLIENTS} clients, {pipeline} at a time" if pipeline > 1 else f"{CLIENTS} clients"
    bare, add, get = (f"server/{name}-{pipeline}" for name in ("bare", "addjob", "getjob"))
    # In a pipeline, the bare server does almost no work per PING, so a comparison would be meaningless.
    base = bare if pipeline == 1 else None
    found = [
        Trial(
            (
                Spec(bare, f"PING of a bare server on the same loop, {told}", Unit.COMMANDS),
                Spec(f"server/ping-{pipeline}", f"PING, {told}", Unit.COMMANDS, base),
                Spec(add, f"ADDJOB of 40 bytes, {told}", Unit.COMMANDS, base, _ADD_GOALS.get(pipeline)),
                Spec(get, f"GETJOB NOHANG of them, {told}", Unit.COMMANDS, base, _GET_GOALS.get(pipeline)),
            ),
            partial(_prepare, count, pipeline),
            scale.rounds_server,
        )
    ]
    if processes.is_there("redis-server"):
        rows = (
            Spec(f"server/redis-lpush-{pipeline}", "LPUSH of Redis, the same way", Unit.COMMANDS, add),
            Spec(f"server/redis-rpop-{pipeline}", "RPOP of Redis, the same way", Unit.COMMANDS, get),
        )
        found.append(Trial(rows, partial(_prepare_redis, count, pipeline), scale.rounds_server))
    for address in scale.against:
        rows = (
            Spec(f"server/{address}-addjob-{pipeline}", f"ADDJOB of {address}, the same way", Unit.COMMANDS, add),
            Spec(f"server/{address}-getjob-{pipeline}", f"GETJOB of {address}, the same way", Unit.COMMANDS, get),
        )
        found.append(Trial(rows, partial(_prepare_other, address, count, pipeline), scale.rounds_server))
    return found


def _prepare(count: int, pipeline: int) -> Sample:
    bare, server = processes.bare(), processes.penstock("--no-journal")

    def sample() -> list[float]:
        pings = [per_second(each, count, pipeline, "PING") for each in (bare, server)]
        return [*pings, *_add_and_get(server, count, pipeline)]

    return sample


def _prepare_other(address: str, count: int, pipeline: int) -> Sample:
    server = processes.running(address)
    return lambda: _add_and_get(server, count, pipeline)


def _add_and_get(server: Server, count: int, pipeline: int) -> list[float]:
    """Fill a separate queue and empty it. Delete the jobs that were taken."""
    server.ask("DEBUG", "FLUSHALL")
    added = per_second(server, count, pipeline, "ADDJOB", "bench", BODY, "0")
    assert int(server.ask("QLEN", "bench")[1:]) >= count, "jobs were refused"
    taken = per_second(server, count, pipeline, "GETJOB", "NOHANG", "FROM", "bench")
    return [added, taken]


def _prepare_redis(count: int, pipeline: int) -> Sample:
    server = processes.redis()

    def sample() -> list[float]:
        server.ask("FLUSHALL")
        added = per_second(server, count, pipeline, "LPUSH", "bench", BODY)
        return [added, per_second(server, count, pipeline, "RPOP", "bench")]

    return sample
