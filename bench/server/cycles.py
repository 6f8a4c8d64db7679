"""Whole cycles of put, take and ack: the maximum rate, and the latency at half of it.

Latency is also measured while the server runs a long operation: a snapshot, or a scan of all jobs.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from bench import child
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.filling import fill
from bench.server.load import CLIENTS
from bench.server.processes import Server
from bench.trial import Sample, Trial

_P99_MS_MAX = 5
_SECONDS = 3.0
_BUSY_JOBS = 500_000
_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 128
_ID_BYTES = len(b"+") + 40 + len(b"\r\n")

Beside = Callable[[Server], AbstractContextManager[None]]


def trials(scale: Scale) -> list[Trial]:
    """Return trials of Penstock without and with a journal, during long operations, and of other servers."""
    seconds = _SECONDS / 4 if scale.quick else _SECONDS
    jobs = scale.jobs(_BUSY_JOBS, 50_000)
    memory, always, everysec = (
        partial(processes.penstock, *settings)
        for settings in (("--no-journal",), ("--fsync", "always"), ("--fsync", "everysec"))
    )
    goal = Goal(_P99_MS_MAX)
    found = [
        _trial(scale, "cycle", "no journal", "disque", memory, seconds, goal=goal),
        _trial(scale, "cycle-always", "fsync always", "disque", always, seconds, goal=goal),
        _trial(
            scale,
            "cycle-snapshot",
            f"fsync everysec, while {jobs:,} jobs are written as a snapshot",
            "disque",
            partial(_filled, everysec, jobs),
            seconds,
            _snapshots,
            goal,
        ),
        _trial(
            scale,
            "cycle-scan",
            f"fsync everysec, while {jobs:,} jobs are scanned",
            "disque",
            partial(_filled, everysec, jobs),
            seconds,
            _scans,
            goal,
        ),
    ]
    if processes.is_there("redis-server"):
        found.append(_trial(scale, "cycle-redis", "Redis", "redis", processes.redis, seconds))
    if processes.is_there("beanstalkd"):
        found.append(_trial(scale, "cycle-beanstalkd", "beanstalkd", "beanstalkd", processes.beanstalkd, seconds))
    for address in scale.against:
        start = partial(processes.running, address)
        found.append(_trial(scale, f"cycle-{address}", address, "disque", start, seconds))
    return found


def _trial(
    scale: Scale,
    name: str,
    who: str,
    speech: str,
    start: Callable[[], Server],
    seconds: float,
    beside: Beside | None = None,
    goal: Goal | None = None,
) -> Trial:
    base = None if name == "cycle" else "server/cycle"
    rows = (
        Spec(f"server/{name}", f"put, take, ack by {CLIENTS} clients: {who}", Unit.CYCLES, base),
        Spec(f"server/{name}-p50", "median latency of a cycle at half that rate", Unit.MS),
        Spec(f"server/{name}-p99", "99th percentile of it", Unit.MS, goal=goal),
        Spec(f"server/{name}-p99.9", "99.9th percentile of it", Unit.MS),
    )
    return Trial(rows, partial(_prepare, speech, start, seconds, beside), scale.rounds_server)


def _prepare(speech: str, start: Callable[[], Server], seconds: float, beside: Beside | None) -> Sample:
    server = start()
    load = partial(child.figures, "bench.server.load", speech, server.host, server.port)

    def sample() -> list[float]:
        rate, *_ = load(seconds / 3, 0)
        with beside(server) if beside else nullcontext():
            _, *shares = load(seconds, rate / 2)
        return [rate, *shares]

    return sample


def _filled(start: Callable[[], Server], jobs: int) -> Server:
    server = start()
    fill(server, "backlog", jobs)
    return server


@contextmanager
def _meanwhile(again: Callable[[], None]) -> Iterator[None]:
    """Repeat a function in a thread during the measurement."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            again()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _snapshots(server: Server) -> AbstractContextManager[None]:
    def again() -> None:
        server.ask("BGREWRITEAOF")
        while b"aof_rewrite_in_progress:1" in server.ask("INFO", "persistence"):
            threading.Event().wait(0.05)

    return _meanwhile(again)


def _scans(server: Server) -> AbstractContextManager[None]:
    chunk = bytearray(_CHUNK_BYTES)

    def again() -> None:
        with server.connect() as connection:
            connection.sendall(processes.command("JSCAN", "BUSYLOOP"))
            answer = b""
            # The header of a reply: an array of two, the cursor in two lines, and the number of ids.
            while answer.count(b"\n") < 4:
                answer += connection.recv(_HEAD_BYTES)
            *_, head, ids = answer.split(b"\r\n", 4)
            left = int(head[1:]) * _ID_BYTES - len(ids)
            while left > 0:
                # The kernel discards the data. Reading it would take more CPU time than the server uses.
                left -= connection.recv_into(chunk, min(left, _CHUNK_BYTES), socket.MSG_TRUNC)

    return _meanwhile(again)
