"""`penstock bench`: measure the throughput and latency of a queue.

Clients put and take as fast as they can, or at a given rate. Each client is a session in its own thread and makes one
call after another, as a program does. They use a tube that is created for the benchmark and dropped afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import USAGE, fail
from penstock.cli.option_values import duration_option, parse_size, rate_option
from penstock.cli.options import CommandGroup
from penstock.cli.output import Column, Output, Record, column, jobs_text
from penstock.cli.records import job_count
from penstock.cli.targets import Target

if TYPE_CHECKING:
    from penstock.api import Queue, Tube

app = CommandGroup(help="Measure the throughput and latency of a queue.")


@dataclass(frozen=True)
class Load:
    """The load that the clients generate."""

    clients: Annotated[int, typer.Option("--clients", min=1, max=1_000, help="Number of concurrent clients.")] = 1
    duration: Annotated[float, duration_option("--duration", help="Duration of the measurement.", default="2s")] = 2.0
    body: Annotated[int, typer.Option("--size", parser=parse_size, metavar="SIZE", help="Size of each body.")] = 100
    batch: Annotated[int, typer.Option("--batch", min=1, max=100_000, help="Jobs per call.")] = 1
    rate: Annotated[float | None, rate_option("Limit all clients together to this many calls per second.")] = None
    tube: Annotated[
        str | None,
        typer.Option(
            "--tube",
            help="Use this tube and keep it, instead of a new one. take and mixed need an empty tube, and empty it.",
        ),
    ] = None


@dataclass
class Tally:
    """The measurements of one client."""

    jobs: int = 0
    seconds: list[float] = field(default_factory=list)  # Duration of each call.
    error: BaseException | None = None


# One call of a client. It returns the number of jobs.
Call = Callable[[], int]


@app.command()
def put(*, load: Load, target: Target, out: Output) -> None:
    """Measure puts."""
    _measure("put", load, target, out, _putting)


@app.command()
def take(*, load: Load, target: Target, out: Output) -> None:
    """Measure takes with acks. The jobs are put before the measurement starts."""
    _measure("take", load, target, out, _taking, takes=True, fill=True)


@app.command()
def mixed(*, load: Load, target: Target, out: Output) -> None:
    """Measure puts, takes and acks. A put, a take and an ack together count as one call."""
    _measure("mixed", load, target, out, _both, takes=True)


def _putting(tube: Tube, load: Load) -> Call:
    body = b"x" * load.body
    if load.batch == 1:
        return lambda: 1 if tube.put(body) else 0
    bodies = [body] * load.batch
    return lambda: len(tube.put_many(bodies))


def _taking(tube: Tube, load: Load) -> Call:
    def call() -> int:
        jobs = tube.take_many(load.batch)
        for job in jobs:
            job.ack()
        return len(jobs)

    return call


def _both(tube: Tube, load: Load) -> Call:
    putting, taking = _putting(tube, load), _taking(tube, load)

    def call() -> int:
        putting()
        return taking()

    return call


# Jobs that are put in advance for each second of `bench take`. A faster queue runs dry, and the clients stop.
_AHEAD_PER_SECOND = 20_000


def _measure(
    what: str,
    load: Load,
    target: Target,
    out: Output,
    make: Callable[[Tube, Load], Call],
    takes: bool = False,
    fill: bool = False,
) -> None:
    name = load.tube or f"penstock-bench-{os.getpid()}"
    with target.open(makes=True) as queue:
        made = queue.tube(name)
        if takes and (jobs := job_count(made.info())):
            # All jobs that are taken are acked, also those of others.
            fail(f"{name} has {jobs_text(jobs)}, and they would be lost; name an empty tube, or omit --tube", USAGE)
        try:
            if fill:
                _fill(made, load)
            record = _run(queue, name, load, make)
        finally:
            if load.tube is None:
                made.release_all()
                made.drop()
            elif takes:
                made.truncate()
    record = {"bench": what, "clients": load.clients, "size": load.body, "batch": load.batch, **record}
    columns = [column(name) for name in ("bench", "clients", "size", "batch", "jobs")]
    columns += [Column("jobs/s", lambda row: row["jobs_per_second"])]
    columns += [column(f"{figure}_ms") for figure in ("p50", "p95", "p99", "max")]
    out.table([record], columns, "")


def _fill(tube: Tube, load: Load) -> None:
    wanted = int(min(load.duration, 60) * _AHEAD_PER_SECOND)
    body = b"x" * load.body
    for start in range(0, wanted, 1_000):
        tube.put_many([body] * min(1_000, wanted - start))


def _run(queue: Queue, name: str, load: Load, make: Callable[[Tube, Load], Call]) -> Record:
    """Run all clients for the duration of the load. Return the measured throughput and latencies."""
    tallies = [Tally() for _ in range(load.clients)]
    ready = threading.Barrier(load.clients + 1)
    over = threading.Event()
    every = None if load.rate is None else load.clients / load.rate
    threads = [
        threading.Thread(target=_client, args=(queue, name, load, make, tally, ready, over, every), daemon=True)
        for tally in tallies
    ]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    try:
        # If one client cannot start, none does, and its error is raised below.
        with suppress(threading.BrokenBarrierError):
            ready.wait()
            start = time.perf_counter()
            over.wait(load.duration)
    finally:
        over.set()
        ready.abort()
        for thread in threads:
            thread.join()
    elapsed = time.perf_counter() - start
    for tally in tallies:
        if tally.error is not None:
            raise tally.error
    jobs = sum(tally.jobs for tally in tallies)
    calls = sorted(seconds for tally in tallies for seconds in tally.seconds)
    figures: dict[str, Any] = {"jobs": jobs, "seconds": round(elapsed, 3), "jobs_per_second": round(jobs / elapsed)}
    for figure, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        figures[f"{figure}_ms"] = round(calls[min(len(calls) - 1, int(len(calls) * share))] * 1000, 3) if calls else 0.0
    return figures


def _client(
    queue: Queue,
    name: str,
    load: Load,
    make: Callable[[Tube, Load], Call],
    tally: Tally,
    ready: threading.Barrier,
    over: threading.Event,
    every: float | None,
) -> None:
    try:
        with queue.session() as session:
            call = make(session.find_tube(name), load)
            ready.wait()
            due = time.perf_counter()
            while not over.is_set():
                if every is not None:
                    due += every
                    if over.wait(max(0.0, due - time.perf_counter())):
                        break
                start = time.perf_counter()
                jobs = call()
                tally.seconds.append(time.perf_counter() - start)
                tally.jobs += jobs
                if jobs == 0:
                    break  # The tube ran dry.
    except threading.BrokenBarrierError:
        return
    except BaseException as error:
        tally.error = error
        ready.abort()
        over.set()
