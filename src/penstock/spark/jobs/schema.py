"""The columns of jobs that Spark reads, and the columns that Spark can write as jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.core.errors import WrongType
from penstock.spark.column_types import arrow_types

# Columns of a job that is read, with their Spark types.
COLUMNS: Final = {
    "id": "string",
    "tube": "string",
    "state": "string",
    "body": "binary",
    "kind": "string",  # Kind of the body: bytes, text, json or msgpack.
    "number": "bigint",  # Integer id of the job in its tube. Null in tubes without integer ids.
    "key": "binary",
    "deliveries": "int",
    "nacks": "int",
    "once": "boolean",
    "created": "timestamp",
}

# Columns of a row that is put. The body is in `body` or `value`; all other columns are optional.
BODIES: Final = ("body", "value")
PUT_COLUMNS: Final = (*BODIES, "tube", "kind", "key", "priority", "delay", "ttl", "ttr", "name", "unique", "dedup")


def select_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns to read: `names`, or all if it is empty. Raise an error for unknown and repeated names."""
    found = tuple(names) or tuple(COLUMNS)
    for name in found:
        if name not in COLUMNS:
            raise WrongType(f"a job has no column {name!r}; its columns are {', '.join(COLUMNS)}")
    if len(set(found)) < len(found):
        raise WrongType("a column is named twice")
    return found


def ddl(columns: tuple[str, ...]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """Return the columns as an Arrow schema."""
    import pyarrow as pa

    return pa.schema([(name, arrow_types()[COLUMNS[name]]) for name in columns])
