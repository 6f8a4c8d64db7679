"""The columns of jobs that Spark reads, and the columns that Spark can write as jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.spark import column_types

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
    "headers": "map<string,binary>",  # Null if the job has no headers.
    "since": "timestamp",  # Time at which the job entered its state.
    "session": "bigint",  # Number of the session that holds the job. Null if none does.
    "claim": "string",  # In a stream: the claim that holds the job (claim_names.py). Otherwise null.
}

# The columns that the server sends only if SINCE asks for them.
SINCE_COLUMNS: Final = ("since", "session")

# Columns of a row that is put. The body is in `body` or `value`; all other columns are optional.
BODIES: Final = ("body", "value")
PUT_COLUMNS: Final = (
    *(*BODIES, "tube", "kind", "key", "priority", "delay", "ttl", "ttr", "name", "unique", "dedup"),
    "headers",
)


# Columns of a row that is a verdict on a job of a stream. The first two are required.
VERDICT_COLUMNS: Final = ("id", "verdict", "reason", "delay", "tube", "claim")


def select_columns(names: Iterable[str], headers: bool | None = None) -> tuple[str, ...]:
    """Return the columns to read: `names`, or all if it is empty. `headers`, if given, adds or removes the headers."""
    found = column_types.select_columns(names, COLUMNS, "a job")
    if headers is None or headers == ("headers" in found):
        return found
    return (*found, "headers") if headers else tuple(name for name in found if name != "headers")


def ddl(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)


def arrow_schema(columns: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.schema([(name, column_types.arrow_types()[COLUMNS[name]]) for name in columns])
