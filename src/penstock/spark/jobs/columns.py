"""Converts the jobs of a PACKED reply (dialects/native/packed_jobs.py) to Arrow columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.client import commands
from penstock.core.errors import BadAnswer
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.states import STATE_NAMES
from penstock.journal.history.columns import header_column, text_column, var_column
from penstock.spark.jobs.options import KINDS
from penstock.spark.jobs.schema import SINCE_COLUMNS, arrow_schema

# Bulk strings per group. dialects/native/packed_jobs.py has the table of their contents.
PACKED_BULKS: Final = 16
_HEADERS_BULKS: Final = 3
_SINCE_BULKS: Final = 2
# By the number of bulks: whether a group has headers, and whether it has times and sessions.
_LAYOUTS: Final = {
    PACKED_BULKS + _HEADERS_BULKS * headers + _SINCE_BULKS * since: (headers, since)
    for headers in (False, True)
    for since in (False, True)
}

_STATES: Final = pa.array(STATE_NAMES)
_KINDS: Final = pa.array(KINDS)


# Bulks with a fixed number of bytes per job, by their index in the group.
_FIXED: Final = {0: LONG_ID_BYTES, 3: 1, 4: 1, 5: 1, 6: 8, 7: 8, 8: 4, 9: 4, 10: 1, 13: 1}
# Bulks with the end offsets of variable-length values. The next bulk has the values.
_ENDS: Final = (1, 11, 14)
# The bulks of the headers, which a group has only on request: one byte per job, and end offsets.
_HEADERS_FIXED: Final = 16
_HEADERS_ENDS: Final = 17
_STATE: Final = 3
_KIND: Final = 4

Group = list[bytes]


def groups_of(answer: Any) -> list[Group]:
    """Return the groups of a reply. Raise BadAnswer if their sizes or offsets are inconsistent.

    Arrow does not check offsets. With a wrong one, Spark would read memory outside the reply.
    """
    found: list[Group] = commands.items(answer)
    for group in found:
        bulks = [commands.octets(each) for each in commands.items(group)]
        if len(bulks) != len(found[0]) or len(bulks) not in _LAYOUTS or not _is_whole(bulks):
            raise BadAnswer("the server sent packed jobs with inconsistent sizes or offsets")
    return found


def _is_whole(bulks: Group) -> bool:
    count = len(bulks[_STATE])
    if any(len(bulks[at]) != size * count for at, size in _FIXED.items()) or not bulks[0].isascii():
        return False
    if count and (max(bulks[_STATE]) >= len(STATE_NAMES) or max(bulks[_KIND]) >= len(KINDS)):
        return False
    has_headers, has_since = _LAYOUTS[len(bulks)]
    if has_headers and len(bulks[_HEADERS_FIXED]) != count:
        return False
    if has_since and any(len(each) != 8 * count for each in bulks[-_SINCE_BULKS:]):
        return False
    return all(_are_ends(bulks[at], count, len(bulks[at + 1])) for at in _ends(bulks))


def _ends(bulks: Group) -> tuple[int, ...]:
    return (*_ENDS, _HEADERS_ENDS) if _LAYOUTS[len(bulks)][0] else _ENDS


def _are_ends(raw: bytes, count: int, size: int) -> bool:
    if len(raw) != 4 * (count + 1):
        return False
    ends = np.frombuffer(raw, dtype="<i4")
    return bool(ends[0] == 0 and ends[-1] == size and (np.diff(ends) >= 0).all())


def words_of(columns: tuple[str, ...]) -> list[bytes]:
    """Return the words of a command that asks for PACKED jobs with these columns."""
    words = [b"PACKED"]
    if "headers" in columns:
        words.append(b"HEADERS")
    if any(name in columns for name in SINCE_COLUMNS):
        words.append(b"SINCE")
    return words


def batch(groups: list[Group], columns: tuple[str, ...], claim: str | None = None) -> pa.RecordBatch:
    """Return the given columns of the jobs in `groups`. All of them are in the claim `claim`, if it is given."""
    schema = arrow_schema(columns)
    group = groups[0] if len(groups) == 1 else _joined(groups)
    ids, tube_ends, tubes, states, kinds, once, numbers, created, deliveries, nacks, *var = group
    count = len(states)
    id_ends = np.arange(0, LONG_ID_BYTES * (count + 1), LONG_ID_BYTES, dtype="<i4").tobytes()
    there = b"\1" * count
    # Functions, so that only the selected columns are built.
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
        "headers": lambda: _headers(var_column((var[6], var[7], var[8]), count, pa.binary())),
        "since": lambda: pa.array(np.frombuffer(var[-2], dtype="<i8") * 1000).cast(schema.field("since").type),
        "session": lambda: _sessions(np.frombuffer(var[-1], dtype="<i8")),
        "claim": lambda: pa.array([claim], pa.string()).take(pa.array(np.zeros(count, dtype="i8"))),
    }
    return pa.RecordBatch.from_arrays([made[field.name]() for field in schema], schema=schema)


def _joined(groups: list[Group]) -> Group:
    """Join groups into one. Servers send small groups, and creating an Arrow array for each of them would be slow."""
    bulks = [b"".join(parts) for parts in zip(*groups, strict=True)]
    for at in _ends(groups[0]):
        ends, total = [np.zeros(1, dtype="<i4")], 0
        for group in groups:
            some = np.frombuffer(group[at], dtype="<i4")
            ends.append(some[1:] + total)
            total += int(some[-1])
        bulks[at] = np.concatenate(ends).astype("<i4").tobytes()
    return bulks


def _headers(encoded: pa.Array) -> pa.Array:
    try:
        return header_column(encoded)
    except UnicodeDecodeError:
        raise BadAnswer("the server sent packed jobs with headers that are not valid") from None


def _numbers(values: Any) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _sessions(values: Any) -> pa.Array:
    return pa.array(values, mask=values == 0)
