"""The columns of a job, as it is read; and those that a DataFrame may have whose rows become jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.core.errors import WrongType
from penstock.spark.column_types import arrow_types

# What is read of a job: name and type as Spark writes it.
COLUMNS: Final = {
    "id": "string",
    "tube": "string",
    "state": "string",
    "body": "binary",
    "kind": "string",  # What the body is: bytes, text, json or msgpack.
    "number": "bigint",  # Its integer in its tube; null where it has none.
    "key": "binary",
    "deliveries": "int",
    "nacks": "int",
    "once": "boolean",
    "created": "timestamp",
}

# What a row that becomes a job may have beside its body: `body` or `value`.
BODIES: Final = ("body", "value")
PUT_COLUMNS: Final = (*BODIES, "tube", "kind", "key", "priority", "delay", "ttl", "ttr", "name", "unique", "dedup")


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """The columns that were asked for; all, if none was."""
    found = tuple(names) or tuple(COLUMNS)
    for name in found:
        if name not in COLUMNS:
            raise WrongType(f"a job has no column {name!r}; there are {', '.join(COLUMNS)}")
    if len(set(found)) < len(found):
        raise WrongType("a column is named twice")
    return found


def ddl(columns: tuple[str, ...]) -> str:
    """The columns as Spark writes a schema."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The same for Arrow."""
    import pyarrow as pa

    return pa.schema([(name, arrow_types()[COLUMNS[name]]) for name in columns])
