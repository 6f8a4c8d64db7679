"""The log as Arrow columns, one row for each event of a job. Needs pyarrow and numpy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core import states as s
from penstock.core.limits import NEVER
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.gather import GatheredRows
from penstock.journal.layout import FLAG_ONCE, JOB_FIELDS, ROW_BYTES
from penstock.journal.segment import FrameFile, begun_segment_names
from penstock.wire.headers import decode_headers

# Bytes of the log in one batch. Larger batches are not faster, and this size fits in any memory.
BATCH_BYTES: Final = 4 * 1024 * 1024

_ROW: Final = np.dtype(
    {
        "names": [name for name, _, _ in JOB_FIELDS],
        "formats": [kind for _, kind, _ in JOB_FIELDS],
        "offsets": [offset for _, _, offset in JOB_FIELDS],
        "itemsize": ROW_BYTES,
    }
)

_EVENTS: Final = pa.array([name if name else f"event {n}" for n, name in enumerate(s.EVENT_NAMES)])
_STATES: Final = pa.array(s.STATE_NAMES)
_NAME: Final = pa.dictionary(pa.int8(), pa.string())
_TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        ("position", pa.int64()),
        ("time", _TIMESTAMP),
        ("event", _NAME),
        ("tube", pa.dictionary(pa.int32(), pa.string())),
        ("job", pa.int64()),
        ("before", _NAME),
        ("after", _NAME),
        ("session", pa.int64()),
        ("number", pa.int64()),
        ("priority", pa.int64()),
        ("order", pa.int64()),
        ("created", _TIMESTAMP),
        ("wake", _TIMESTAMP),
        ("expiry", _TIMESTAMP),
        ("ttr_ms", pa.int64()),
        ("deliveries", pa.uint32()),
        ("nacks", pa.uint32()),
        ("returns", pa.uint32()),
        ("ttl_minutes", pa.uint32()),
        ("once", pa.bool_()),
        ("body_kind", pa.uint8()),
        ("origin", pa.uint16()),
        ("before_position", pa.int64()),
        ("body", pa.binary()),
        ("key", pa.binary()),
        ("reason", pa.string()),
        ("since", _TIMESTAMP),
        ("actor", pa.int64()),
        ("tube_number", pa.int64()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("flags", pa.uint8()),
        ("format", pa.uint8()),
    ]
)

# The columns of variable length that rows contain.
VAR_COLUMNS: Final = frozenset(("body", "key", "reason", "headers"))


def batches(disk: ReadableDisk, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield every event of every job in a directory, in order."""
    names = begun_segment_names(disk)
    for name in names:
        with FrameFile(disk, name) as file:
            yield from segment_batches(file, name == names[-1], batch_bytes)


