"""The columns of an event: one definition for Spark, for Parquet and for the lake.

A row is one event of a job. Its key is (node, position), because a node never uses a position twice. The columns are
the node and those of `journal/history/columns.py`, in types that Spark has. This is version 1: later versions may
append columns, but do not rename, retype or remove any.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from penstock.core.errors import WrongType
from penstock.spark.column_types import arrow_types

# Names and Spark types.
COLUMNS: Final = (
    ("node", "string"),  # 40 hexadecimal digits.
    ("position", "bigint"),
    ("time", "timestamp"),
    ("event", "string"),
    ("tube", "string"),
    ("job", "bigint"),
    ("before", "string"),
    ("after", "string"),
    ("session", "bigint"),
    ("number", "bigint"),
    ("priority", "bigint"),
    ("order", "bigint"),
    ("created", "timestamp"),
    ("wake", "timestamp"),
    ("expiry", "timestamp"),
    ("ttr_ms", "bigint"),
    ("deliveries", "int"),
    ("nacks", "int"),
    ("returns", "int"),
    ("ttl_minutes", "int"),
    ("once", "boolean"),
    ("body_kind", "int"),
    ("origin", "int"),
    ("before_position", "bigint"),
    ("body", "binary"),
    ("key", "binary"),
    ("reason", "string"),
)

NAMES: Final = tuple(name for name, _ in COLUMNS)

# The other columns are declared NOT NULL, because Spark's Java side spends a third of its time per row on null checks.
_NULLABLE: Final = frozenset(("session", "number", "wake", "expiry", "ttr_ms", "body", "key", "reason"))


def select_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns to read: `names`, or all if it is empty. Raise an error for unknown and repeated names."""
    found = tuple(names) or NAMES
    for name in found:
        if name not in NAMES:
            raise WrongType(f"an event has no column {name!r}; its columns are {', '.join(NAMES)}")
    if len(set(found)) < len(found):
        raise WrongType("a column is named twice")
    return found


def ddl(columns: tuple[str, ...]) -> str:
    """Return the columns as a schema in Spark's DDL."""
    kinds = dict(COLUMNS)
    return ", ".join(f"`{name}` {kinds[name]}{'' if name in _NULLABLE else ' NOT NULL'}" for name in columns)


@cache
def arrow_schema(columns: tuple[str, ...] = NAMES) -> Any:
    """Return the columns as an Arrow schema."""
    import pyarrow as pa

    types = {name: arrow_types()[kind] for name, kind in COLUMNS}
    return pa.schema([pa.field(name, types[name], nullable=name in _NULLABLE) for name in columns])
