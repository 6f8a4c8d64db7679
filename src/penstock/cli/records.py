"""Jobs and tubes as records, and the columns that tables show of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import Column, Record, body_text, column, headers_text, seconds_text
from penstock.core.errors import UnknownJob
from penstock.wire.headers import printable_headers

if TYPE_CHECKING:
    from penstock.api import Job, Queue


class State(StrEnum):
    """The states of a job that exists."""

    READY = "ready"
    TAKEN = "taken"
    DELAYED = "delayed"
    BURIED = "buried"
    DONE = "done"
    ZOMBIE = "zombie"
    STAGED = "staged"


def job_count(info: Record) -> int:
    """Return the number of jobs in a tube, in any state."""
    return sum(int(info[state]) for state in State)


def job_record(job: Job) -> Record:
    """Return the current metadata of a job as a dict, with its body."""
    return _record(job, job.meta())


def _record(job: Job, meta: Record) -> Record:
    now = meta.pop("now")
    headers = {"headers": printable_headers(job.headers)} if job.headers else {}
    return {**meta, "age": round(now - meta["created"], 3), **headers, **body_fields(job.body)}


def job_records(queue: Queue, jobs: Iterable[Job]) -> Iterator[tuple[Record, Job]]:
    """Yield the current records of jobs. Jobs that no longer exist are left out."""
    for job, ask in _asked(queue, list(jobs)):
        try:
            yield _record(job, ask()), job
        except UnknownJob:
            continue


def _asked(queue: Queue, jobs: list[Job]) -> Iterator[tuple[Job, Callable[[], Record]]]:
    """Yield each job with a function that returns its metadata. A server receives all requests at once."""
    if not hasattr(queue, "pipeline"):
        yield from ((job, job.meta) for job in jobs)
        return
    pipeline = queue.pipeline()
    answers = [pipeline.meta(job) for job in jobs]
    pipeline.send()
    yield from ((job, lambda answer=answer: answer.value) for job, answer in zip(jobs, answers))


def body_fields(body: Any) -> Record:
    """Return a body as fields for JSON. Bytes become text if they are UTF-8, and base64 otherwise."""
    if not isinstance(body, bytes):
        return {"as": "text" if isinstance(body, str) else "json", "body": body}
    try:
        return {"as": "bytes", "body": body.decode()}
    except UnicodeDecodeError:
        return {"as": "bytes", "body": None, "body_base64": base64.b64encode(body).decode()}


JOB_COLUMNS: Final = (
    column("id"),
    column("tube"),
    column("state"),
    Column("age", lambda record: seconds_text(record["age"])),
    Column("tries", lambda record: record["deliveries"]),
    Column("body", body_text, wide=True),
)

_HEADERS_COLUMN: Final = Column("headers", lambda record: headers_text(record.get("headers", {})), wide=True)


def job_columns(records: list[Record]) -> tuple[Column, ...]:
    """Return the columns of a table of jobs. Headers have a column if any of the jobs has headers."""
    if not any("headers" in record for record in records):
        return JOB_COLUMNS
    return (*JOB_COLUMNS[:-1], _HEADERS_COLUMN, JOB_COLUMNS[-1])


_PAUSED: Final = {(False, False): "", (True, False): "in", (False, True): "out", (True, True): "in and out"}

TUBE_COLUMNS: Final = (
    Column("tube", lambda record: record["name"]),
    column("type"),
    *(column(state) for state in ("ready", "taken", "delayed", "buried")),
    Column("kept", lambda record: record["done"] + record["zombie"]),
    Column("oldest", lambda record: seconds_text(record["oldest"])),
    column("waiting"),
    Column("paused", lambda record: _PAUSED[bool(record["paused_in"]), bool(record["paused_out"])]),
)
