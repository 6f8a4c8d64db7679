"""What may become of a job: `penstock ack nack release requeue bury touch dig delete`, for one id or many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import session
from penstock.cli.bundles import bundled
from penstock.cli.exits import OK, code_of, complain, sentence_of
from penstock.cli.output import Output, confirm, jobs_text
from penstock.cli.target import Target
from penstock.cli.values import Delay, DryRun, JobId, JobIds, Yes, duration, duration_option, read_ids
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.api import Job, Queue

Reason = Annotated[str, typer.Option("--reason", "-r", help="Why: it is kept with the job.")]
NewTtl = Annotated[float | None, duration_option("--ttl", help="From now on it lives so long.")]
NewPriority = Annotated[int | None, typer.Option("--priority", "-p", help="From now on it has this priority.")]


def each(ids: list[str], what: str, target: Target, out: Output, do: Callable[[Job], object]) -> None:
    """Do something to every job, as the session of the take before."""
    with session.open_session(target) as queue:
        do_each(queue, ids, what, out, do)


def do_each(queue: Queue, ids: list[str], what: str, out: Output, do: Callable[[Job], object]) -> None:
    """Do something to every job. Those that refuse are named, and the exit code is that of the first."""
    code = OK
    for id in read_ids(ids):
        try:
            do(queue.job(id))
        except CommandError as error:
            complain(f"{id}: {sentence_of(error)}")
            code = code or code_of(error)
        else:
            out.done(f"{what} {id}", id=id, done=what.rstrip(":"))
    if code:
        raise typer.Exit(code)


@bundled
def ack(ids: JobIds, *, target: Target, out: Output) -> None:
    """The work is done: the jobs go, or are kept if their tube keeps acked jobs."""
    each(ids, "acked", target, out, lambda job: job.ack())


@bundled
def nack(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """The work failed: the retry policy of each job says what becomes of it."""
    each(ids, "nacked", target, out, lambda job: job.nack(reason))


@bundled
def release(
    ids: JobIds,
    delay: Delay = 0.0,
    ttl: NewTtl = None,
    priority: NewPriority = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="From now on it has this key.")] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Give jobs back unfinished: to their old place, or after a delay. That is no failure."""
    each(ids, "released", target, out, lambda job: job.release(delay, ttl=ttl, priority=priority, key=key))


@bundled
def requeue(ids: JobIds, *, target: Target, out: Output) -> None:
    """Give jobs back to behind all others."""
    each(ids, "requeued", target, out, lambda job: job.requeue())


@bundled
def bury(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """Put jobs aside until somebody kicks or digs them."""
    each(ids, "buried", target, out, lambda job: job.bury(reason))


@bundled
def touch(
    id: JobId,
    more: Annotated[
        float | None,
        typer.Argument(metavar="[TIME]", parser=duration, help="So much more; without it, a whole ttr from now."),
    ] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Ask for more time for a job that you have taken."""
    each([id], "touched", target, out, lambda job: job.touch(more))


@bundled
def dig(
    ids: JobIds, delay: Delay = 0.0, ttl: NewTtl = None, priority: NewPriority = None, *, target: Target, out: Output
) -> None:
    """Bring buried jobs back: to their old place, or after a delay."""
    each(ids, "dug up", target, out, lambda job: job.dig(delay, ttl=ttl, priority=priority))


@bundled
def delete(ids: JobIds, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Remove jobs, whatever their state and whoever holds them."""
    found = list(read_ids(ids))
    if dry_run:
        each(found, "would delete", target, out, look)
        return
    confirm(f"Delete {found[0] if len(found) == 1 else jobs_text(len(found))}?", yes)
    each(found, "deleted", target, out, lambda job: job.delete())


def look(job: Job) -> Any:
    """See whether a job is there."""
    return job.meta()
