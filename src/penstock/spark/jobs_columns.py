"""Jobs that a server has packed (dialects/packed.py), turned into columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.ids import LONG_ID_BYTES
from penstock.core.states import STATE_NAMES
from penstock.journal.columns import text_column, var_column
from penstock.spark.jobs_options import KINDS
from penstock.spark.jobs_schema import arrow_schema

_STATES: Final = pa.array(STATE_NAMES)
_KINDS: Final = pa.array(KINDS)


def batch(groups: list[list[bytes]], columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns of some jobs, which came in groups."""
    schema = arrow_schema(columns)
    parts = [_part(group, schema) for group in groups]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _part(group: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """One group."""
    ids, tube_ends, tubes, states, kinds, once, numbers, created, deliveries, nacks, *var = group
    count = len(states)
    id_ends = np.arange(0, LONG_ID_BYTES * (count + 1), LONG_ID_BYTES, dtype="<i4").tobytes()
    there = b"\1" * count
    # Only what was asked for is made.
    made: dict[str, Any] = {
        "id": lambda: var_column((there, id_ends, ids), count, pa.string()),
        "tube": lambda: text_column(var_column((there, tube_ends, tubes), count, pa.binary())),
        "state": lambda: _STATES.take(pa.array(np.frombuffer(states, dtype="u1"))),
        "body": lambda: var_column((var[0], var[1], var[2]), count, pa.binary()),
        "kind": lambda: _KINDS.take(pa.array(np.frombuffer(kinds, dtype="u1"))),
        "number": lambda: _numbers(np.frombuffer(numbers, dtype="<i8")),
        "key": lambda: var_column((var[3], var[4], var[5]), count, pa.binary()),
        "deliveries": lambda: pa.array(np.frombuffer(deliveries, dtype="<i4")),
        "nacks": lambda: pa.array(np.frombuffer(nacks, dtype="<i4")),
        "once": lambda: pa.array(np.frombuffer(once, dtype="u1") != 0),
        "created": lambda: pa.array(np.frombuffer(created, dtype="<i8") * 1000).cast(schema.field("created").type),
    }
    return pa.RecordBatch.from_arrays([made[field.name]() for field in schema], schema=schema)


def _numbers(values: Any) -> pa.Array:
    return pa.array(values, mask=values < 0)
