"""`penstock ack`, `nack`, `release`, `requeue`, `bury`, `touch`, `dig` and `delete`, for one or many jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import shared_session
from penstock.cli.errors import OK, exit_code_of, message_of, print_error
from penstock.cli.option_values import Delay, DryRun, JobId, JobIds, Yes, duration_option, parse_duration, read_ids
from penstock.cli.output import Output, confirm, jobs_text
from penstock.cli.targets import Target
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.api import Job, Queue

Reason = Annotated[str, typer.Option("--reason", "-r", help="Reason, stored with the job.")]
NewTtl = Annotated[float | None, duration_option("--ttl", help="New ttl of the job, from now on.")]
NewPriority = Annotated[int | None, typer.Option("--priority", "-p", help="New priority of the job.")]


def for_each_job(ids: list[str], what: str, target: Target, out: Output, do: Callable[[Job], object]) -> None:
    """Call `do` for every job, in the session of the last `penstock take`."""
    with shared_session.open_session(target) as queue:
        for_each_job_in(queue, ids, what, out, do)


def for_each_job_in(queue: Queue, ids: list[str], what: str, out: Output, do: Callable[[Job], object]) -> None:
    """Call `do` for every job. Report each refused job, and exit with the code of the first refusal."""
    code = OK
    for id in read_ids(ids):
        try:
            do(queue.job(id))
        except CommandError as error:
            print_error(f"{id}: {message_of(error)}")
            code = code or exit_code_of(error)
        else:
            out.report_done(f"{what} {id}", id=id, done=what.rstrip(":"))
    if code:
        raise typer.Exit(code)


def ack(ids: JobIds, *, target: Target, out: Output) -> None:
    """Acknowledge jobs: the work is done. They are deleted, or kept as done if their tube keeps acked jobs."""
    for_each_job(ids, "acked", target, out, lambda job: job.ack())


def nack(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """Report that the work failed. The retry policy of each job decides whether it is retried or buried."""
    for_each_job(ids, "nacked", target, out, lambda job: job.nack(reason))


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
    """Return taken jobs to their place in the tube, now or after a delay. This does not count as a failure."""
    for_each_job(ids, "released", target, out, lambda job: job.release(delay, ttl=ttl, priority=priority, key=key))


def requeue(ids: JobIds, *, target: Target, out: Output) -> None:
    """Return taken jobs to the end of the tube."""
    for_each_job(ids, "requeued", target, out, lambda job: job.requeue())


def bury(ids: JobIds, reason: Reason = "", *, target: Target, out: Output) -> None:
    """Bury jobs: set them aside until `kick` or `dig` brings them back."""
    for_each_job(ids, "buried", target, out, lambda job: job.bury(reason))


def touch(
    id: JobId,
    more: Annotated[
        float | None,
        typer.Argument(metavar="[TIME]", parser=parse_duration, help="Time to add. Default: restart the job's ttr."),
    ] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Extend the time to work on a job that you have taken."""
    for_each_job([id], "touched", target, out, lambda job: job.touch(more))


def dig(
    ids: JobIds, delay: Delay = 0.0, ttl: NewTtl = None, priority: NewPriority = None, *, target: Target, out: Output
) -> None:
    """Return buried jobs to their place in the tube, now or after a delay."""
    for_each_job(ids, "dug up", target, out, lambda job: job.dig(delay, ttl=ttl, priority=priority))


def delete(ids: JobIds, yes: Yes = False, dry_run: DryRun = False, *, target: Target, out: Output) -> None:
    """Delete jobs in any state, including jobs that are taken."""
    found = list(read_ids(ids))
    if dry_run:
        for_each_job(found, "would delete", target, out, require_job)
        return
    confirm(f"Delete {found[0] if len(found) == 1 else jobs_text(len(found))}?", yes)
    for_each_job(found, "deleted", target, out, lambda job: job.delete())


def require_job(job: Job) -> Any:
    """Raise UnknownJob if the job does not exist."""
    return job.meta()
