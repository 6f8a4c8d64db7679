"""The digests of docs/explanation/journal.md, computed from the columns of events alone, as a lake computes them."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pyarrow as pa

from penstock.core import states as s
from penstock.core.limits import NEVER
from penstock.journal.history.block import BlockDigest
from penstock.wire.headers import encode_headers

# The 18 words of a row, which are the row of the log with its position in the place of its var fields.
ROW = np.dtype(
    [
        *((name, "<i8") for name in ("job", "order", "wake", "expiry", "ttr_ms", "priority", "time", "created")),
        *((name, "<i8") for name in ("before_position", "session", "number", "tube_number")),
        *((name, "<u4") for name in ("deliveries", "nacks", "returns", "ttl_minutes")),
        *((name, "u1") for name in ("event", "before", "after", "flags", "body_kind", "format")),
        ("origin", "<u2"),
        *((name, "<i8") for name in ("position", "since", "actor")),
    ]
)

NULLS = {"wake": NEVER, "expiry": NEVER, "ttr_ms": NEVER, "session": 0, "number": -1, "since": 0, "actor": 0}
NUMBERS = {"event": s.EVENT_NAMES, "before": s.STATE_NAMES, "after": s.STATE_NAMES}


def block_of(events: pa.Table, first: int, end: int) -> BlockDigest:
    """Compute a block from the events of jobs."""
    positions = np.asarray(events.column("position"))
    events = events.filter(pa.array((positions >= first) & (positions < end)))
    rows = np.zeros(len(events), dtype=ROW)
    for name in ROW.names or ():
        values = events.column(name)
        if name in NUMBERS:
            rows[name] = [NUMBERS[name].index(value) for value in values.to_pylist()]
        else:
            # Spark has times in µs.
            is_time = pa.types.is_timestamp(values.type)
            numbers = values.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()) if is_time else values
            rows[name] = numbers.fill_null(NULLS[name]) if name in NULLS else numbers
    texts = [None if text is None else text.encode() for text in events.column("reason").to_pylist()]
    headers = [None if each is None else encode_headers(each) for each in events.column("headers").to_pylist()]
    fields = [(2, events.column("key").to_pylist()), (3, texts), (16, headers)]
    at = [int(position) for position in rows["position"]]
    rest = b"".join(_entries(at, tag, values) for tag, values in fields)
    bodies = _entries(at, 1, events.column("body").to_pylist())
    return BlockDigest(
        first,
        end,
        len(rows),
        hashlib.sha256(rows.tobytes() + rest).digest(),
        hashlib.sha256(bodies).digest(),
    )


def _entries(positions: list[int], tag: int, values: list[bytes | None]) -> bytes:
    found = [(position, value) for position, value in zip(positions, values, strict=True) if value is not None]
    return b"".join(struct.pack("<QBI", position, tag, len(value)) + value for position, value in found)
