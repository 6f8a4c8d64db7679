"""`penstock take`, `peek` and `wait`: get jobs, look at those to come, wait for the end of one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import session
from penstock.cli.bundles import bundled
from penstock.cli.exits import ERROR, NOTHING, USAGE, fail, printable_lines
from penstock.cli.names import complete_tubes, find_tube
from penstock.cli.output import Output
from penstock.cli.records import JOB_COLUMNS, State, job_records
from penstock.cli.target import HOLD_S, Target
from penstock.cli.values import JobId, TubeName, duration_option
from penstock.core.errors import UnknownJob

if TYPE_CHECKING:
    from penstock.api import Job, Queue


Bodies = Annotated[bool, typer.Option("--body", help="Print the body and nothing else, byte by byte as it was put.")]


@bundled
def take(
    tubes: Annotated[
        list[str],
        typer.Argument(
            metavar="TUBE...", help="The tube, or several: one of each in turn.", autocompletion=complete_tubes
        ),
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Up to so many jobs.")] = 1,
    timeout: Annotated[float, duration_option("--timeout", "-t", help="Wait so long for the first one.")] = 0.0,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only jobs of this key.")] = None,
    ttr: Annotated[float | None, duration_option("--ttr", help="Hold each so long, instead of its own time.")] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Ack what was taken, when it is printed.")] = False,
    hold: Annotated[
        float, duration_option("--hold", help="How long they stay yours without another command.", default="60s")
    ] = float(HOLD_S),
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Take jobs. Exit code 5 if there was none.

    They are yours for the commands that follow on this machine: `penstock ack ID`, `nack`, `release`, `bury`, `touch`.
    If none comes within --hold, or a job's own ttr passes, they go back to their tube. What an earlier take was to hold
    longer is held so.
    """
    if len(tubes) > 1 and (key is not None or ttr is not None):
        fail("--key and --ttr are for one tube", USAGE)
    refuse_json_bodies(body, out)
    with target.open() as queue:
        held = session.hold(queue, target, hold)
        jobs = _take(queue, tubes, count, timeout, key, ttr)
        if not jobs:
            fail(f"there was nothing to take in {', '.join(tubes)}", NOTHING)
        if not ack:
            session.keep(queue, target, held)
        _show(queue, jobs, body, out)
        sys.stdout.flush()
        if ack:
            for job in jobs:
                job.ack()


def _take(queue: Queue, tubes: list[str], count: int, timeout: float, key: str | None, ttr: float | None) -> list[Job]:
    places = [find_tube(queue, name) for name in tubes]
    if len(places) == 1:
        return places[0].take_many(count, timeout, key=key, ttr=ttr)
    return queue.take(places, count, timeout)


@bundled
def peek(
    tube: TubeName,
    state: Annotated[State, typer.Option("--state", "-s", help="Which jobs.")] = State.READY,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Up to so many jobs.")] = 1,
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Look at the next jobs of a tube, without taking them. Exit code 5 if there is none.

    They come in the order they would be served. A job by its id is shown by `penstock job show`.
    """
    refuse_json_bodies(body, out)
    with target.open() as queue:
        jobs = find_tube(queue, tube).jobs(state.value, count)
        if not jobs:
            fail(f"no job of {tube} is {state.value}", NOTHING)
        _show(queue, jobs, body, out)


def _show(queue: Queue, jobs: list[Job], body: bool, out: Output) -> None:
    if not body:
        out.table([record for record, _ in job_records(queue, jobs)], JOB_COLUMNS, "They are gone already.")
        return
    print_bodies(jobs)


def refuse_json_bodies(body: bool, out: Output) -> None:
    """Refuse to print bodies as they are and as JSON."""
    if body and out.json:
        fail("--body prints bodies as they are, and --json as JSON; give one of the two", USAGE)


def print_bodies(jobs: list[Job]) -> None:
    """Print bodies: one as it is, several with an end of line behind each.

    A terminal gets no bytes that it would obey. For the bytes themselves, redirect them.
    """
    from penstock.options import encode_body

    is_terminal = sys.stdout.isatty()
    for job in jobs:
        raw = encode_body(job.body)[0]
        if is_terminal:
            raw = printable_lines(raw.decode("utf-8", "backslashreplace")).encode()
        sys.stdout.buffer.write(raw)
        # On a screen the prompt must not stick to a body.
        if len(jobs) > 1 or (is_terminal and not raw.endswith(b"\n")):
            sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


@bundled
def wait(
    id: JobId,
    timeout: Annotated[float, duration_option("--timeout", "-t", help="Wait so long.", default="forever")] = float(
        "inf"
    ),
    *,
    target: Target,
    out: Output,
) -> None:
    """Wait until a job ends. Exit code 0 if it was acked, 1 if it ended otherwise, 5 if the time is over."""
    with target.open() as queue:
        job = queue.job(id)
        acked = job.wait(timeout)
        if not acked:
            _tell_why(queue, id)
        out.done(f"{id} was acked", id=id, acked=True)


def _tell_why(queue: Queue, id: str) -> None:
    """A job was not acked: because it is still there, or because it ended otherwise."""
    try:
        state = queue.job(id).state
    except UnknownJob:
        fail(f"{id} ended without an ack: it was deleted, or it expired", ERROR)
    fail(f"{id} is still {state}, and the time is over", NOTHING)
