"""Jobs as a server tells them, turned into columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.spark.jobs_schema import arrow_schema

Told = dict[bytes, Any]


def batch(jobs: list[Told], columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns of some jobs."""
    schema = arrow_schema(columns)
    arrays = [_MADE[field.name](jobs, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_told(name: bytes) -> Callable[[list[Told], Any], Any]:
    return lambda jobs, kind: pa.array([job[name] for job in jobs], kind)


def _text(name: bytes) -> Callable[[list[Told], Any], Any]:
    return lambda jobs, kind: pa.array([job[name].decode("utf-8", "backslashreplace") for job in jobs], kind)


def _states(jobs: list[Told], kind: Any) -> Any:
    # One that was just taken is told without its state.
    return pa.array([job.get(b"state", b"taken").decode() for job in jobs], kind)


def _created(jobs: list[Told], kind: Any) -> Any:
    return pa.array(np.array([job[b"created"] for job in jobs], dtype="i8") * 1000).cast(kind)


_MADE: Final = {
    "id": _text(b"id"),
    "tube": _text(b"tube"),
    "state": _states,
    "body": _as_told(b"body"),
    "kind": _text(b"as"),
    "number": _as_told(b"number"),
    "key": _as_told(b"key"),
    "deliveries": _as_told(b"deliveries"),
    "nacks": _as_told(b"nacks"),
    "once": lambda jobs, kind: pa.array([job[b"once"] == 1 for job in jobs], kind),
    "created": _created,
}
