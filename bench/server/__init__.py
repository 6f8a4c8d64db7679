"""The server over its sockets: compared with a bare server on the same event loop, and with other queues.

Servers and clients are separate processes on this machine. The client is redis-benchmark, or `load.py` for commands
that it does not support. They share the cores, so only ratios are meaningful. Servers that are not installed are left
out (`missing`).
"""

from __future__ import annotations

from bench.scale import Scale
from bench.server import cost, cycles, durable, idle, iproto, rates, scrape
from bench.server.processes import is_there
from bench.trial import Trial

_PARTS = (rates, cost, durable, cycles, iproto, idle, scrape)
_NEEDED = {
    "redis-benchmark": "single commands are not measured",
    "redis-server": "there is no comparison with Redis",
    "beanstalkd": "there is no comparison with beanstalkd",
    "tarantool": "there is no comparison with Tarantool",
}


def trials(scale: Scale) -> list[Trial]:
    """Return the trials of all files."""
    return [trial for part in _PARTS for trial in part.trials(scale)]


def missing() -> list[str]:
    """Return sentences about the programs that are not installed, and about the rows that are left out."""
    return [f"{program} is not installed, so {effect}." for program, effect in _NEEDED.items() if not is_there(program)]
