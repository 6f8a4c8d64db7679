"""Rate of adding jobs with a sync before each reply. TMPDIR selects the disk."""

from __future__ import annotations

from functools import partial

from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.rates import BODY
from bench.server.redis_benchmark import CLIENTS, per_second
from bench.trial import Sample, Trial

_COUNTS = {1: 20_000, 16: 100_000}
_GOALS = {1: Goal(18_000), 16: Goal(100_000)}


def trials(scale: Scale) -> list[Trial]:
    """Return trials with two pipeline depths, and of Redis with its append-only file."""
    if not processes.is_there("redis-benchmark"):
        return []
    return [trial for pipeline in _COUNTS for trial in _trials(scale, pipeline)]


def _trials(scale: Scale, pipeline: int) -> list[Trial]:
    count = scale.jobs(_COUNTS[pipeline], _COUNTS[pipeline] // 4)
    told = f"{CLIENTS} clients, {pipeline} at a time" if pipeline > 1 else f"{CLIENTS} clients"
    always = f"server/always-addjob-{pipeline}"
    rows = (Spec(always, f"ADDJOB of 40 bytes, fsync always, {told}", Unit.COMMANDS, goal=_GOALS[pipeline]),)
    found = [Trial(rows, partial(_prepare, count, pipeline), scale.rounds_server)]
    if processes.is_there("redis-server"):
        name, what = f"server/redis-always-lpush-{pipeline}", "LPUSH of Redis, appendfsync always, the same way"
        rows = (Spec(name, what, Unit.COMMANDS, always),)
        found.append(Trial(rows, partial(_prepare_redis, count, pipeline), scale.rounds_server))
    return found


def _prepare(count: int, pipeline: int) -> Sample:
    server = processes.penstock("--fsync", "always")

    def sample() -> list[float]:
        server.ask("DEBUG", "FLUSHALL")
        return [per_second(server, count, pipeline, "ADDJOB", "bench", BODY, "0")]

    return sample


def _prepare_redis(count: int, pipeline: int) -> Sample:
    server = processes.redis("--appendonly", "yes", "--appendfsync", "always")

    def sample() -> list[float]:
        server.ask("FLUSHALL")
        return [per_second(server, count, pipeline, "LPUSH", "bench", BODY)]

    return sample
