"""The columns of an event, one definition for Spark, for Parquet and for the lake.

A row is one event of a job. (node, position) is its key: a position is never used again on its node. The columns are
those of `journal/columns.py` behind the node, in types that Spark has. Version 1: later versions may append columns,
and none is renamed, retyped or removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from penstock.core.errors import WrongType
from penstock.spark.column_types import arrow_types

# Name and type as Spark writes it.
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

# The others always have a value. Spark is told so: a third of what its Java does to a row is to look for nulls.
_NULLABLE: Final = frozenset(("session", "number", "wake", "expiry", "ttr_ms", "body", "key", "reason"))


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """The columns that were asked for; all, if none was."""
    found = tuple(names) or NAMES
    for name in found:
        if name not in NAMES:
            raise WrongType(f"an event has no column {name!r}; there are {', '.join(NAMES)}")
    if len(set(found)) < len(found):
        raise WrongType("a column is named twice")
    return found


def ddl(columns: tuple[str, ...]) -> str:
    """Columns as Spark writes a schema."""
    kinds = dict(COLUMNS)
    return ", ".join(f"`{name}` {kinds[name]}{'' if name in _NULLABLE else ' NOT NULL'}" for name in columns)


@cache
def arrow_schema(columns: tuple[str, ...] = NAMES) -> Any:
    """The same for Arrow."""
    import pyarrow as pa

    types = {name: arrow_types()[kind] for name, kind in COLUMNS}
    return pa.schema([pa.field(name, types[name], nullable=name in _NULLABLE) for name in columns])
