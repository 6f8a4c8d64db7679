"""The columns of the sources: selects the ones to read, and gives the Arrow type for each Spark type."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from penstock.core.errors import WrongType


def select_columns(names: Iterable[str], known: Collection[str], of: str) -> tuple[str, ...]:
    """Return the columns to read: `names`, or all if it is empty. Raise an error for unknown and repeated names."""
    found = tuple(names) or tuple(known)
    for name in found:
        if name not in known:
            raise WrongType(f"{of} has no column {name!r}; its columns are {', '.join(known)}")
    if len(set(found)) < len(found):
        raise WrongType("a column is named twice")
    return found


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
        "map<string,binary>": pa.map_(pa.string(), pa.binary()),
    }
