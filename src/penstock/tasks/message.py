"""The job of a task: what its headers and its body contain.

    body                 a map from names of parameters to values, as msgpack or JSON
    header task          the name of the task
    header producer      the process that put the job: host and process id
    header tags          words of the producer, separated by commas; only if there are any
    header attempt       the attempt that put the job, if a task has put it; the first attempt is 1
    header parent        the id of the job that put it, if a task has put it
    header step          the number of this step of a chain and the number of all its steps: 2/3
    header next          the names of the tasks of the following steps: upload > notify
    header chain         the id of the job of the first step, in those of the following steps
    header traceparent   the trace context, in W3C's format; only if there is a trace

If a job has the header `next`, its body is a list of two: the map, and a list of the following steps (chain.py). They
are in the body because headers are limited to a few KB.

The attempt that runs is not a header: it is the number of deliveries of the job.
"""

from __future__ import annotations

import functools
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from penstock.core.errors import WrongType
from penstock.core.job import BODY_JSON, BODY_MSGPACK
from penstock.options import EncodedBody
from penstock.tasks.failures import BadArguments, BadTask
from penstock.tasks.progress import Progress
from penstock.tasks.values import plain
from penstock.wire.msgpack import VALUE_DEPTH_MAX, pack

Codec = Literal["msgpack", "json"]

TASK: Final = "task"
PRODUCER: Final = "producer"
TAGS: Final = "tags"
ATTEMPT: Final = "attempt"
PARENT: Final = "parent"
STEP: Final = "step"
NEXT: Final = "next"
CHAIN: Final = "chain"

_NEXT_SEPARATOR: Final = " > "

# A msgpack body is an array of fields (wire/bodies.py). This is the head of an array of one.
_ONE_FIELD: Final = b"\x91"


def process_name() -> str:
    """Return the name of this process: its host and its process id."""
    return _name_of(os.getpid())


@functools.cache
def _name_of(pid: int) -> str:
    return f"{socket.gethostname()}/{pid}"


def task_headers(task: str, tags: Iterable[str]) -> dict[str, str | bytes]:
    """Return the headers of a new job."""
    headers: dict[str, str | bytes] = {TASK: task, PRODUCER: process_name()}
    if tags:
        headers[TAGS] = ",".join(tags)
    return headers


def child_headers(parent: str, attempt: int) -> dict[str, str]:
    """Return the headers of a job that a task puts: the job of that task, and the attempt."""
    return {PARENT: parent, ATTEMPT: str(attempt)}


def next_header(tasks: Sequence[str]) -> str:
    """Return the header `next` for these tasks."""
    if wrong := [name for name in tasks if _NEXT_SEPARATOR in name]:
        raise BadTask(f"a task whose name contains {_NEXT_SEPARATOR!r} cannot be a later step of a chain: {wrong[0]!r}")
    return _NEXT_SEPARATOR.join(tasks)


def next_tasks(headers: Mapping[str, str]) -> list[str]:
    """Return the names of the tasks of the following steps of a chain."""
    return headers[NEXT].split(_NEXT_SEPARATOR) if NEXT in headers else []


def split_body(body: Any, headers: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the stored arguments of a job, and the stored steps that follow it in its chain."""
    if NEXT not in headers:
        return body, []
    if not isinstance(body, list) or len(body) != 2:
        raise BadArguments("the body of a job with the header next is a list: the arguments, and the next steps")
    return body[0], body[1]


def tags_of(headers: Mapping[str, str]) -> list[str]:
    """Return the tags in the headers of a job."""
    return headers[TAGS].split(",") if headers.get(TAGS) else []


def encode_report(attempt: int, progress: Progress) -> EncodedBody:
    """Return a report of a task as a progress value of its job."""
    told = [attempt, progress.number, progress.done, progress.total, progress.message, plain(progress.partial)]
    return EncodedBody(_ONE_FIELD + pack(told, VALUE_DEPTH_MAX), BODY_MSGPACK)


def decode_report(value: Any) -> tuple[int, Progress]:
    """Return the attempt and the report in a progress value. A value of another worker program is a partial result."""
    if isinstance(value, list) and len(value) == 6:
        attempt, number, done, total, text, partial = value
        if isinstance(attempt, int) and isinstance(number, int):
            return attempt, Progress(done, total, text, partial, number)
    return 0, Progress(partial=value)


def encode_value(value: Any, codec: Codec) -> EncodedBody:
    """Return a plain value as the body of a job. Raise BadArguments if the codec cannot hold it."""
    try:
        if codec == "json":
            return EncodedBody(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), BODY_JSON)
        return EncodedBody(_ONE_FIELD + pack(value, VALUE_DEPTH_MAX), BODY_MSGPACK)
    except (TypeError, ValueError, RecursionError, WrongType) as error:
        raise BadArguments(f"a value cannot be encoded as {codec}: {error}") from None
