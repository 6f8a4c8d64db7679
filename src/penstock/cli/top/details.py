"""The text about one job that `penstock top` shows: its properties, its body, and its history in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import body_text
from penstock.cli.records import body_fields
from penstock.core.errors import CommandError, UnknownJob
from penstock.report.job_history import describe, text_lines
from penstock.report.units import duration_text
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.api import Job, Queue

_BODY_CHARACTERS_MAX: Final = 2_000


def age_text(meta: dict[str, Any]) -> str:
    """Return how long ago a job was put, or "" if that is not known."""
    return duration_text(max(0, round((meta["now"] - meta["created"]) * 1_000))) if meta else ""


def job_details(queue: Queue, id: str) -> str:
    """Describe a job. Its history is shown even if the job has ended, if the journal still has it."""
    try:
        job = queue.job(id)
        lines, now_ms = _properties(job, job.meta())
    except UnknownJob:
        lines, now_ms = [f"job       {id}", "state     gone"], None
    try:
        history = list(text_lines(describe(queue.history(id), now_ms)))
    except CommandError as error:
        history = [printable(str(error))]
    return "\n".join([*lines, "", *history])


def _properties(job: Job, meta: dict[str, Any]) -> tuple[list[str], int]:
    """Return a line for each property, and the time of the queue in milliseconds."""
    body = printable(body_text(body_fields(job.body))[: _BODY_CHARACTERS_MAX + 1])
    shown = {
        "job": job.id,
        "tube": meta["tube"],
        "state": meta["state"],
        "key": meta["key"],
        "age": age_text(meta),
        "priority": meta["priority"],
        "tries": f"{meta['deliveries']:,}, of which {meta['nacks']:,} failed",
        "reason": meta["reason"],
        **{f"header {name}": value for name, value in job.headers.items()},
        "body": body if len(body) <= _BODY_CHARACTERS_MAX else f"{body[:_BODY_CHARACTERS_MAX]}…",
    }
    lines = [f"{name:<9} {printable(str(value))}" for name, value in shown.items() if value not in (None, "")]
    return lines, round(meta["now"] * 1_000)
