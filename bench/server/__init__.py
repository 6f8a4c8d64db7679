"""The server behind its sockets: beside a bare server on the same loop, beside other queues, and while it works.

Every server is a process of its own on this machine, and so is whoever loads it: redis-benchmark, or `load.py` for what
it cannot say. They share the cores, so ratios are what counts. A server that is not installed is left out (`missing`).
"""

from __future__ import annotations

from bench.scale import Scale
from bench.server import cost, cycles, durable, idle, iproto, rates
from bench.server.processes import is_there
from bench.trial import Trial

_PARTS = (rates, cost, durable, cycles, iproto, idle)
_NEEDED = {
    "redis-benchmark": "there are no rows of single commands",
    "redis-server": "Redis stands beside nothing",
    "beanstalkd": "beanstalkd stands beside nothing",
    "tarantool": "Tarantool's language has nothing to stand beside",
}


def trials(scale: Scale) -> list[Trial]:
    """The rows of all parts."""
    return [trial for part in _PARTS for trial in part.trials(scale)]


def missing() -> list[str]:
    """What is not on this machine, and what that means for the rows, in sentences."""
    return [f"{program} is not installed, so {effect}." for program, effect in _NEEDED.items() if not is_there(program)]
