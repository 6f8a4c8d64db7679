"""`penstock take`, `peek` and `wait`: take jobs, show the next ones, wait until a job ends."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import shared_session
from penstock.cli.errors import ERROR, NOTHING, USAGE, fail, printable_lines
from penstock.cli.name_completion import complete_tubes, find_tube
from penstock.cli.option_values import JobId, TubeName, duration_option
from penstock.cli.output import Output
from penstock.cli.records import State, job_columns, job_records
from penstock.cli.targets import SESSION_GRACE_S, Target

if TYPE_CHECKING:
    from penstock.api import Job, Queue
    from penstock.options import JobOutcome


Bodies = Annotated[bool, typer.Option("--body", help="Print only the body, byte for byte.")]


def take(
    tubes: Annotated[
        list[str],
        typer.Argument(metavar="TUBE...", help="Tubes to take from, in turn.", autocompletion=complete_tubes),
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Take at most this many jobs.")] = 1,
    timeout: Annotated[float, duration_option("--timeout", "-t", help="Wait this long for the first job.")] = 0.0,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Take only jobs of this key.")] = None,
    ttr: Annotated[
        float | None, duration_option("--ttr", help="Time to work on each job, instead of its own ttr.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Ack the jobs after printing them.")] = False,
    hold: Annotated[
        float,
        duration_option("--hold", help="Keep the jobs taken this long while no other command runs.", default="60s"),
    ] = float(SESSION_GRACE_S),
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Take jobs. Exit with 5 if there is none.

    The next commands on this machine can finish the jobs: `penstock ack ID`, `nack`, `release`, `bury`, `touch`. The
    jobs return to their tube if no such command runs within --hold, or when the ttr of the job passes. A longer --hold
    of an earlier take stays in effect.
    """
    if len(tubes) > 1 and (key is not None or ttr is not None):
        fail("--key and --ttr can only be used with one tube", USAGE)
    if math.isinf(hold):
        fail("--hold must be a limited time, for example 10m", USAGE)
    refuse_json_bodies(body, out)
    with target.open() as queue:
        held = shared_session.hold(queue, target, hold)
        jobs = _take(queue, tubes, count, timeout, key, ttr)
        if not jobs:
            fail(f"there is no job to take in {', '.join(tubes)}", NOTHING)
        if not ack:
            shared_session.store_token(queue, target, held)
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


def peek(
    tube: TubeName,
    state: Annotated[State, typer.Option("--state", "-s", help="Show jobs in this state.")] = State.READY,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Show at most this many jobs.")] = 1,
    body: Bodies = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Show the next jobs of a tube without taking them. Exit with 5 if there is none.

    The jobs are printed in the order in which they would be served. `penstock job show` shows a job by its id.
    """
    refuse_json_bodies(body, out)
    with target.open() as queue:
        jobs = find_tube(queue, tube).jobs(state.value, count)
        if not jobs:
            fail(f"no job of {tube} is {state.value}", NOTHING)
        _show(queue, jobs, body, out)


def _show(queue: Queue, jobs: list[Job], body: bool, out: Output) -> None:
    if not body:
        records = [record for record, _ in job_records(queue, jobs)]
        out.table(records, job_columns(records), "The jobs no longer exist.")
        return
    print_bodies(jobs)


def refuse_json_bodies(body: bool, out: Output) -> None:
    if body and out.json:
        fail("--body prints raw bodies and --json prints JSON; use only one of them", USAGE)


def print_bodies(jobs: list[Job]) -> None:
    """Print bodies. If there are several, each is followed by a newline.

    On a terminal, control characters are escaped. In a pipe or file the bytes are unchanged.
    """
    from penstock.options import encode_body

    is_terminal = sys.stdout.isatty()
    for job in jobs:
        raw = encode_body(job.body)[0]
        if is_terminal:
            raw = printable_lines(raw.decode("utf-8", "backslashreplace")).encode()
        sys.stdout.buffer.write(raw)
        # On a terminal the shell's prompt must start on a new line.
        if len(jobs) > 1 or (is_terminal and not raw.endswith(b"\n")):
            sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def wait(
    id: JobId,
    timeout: Annotated[
        float, duration_option("--timeout", "-t", help="Wait at most this long.", default="forever")
    ] = float("inf"),
    *,
    target: Target,
    out: Output,
) -> None:
    """Wait until a job ends. Exit with 0 if it was acked, 1 if it was buried or ended otherwise, 5 after a timeout."""
    with target.open() as queue:
        job = queue.job(id)
        ended = job.wait(timeout)
        if not ended:
            _fail_unacked(queue, id, ended)
        out.report_done(f"{id} was acked", id=id, acked=True)


def _fail_unacked(queue: Queue, id: str, ended: JobOutcome) -> None:
    """Exit with a message that says why a job was not acked: it has not ended, or how it ended otherwise."""
    reason = f": {' '.join(ended.reason.split())}" if ended.reason else ""
    if ended.outcome == "gone":
        fail(f"{id} ended before this command began to wait, and its outcome is not known", ERROR)
    if ended.outcome != "timeout":
        fail(f"{id} was not acked, but {ended.outcome}{reason}", ERROR)
    state = queue.job(id).state
    fail(f"{id} is still {state} after the timeout", NOTHING)
