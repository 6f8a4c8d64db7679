"""The spaces of a Tarantool server, read from the server or from a dump of its rows.

A server and a dump both contain the rows of Tarantool's catalogue (`_space` and `_index`), so the same code reads them.
Rows are kept as msgpack until a field is needed, so the data of a task is imported byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.core.errors import ProtocolError
from penstock.wire.msgpack import Reader

QUEUES: Final = "_queue"  # The space in which tarantool/queue lists its tubes.

# Positions of the fields of `_space` and `_index`.
_ID, _NAME, _FORMAT = 0, 2, 6
_SPACE, _INDEX, _INDEX_TYPE, _PARTS = 0, 1, 3, 5


class BadSource(Exception):
    """The source cannot be imported. The message gives the reason, `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a space: its type, and the positions of its fields, from 0."""

    type: str
    parts: tuple[int, ...]


@dataclass(slots=True)
class Space:
    """A space: its name, its fields and its indexes by their numbers."""

    id: int
    name: str
    format: list[Any] = field(default_factory=list)
    indexes: dict[int, Index] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, ...]:
        """Return the positions of the fields of the primary key."""
        return self.indexes[0].parts if 0 in self.indexes else (0,)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its bytes, and the cursor to continue after it."""

    raw: bytes
    cursor: Any


class Database(Protocol):
    """A Tarantool server, or a dump of one."""

    id: str  # The UUID of the instance.
    label: str  # The name in messages.
    spaces: dict[str, Space]

    def rows(self, space: Space, after: Any = None) -> Iterator[Row]:
        """Yield the rows of a space in the order of the primary key, after a cursor."""

    def last(self, space: Space) -> bytes | None:
        """Return the row that has the greatest primary key of a space, or None if the space is empty."""


def read_spaces(space_rows: list[Any], index_rows: list[Any]) -> dict[str, Space]:
    """Return the spaces that the rows of `_space` and `_index` describe, by their names."""
    by_id: dict[int, Space] = {}
    for row in space_rows:
        found = row[_FORMAT] if len(row) > _FORMAT else []
        by_id[row[_ID]] = Space(row[_ID], str(row[_NAME]), found if isinstance(found, list) else [])
    for row in index_rows:
        if row[_SPACE] in by_id:
            parts = tuple(each["field"] if isinstance(each, dict) else each[0] for each in row[_PARTS])
            by_id[row[_SPACE]].indexes[row[_INDEX]] = Index(str(row[_INDEX_TYPE]).lower(), parts)
    return {space.name: space for space in by_id.values()}


def fields_of(raw: bytes) -> list[bytes]:
    """Return the fields of a row, each as msgpack. Raise ProtocolError if the bytes are not a row."""
    reader = Reader(raw)
    fields = [reader.raw() for _ in range(reader.length_of_array())]
    if reader.at != len(raw):
        raise ProtocolError("there are bytes after the row")
    return fields
