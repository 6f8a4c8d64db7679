"""`penstock bench`: how fast the queue is, where you are.

A few clients, each a session of its own in a thread, put and take as fast as they can, or at a given rate, in a tube
that is made for this and dropped behind it. What is measured is calls as a program makes them, one after another.
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

from penstock.cli.bundles import bundled
from penstock.cli.exits import USAGE, fail
from penstock.cli.output import Column, Output, Record, column, jobs_text
from penstock.cli.records import total
from penstock.cli.target import Target
from penstock.cli.values import duration_option, rate_option, size

if TYPE_CHECKING:
    from penstock.api import Queue, Tube

app = typer.Typer(help="Measure how fast the queue is, where you are.", no_args_is_help=True)


@dataclass(frozen=True)
class Load:
    """How much is asked for."""

    clients: Annotated[int, typer.Option("--clients", min=1, max=1_000, help="So many at a time.")] = 1
    duration: Annotated[float, duration_option("--duration", help="For so long.", default="2s")] = 2.0
    body: Annotated[int, typer.Option("--size", parser=size, metavar="SIZE", help="Bytes of a body.")] = 100
    batch: Annotated[int, typer.Option("--batch", min=1, max=100_000, help="Jobs a call.")] = 1
    rate: Annotated[float | None, rate_option("Limit all clients together to this many calls per second.")] = None
    tube: Annotated[
        str | None,
        typer.Option(
            "--tube",
            help="Use this tube and leave it, instead of one made for it. take and mixed want it empty, and empty it.",
        ),
    ] = None


@dataclass
class Tally:
    """What one client did."""

    jobs: int = 0
    seconds: list[float] = field(default_factory=list)  # Of each call.
    error: BaseException | None = None


# One call of a client: it does something and tells with how many jobs.
Call = Callable[[], int]


@app.command()
@bundled
def put(*, load: Load, target: Target, out: Output) -> None:
    """Put jobs."""
    _measure("put", load, target, out, _putting)


@app.command()
@bundled
def take(*, load: Load, target: Target, out: Output) -> None:
    """Take and ack jobs, which were put before the clock began to run."""
    _measure("take", load, target, out, _taking, takes=True, fill=True)


@app.command()
@bundled
def mixed(*, load: Load, target: Target, out: Output) -> None:
    """Put, take and ack, in turn: a job's whole life is a call."""
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


# So many jobs are put ahead for each second of taking; a queue that is faster than that runs dry, and says so.
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
        if takes and (jobs := total(made.info())):
            # What is taken is acked, whoever put it.
            fail(f"{name} has {jobs_text(jobs)}, and they would be lost; name an empty tube, or none", USAGE)
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
    """Let every client call until the time is over, and add up."""
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
        # If one cannot begin, none does, and that one tells why.
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
                    break  # It ran dry.
    except threading.BrokenBarrierError:
        return
    except BaseException as error:
        tally.error = error
        ready.abort()
        over.set()
