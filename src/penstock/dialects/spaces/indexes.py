"""Indexes: the order of a space's rows, the keys that clients search by, and the iterators.

All indexes are trees, as in Tarantool. The rows of an index are ordered by its parts, then by the parts of the primary
index. A key can have fewer parts than the index. A row is compared with a key by the parts that the key has.

`comparable` converts values so that they compare in Tarantool's order: nil, booleans, numbers, strings, other values.
Strings are compared byte by byte. Some clients send strings as binary, so both are treated alike.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.dialects.xqueue.formats import Field
from penstock.wire.errors import BoxError
from penstock.wire.msgpack import Ext

# Tarantool's numbers of the iterators of a tree.
EQ: Final = 0
REQ: Final = 1
ALL: Final = 2
LT: Final = 3
LE: Final = 4
GE: Final = 5
GT: Final = 6
_DESCENDING: Final = frozenset([REQ, LE, LT])

# Tarantool's error numbers.
_ER_KEY_PART_TYPE: Final = 18
_ER_EXACT_MATCH: Final = 19
_ER_KEY_PART_COUNT: Final = 31
_ER_MORE_THAN_ONE_TUPLE: Final = 41

# The key of an item in the order of an index.
Comparable = tuple[Any, ...]


def read_fields(text: str) -> list[Field]:
    """Parse fields from words such as `name:type`, or `name:type?` if the field can be nil."""
    pairs = [word.split(":") for word in text.split()]
    return [Field(name, type.rstrip("?"), type.endswith("?")) for name, type in pairs]


class Index:
    """One index of a space."""

    number: int
    name: str
    parts: list[int]  # Positions of fields, from 0.
    order: list[int]  # `parts`, then the other parts of the primary index. No two rows are equal in these.
    unique: bool
    _types: list[str]
    _nullable: list[bool]

    def __init__(self, number: int, name: str, parts: list[int], fields: list[Field], unique: bool = True) -> None:
        """Create an index over the fields at the positions `parts`. A field without a format can be any scalar."""
        self.number = number
        self.name = name
        self.parts = parts
        self.order = parts
        self.unique = unique
        types = [fields[at].type if at < len(fields) else "any" for at in parts]
        # In Tarantool, no index has parts of type any.
        self._types = ["scalar" if type == "any" else type for type in types]
        self._nullable = [at >= len(fields) or fields[at].nullable for at in parts]

    def as_schema_parts(self) -> list[object]:
        """Return the parts of the index in the form of Tarantool's schema."""
        return [
            {"field": at, "type": type, "is_nullable": True} if nullable else [at, type]
            for at, type, nullable in zip(self.parts, self._types, self._nullable, strict=True)
        ]

    def check_exact(self, key: list[object]) -> None:
        """Raise an error if a key does not identify exactly one row."""
        if not self.unique:
            raise BoxError(_ER_MORE_THAN_ONE_TUPLE, "Get() doesn't support partial keys and non-unique indexes")
        if len(key) != len(self.parts):
            raise BoxError(
                _ER_EXACT_MATCH,
                f"Invalid key part count in an exact match (expected {len(self.parts)}, got {len(key)})",
            )

    def check(self, key: list[object]) -> Comparable:
        """Return a key in comparable form. Raise an error if it does not fit the index."""
        if len(key) > len(self.parts):
            raise BoxError(
                _ER_KEY_PART_COUNT, f"Invalid key part count (expected [0..{len(self.parts)}], got {len(key)})"
            )
        for part, value in enumerate(key):
            if not (self._nullable[part] if value is None else _is_of_type(value, self._types[part])):
                raise BoxError(
                    _ER_KEY_PART_TYPE,
                    f"Supplied key type of part {part + 1} does not match index part type: "
                    f"expected {self._types[part]}",
                )
        return tuple([comparable(value) for value in key])


class Query:
    """The rows of an index that a client asks for, and their order."""

    index: Index
    iterator: int
    values: list[object]  # The key as the client sent it.
    key: Comparable
    limit: int
    offset: int
    descending: bool
    exact: bool  # Only rows that are equal to the key match.

    def __init__(self, index: Index, iterator: int, values: list[object], limit: int, offset: int = 0) -> None:
        self.index = index
        self.values = values
        self.key = index.check(values)
        self.limit = limit
        self.offset = offset
        self.descending = iterator in _DESCENDING
        if not values:
            # Without a key, an iterator only determines the direction.
            iterator = LE if self.descending else GE
        elif iterator == ALL:
            iterator = GE
        self.iterator = iterator
        self.exact = iterator in (EQ, REQ)

    def matches(self, row: Comparable) -> bool:
        """Return whether a row with these comparable parts matches the query."""
        key = self.key
        if not key:
            return True
        head = row[: len(key)]
        iterator = self.iterator
        if iterator == GE:
            return bool(head >= key)
        if iterator == LE:
            return bool(head <= key)
        if iterator == GT:
            return bool(head > key)
        if iterator == LT:
            return bool(head < key)
        return bool(head == key)


def comparable(value: object) -> tuple[int, Any]:
    """Return a value as a tuple (rank of its type, value) that can be compared with every other such tuple."""
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, (int, float)):
        # NaN comes before all numbers.
        return 2, float("-inf") if value != value else value
    if isinstance(value, str):
        return 3, value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return 3, value
    if isinstance(value, Ext):
        return 4, (value.code, value.data)
    return 5, repr(value)


def _is_of_type(value: object, type: str) -> bool:
    if isinstance(value, bool):
        return type in ("boolean", "scalar")
    if isinstance(value, (int, float)):
        whole = isinstance(value, int) or value.is_integer()  # Lua has only one type of numbers.
        if type == "unsigned":
            return whole and value >= 0
        return type in ("number", "double", "scalar") or (type == "integer" and whole)
    if isinstance(value, (str, bytes)):
        return type in ("string", "scalar")
    return isinstance(value, Ext) and type == "scalar"
