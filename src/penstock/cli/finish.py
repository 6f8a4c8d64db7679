"""`penstock ack`, `nack`, `release`, `requeue`, `bury`, `touch`, `dig` and `delete`, for one or many jobs."""

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

Reason = Annotated[str, typer.Option("--reason", "-r", help="Reason, stored with the job.")]
NewTtl = Annotated[float | None, duration_option("--ttl", help="New ttl of the job, from now on.")]
NewPriority = Annotated[int | None, typer.Option("--priority", "-p", help="New priority of the job.")]


def each(ids: list[str], what: str, target: Target, out: Output, do: Callable[[Job], object]) -> None:
    """Call `do` for every job, in the session of the last take."""
    with session.open_session(target) as queue:
        do_each(queue, ids, what, out, do)


def do_each(queue: Queue, ids: list[str], what: str, out: Output, do: Callable[[Job], object]) -> None:
    """Call `do` for every job. Report each refused job, and exit with the code of the first refusal."""
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
    """Acknowledge jobs: the work is done. They are deleted, or kept as done if their tube keeps acked jobs."""
    each(ids, "acked", target, out, lambda job: job.ack())


@bundled
def nack(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """Report that the work failed. The retry policy of each job decides whether it is retried or buried."""
    each(ids, "nacked", target, out, lambda job: job.nack(reason))


@bundled
def release(
    ids: JobIds,
    delay: Delay = 0.0,
    ttl: NewTtl = None,
    priority: NewPriority = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="New key of the job.")] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Return taken jobs to their place in the tube, or after a delay. This does not count as a failure."""
    each(ids, "released", target, out, lambda job: job.release(delay, ttl=ttl, priority=priority, key=key))


@bundled
def requeue(ids: JobIds, *, target: Target, out: Output) -> None:
    """Return taken jobs to the end of the tube."""
    each(ids, "requeued", target, out, lambda job: job.requeue())


@bundled
def bury(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """Bury jobs: set them aside until `kick` or `dig` brings them back."""
    each(ids, "buried", target, out, lambda job: job.bury(reason))


@bundled
def touch(
    id: JobId,
    more: Annotated[
        float | None,
        typer.Argument(metavar="[TIME]", parser=duration, help="Time to add. Default: restart the job's ttr."),
    ] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Extend the time to work on a job that you have taken."""
    each([id], "touched", target, out, lambda job: job.touch(more))


@bundled
def dig(
    ids: JobIds, delay: Delay = 0.0, ttl: NewTtl = None, priority: NewPriority = None, *, target: Target, out: Output
) -> None:
    """Return buried jobs to their place in the tube, or after a delay."""
    each(ids, "dug up", target, out, lambda job: job.dig(delay, ttl=ttl, priority=priority))


@bundled
def delete(ids: JobIds, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Delete jobs in any state, including jobs that are taken."""
    found = list(read_ids(ids))
    if dry_run:
        each(found, "would delete", target, out, look)
        return
    confirm(f"Delete {found[0] if len(found) == 1 else jobs_text(len(found))}?", yes)
    each(found, "deleted", target, out, lambda job: job.delete())


def look(job: Job) -> Any:
    """Raise UnknownJob if the job does not exist."""
    return job.meta()
