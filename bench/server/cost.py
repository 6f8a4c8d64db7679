"""Cost of a command: the CPU time that the server process uses for it.

CPU time depends less on other load of the machine than rates do, and does not include the client. The server must not
linger here, because polling for more commands would be counted as cost of the commands.
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
    """Return trials of single commands without a journal, and of PING to the bare server."""
    if not processes.is_there("redis-benchmark"):
        return []
    count = scale.jobs(_COUNT, _COUNT // 4)
    bare = "server/cost-bare"
    rows = (
        Spec(bare, f"CPU time of PING to a bare server, {CLIENTS} clients, one at a time", Unit.NS),
        Spec("server/cost-ping", "CPU time of PING, the same way", Unit.NS, bare),
        Spec("server/cost-addjob", "CPU time of ADDJOB of 40 bytes", Unit.NS, bare),
        Spec("server/cost-getjob", "CPU time of GETJOB NOHANG of them", Unit.NS, bare),
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
