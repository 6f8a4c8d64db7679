"""The columns of an event, one definition for Spark, for Parquet and for the lake.

A row is one event of a job. (node, position) is its key: a position is never used again on its node. The columns are
those of `journal/columns.py` behind the node, in types that Spark has. Version 1: later versions may append columns,
and none is renamed, retyped or removed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

SCHEMA_VERSION: Final = 1

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

DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)


@cache
def arrow_schema() -> Any:
    """The same for Arrow, exactly as Spark wants it."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS])
