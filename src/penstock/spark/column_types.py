"""The only table of column types: the names that Spark uses, and the Arrow types that Spark expects for them."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def arrow_types() -> dict[str, Any]:
    """Return the Arrow types by their Spark names. Arrow is imported here, because few Spark processes need it."""
    import pyarrow as pa

    return {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
    }
