"""The columns of an event: one definition for Spark, for Parquet and for the lake.

A row is one event of a job. Its key is (node, position), because a node never uses a position twice. The columns are
the node and those of `journal/history/columns.py`, in types that Spark has. Later versions may append columns, but
do not rename, retype or remove any.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from penstock.spark import column_types

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
    ("since", "timestamp"),
    ("actor", "bigint"),
    ("tube_number", "bigint"),
    ("headers", "map<string,binary>"),
    ("flags", "int"),
    ("format", "int"),
)

NAMES: Final = tuple(name for name, _ in COLUMNS)

# The other columns are declared NOT NULL, because Spark's Java side spends a third of its time per row on null checks.
_NULLABLE: Final = frozenset(
    ("session", "number", "wake", "expiry", "ttr_ms", "body", "key", "reason", "since", "actor", "headers")
)


def select_columns(names: Iterable[str]) -> tuple[str, ...]:
    return column_types.select_columns(names, NAMES, "an event")


def ddl(columns: tuple[str, ...]) -> str:
    kinds = dict(COLUMNS)
    return ", ".join(f"`{name}` {kinds[name]}{'' if name in _NULLABLE else ' NOT NULL'}" for name in columns)


@cache
def arrow_schema(columns: tuple[str, ...] = NAMES) -> Any:
    import pyarrow as pa

    types = {name: column_types.arrow_types()[kind] for name, kind in COLUMNS}
    return pa.schema([pa.field(name, types[name], nullable=name in _NULLABLE) for name in columns])
