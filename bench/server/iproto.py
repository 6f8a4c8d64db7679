"""The IPROTO protocol: cycles with asynctnt compared with Tarantool, and calls in pipelines.

In cycles, the client is the bottleneck with both servers. The CPU time of the server per cycle is therefore measured
too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial

from bench import child
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.trial import Sample, Trial

_SECONDS = 3.0
_CALLS = 60_000
_CALLS_MIN = 100_000


def trials(scale: Scale) -> list[Trial]:
    """Return trials of Penstock, and of Tarantool if it is installed."""
    seconds = _SECONDS / 4 if scale.quick else _SECONDS
    found = [Trial(_pipelines(), partial(_raw, scale.jobs(_CALLS, _CALLS // 4)), scale.rounds_server)]
    if importlib.util.find_spec("asynctnt") is None:
        return found
    base = None
    if processes.is_there("tarantool"):
        base = "server/iproto-tarantool"
        found.append(_cycles(scale, base, "Tarantool, no WAL", processes.tarantool, seconds, None, None))
    goal = Goal(1.0, Of.RATIO) if base else None
    found.append(_cycles(scale, "server/iproto", "Penstock, fsync never", _penstock, seconds, base, goal))
    found.append(
        _cycles(scale, "server/iproto-xqueue", "Penstock, rows of an xqueue", _penstock, seconds, None, None, "xqueue")
    )
    return found


def _penstock() -> Server:
    server = processes.penstock_iproto("--fsync", "never")
    child.figures("bench.server.iproto_load", "tube", server.host, server.port, 0)
    return server


def _cycles(
    scale: Scale,
    name: str,
    who: str,
    start: Callable[[], Server],
    seconds: float,
    base: str | None,
    goal: Goal | None,
    load: str = "asynctnt",
) -> Trial:
    rows = (
        Spec(name, f"put, take, ack by 50 tasks of asynctnt on one connection: {who}", Unit.CYCLES, base, goal=goal),
        Spec(f"{name}-cost", "CPU time of the server per cycle", Unit.NS, f"{base}-cost" if base else None),
    )
    return Trial(rows, partial(_prepare, start, seconds, load), scale.rounds_server)


def _prepare(start: Callable[[], Server], seconds: float, load: str) -> Sample:
    server = start()

    def sample() -> list[float]:
        before = server.cpu_s()
        (rate,) = child.figures("bench.server.iproto_load", load, server.host, server.port, seconds)
        return [rate, (server.cpu_s() - before) / (rate * seconds) * 1e9]

    return sample


def _pipelines() -> tuple[Spec, ...]:
    return tuple(
        Spec(f"server/iproto-{name}s", f"tube:{name} in pipelines of 256, fsync never", Unit.COMMANDS, goal=goal)
        for name, goal in (("put", Goal(_CALLS_MIN)), ("take", Goal(_CALLS_MIN)), ("ack", Goal(_CALLS_MIN)))
    )


def _raw(count: int) -> Sample:
    server = _penstock()

    # The sample keeps a reference to the server, which ends with its last reference.
    def sample() -> list[float]:
        return child.figures("bench.server.iproto_load", "raw", server.host, server.port, count)

    return sample
