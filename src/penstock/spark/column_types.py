"""THE types of columns: as Spark writes them, and the same for Arrow, exactly as Spark wants it."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def arrow_types() -> dict[str, Any]:
    """By Spark's names. Arrow is imported when somebody asks: most of Spark's Python processes need none."""
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
