"""What one command costs a server: the time of a core that its process uses, whatever else the machine does.

Rates on a busy machine say as much about the others. This varies less, and leaves out what the client costs. The server
may not linger here: what it does while it looks for more is not what a command costs.
"""

from __future__ import annotations

from functools import partial

from bench.rows import Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.server.rates import BODY
from bench.server.redis_benchmark import CLIENTS, per_second
from bench.trial import Sample, Trial

_COUNT = 50_000


def trials(scale: Scale) -> list[Trial]:
    """One command at a time, without a journal, beside the bare PING."""
    if not processes.is_there("redis-benchmark"):
        return []
    count = scale.jobs(_COUNT, _COUNT // 4)
    bare = "server/cost-bare"
    rows = (
        Spec(bare, f"what PING costs a bare server, {CLIENTS} clients, one at a time", Unit.NS),
        Spec("server/cost-ping", "what PING costs, the same way", Unit.NS, bare),
        Spec("server/cost-addjob", "what ADDJOB of 40 bytes costs", Unit.NS, bare),
        Spec("server/cost-getjob", "what GETJOB NOHANG of them costs", Unit.NS, bare),
    )
    return [Trial(rows, partial(_prepare, count), scale.rounds_server)]


def _prepare(count: int) -> Sample:
    bare, server = processes.bare(), processes.penstock("--no-journal", "--linger", "0")

    def sample() -> list[float]:
        server.ask("DEBUG", "FLUSHALL")
        return [
            _ns(bare, count, "PING"),
            _ns(server, count, "PING"),
            _ns(server, count, "ADDJOB", "bench", BODY, "0"),
            _ns(server, count, "GETJOB", "NOHANG", "FROM", "bench"),
        ]

    return sample


def _ns(server: Server, count: int, *words: str) -> float:
    before = server.cpu_s()
    per_second(server, count, 1, *words)
    return (server.cpu_s() - before) / count * 1e9