def segment_batches(file: FrameFile, last: bool, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the events of one segment. A segment can be read alone, because it contains the names of its tubes."""
    names: dict[int, bytes] = {}
    for piece in file.whole_pieces(last, batch_bytes):
        gathered = GatheredRows()
        gathered.add(piece.data, piece.frames)
        names |= gathered.names
        if gathered.count:
            yield batch_of(gathered, names)


def batch_of(gathered: GatheredRows, names: dict[int, bytes], only: Collection[str] = SCHEMA.names) -> pa.RecordBatch:
    """Return gathered rows as columns, or only the columns in `only`. `names` are the tube names by number."""
    rows = np.frombuffer(gathered.rows(), dtype=_ROW)
    # Only requested columns are built.
    made: dict[str, Callable[[], pa.Array]] = {
        "position": lambda: pa.array(np.frombuffer(gathered.positions(), dtype="<i8")),
        "event": lambda: pa.DictionaryArray.from_arrays(_column(rows, "event", np.int8), _EVENTS),
        "tube": lambda: _tube_names(_column(rows, "tube"), names),
        "before": lambda: pa.DictionaryArray.from_arrays(_column(rows, "before", np.int8), _STATES),
        "after": lambda: pa.DictionaryArray.from_arrays(_column(rows, "after", np.int8), _STATES),
        "session": lambda: _with_nulls(_column(rows, "holder"), 0),
        "actor": lambda: _with_nulls(_column(rows, "actor"), 0),
        "since": lambda: _timestamps(_column(rows, "since"), 0),
        "tube_number": lambda: pa.array(_column(rows, "tube")),
        "origin": lambda: pa.array(_column(rows, "zone")),
        "number": lambda: _with_nulls(_column(rows, "number"), -1),
        "time": lambda: _timestamps(_column(rows, "time"), None),
        "created": lambda: _timestamps(_column(rows, "created"), None),
        "wake": lambda: _timestamps(_column(rows, "wake"), NEVER),
        "expiry": lambda: _timestamps(_column(rows, "expiry"), NEVER),
        "ttr_ms": lambda: _with_nulls(_column(rows, "ttr"), NEVER),
        "once": lambda: pa.array((_column(rows, "flags") & FLAG_ONCE) != 0),
        "body": lambda: var_column(gathered.bodies.buffers(), gathered.count, pa.binary()),
        "key": lambda: var_column(gathered.keys.buffers(), gathered.count, pa.binary()),
        "reason": lambda: text_column(var_column(gathered.reasons.buffers(), gathered.count, pa.binary())),
        "headers": lambda: _header_maps(gathered),
    }
    fields = [field for field in SCHEMA if field.name in only]
    columns = [made[name]() if (name := field.name) in made else pa.array(_column(rows, name)) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _column(rows: Any, name: str, kind: Any = None) -> Any:
    return np.ascontiguousarray(rows[name], dtype=kind)


def _with_nulls(values: Any, none: int) -> pa.Array:
    return pa.array(values, mask=values == none)


def _timestamps(values: Any, never: int | None) -> pa.Array:
    return pa.array(values, type=_TIMESTAMP, mask=None if never is None else values == never)


def _tube_names(numbers: Any, names: dict[int, bytes]) -> pa.Array:
    index: Any
    if len(numbers) and (numbers == numbers[0]).all():
        # All rows are of one tube, so the numbers need not be sorted.
        distinct, index = numbers[:1], np.zeros(len(numbers), np.int32)
    else:
        distinct, index = np.unique(numbers, return_inverse=True)
    texts = [tube_text(names.get(int(n), b"tube %d" % n)) for n in distinct]
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), pa.array(texts, type=pa.string()))


def tube_text(name: bytes) -> str:
    """Return the name of a tube as text. A byte that is not valid UTF-8 is escaped."""
    return name.decode("utf-8", "backslashreplace")


def header_column(encoded: pa.Array) -> pa.Array:
    """Return a column of encoded headers as maps. Null stays null."""
    kind = SCHEMA.field("headers").type
    if encoded.null_count == len(encoded):
        return pa.nulls(len(encoded), kind)
    return pa.array(
        [None if each is None else list(decode_headers(each).items()) for each in encoded.to_pylist()], kind
    )


def _header_maps(gathered: GatheredRows) -> pa.Array:
    """Return the headers as maps. Rows without headers are null."""
    kind = SCHEMA.field("headers").type
    if not gathered.headers:
        return pa.nulls(gathered.count, kind)
    decoded = [decode_headers(encoded) for encoded in gathered.headers]
    lengths = np.zeros(gathered.count, dtype=np.int32)
    lengths[gathered.header_rows] = [len(headers) for headers in decoded]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    names = pa.array([name for headers in decoded for name in headers], type=kind.key_type)
    values = pa.array([value for headers in decoded for value in headers.values()], type=kind.item_type)
    return pa.MapArray.from_arrays(pa.array(offsets), names, values, type=kind, mask=pa.array(lengths == 0))


def text_column(values: pa.Array) -> pa.Array:
    """Decode bytes as text. A byte that is not valid UTF-8 is escaped, for example as `\\xff`."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "backslashreplace") for value in values.to_pylist()]
        return pa.array(texts, type=pa.string())


def var_column(buffers: tuple[bytes, bytes, bytes], count: int, kind: pa.DataType) -> pa.Array:
    """Return a column of variable length from the buffers of `wire/columns.py`."""
    there, ends, data = buffers
    valid = np.packbits(np.frombuffer(there, dtype=np.uint8), bitorder="little").tobytes()
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)])
