"""The arguments of the methods that read a space: a key, then `{iterator, limit, offset}`."""

from __future__ import annotations

from typing import Final

from penstock.core.limits import NEVER
from penstock.dialects.spaces.indexes import ALL, EQ, Index, Query
from penstock.dialects.spaces.reading import ReadableSpace
from penstock.wire.errors import BoxError, LuaError

# The iterators of a tree, by their numbers.
_NAMES: Final = ("EQ", "REQ", "ALL", "LT", "LE", "GE", "GT")
# Iterators of other index types. Their numbers follow.
_OTHER_NAMES: Final = ("BITS_ALL_SET", "BITS_ANY_SET", "BITS_ALL_NOT_SET", "OVERLAPS", "NEIGHBOR")

# Tarantool's error numbers.
_ER_ILLEGAL_PARAMS: Final = 1
_ER_ITERATOR_TYPE: Final = 72
_ER_UNSUPPORTED_INDEX_FEATURE: Final = 112


def read_key(given: object) -> list[object]:
    """Return the parts of an index key, which is one value or a list. An empty Lua table can arrive as a map."""
    if given is None or given == {}:
        return []
    if isinstance(given, dict):
        raise LuaError("a key must be a value or a list of values, not a table with names")
    return list(given) if isinstance(given, (list, tuple)) else [given]


def select_query(space: ReadableSpace, index: Index, key: list[object], options: dict[object, object]) -> Query:
    """Return the query for a select with this key and these options."""
    _check(options, ["iterator", "limit", "offset"])
    iterator = read_iterator(options.get("iterator"), index, space.name, EQ if key else ALL)
    return Query(index, iterator, key, _number(options, "limit", NEVER), _number(options, "offset", 0))


def count_query(space: ReadableSpace, index: Index, key: list[object], options: dict[object, object]) -> Query:
    """Return the query for a count. As in Tarantool, the iterator ALL counts all rows and ignores the key."""
    _check(options, ["iterator"])
    iterator = read_iterator(options.get("iterator"), index, space.name, EQ if key else ALL)
    index.check(key)
    return Query(index, iterator, [] if iterator == ALL else key, NEVER)


def read_iterator(given: object, index: Index, space: str, unsaid: int) -> int:
    """Return the iterator that is given by its name or number, or `unsaid` if none is given."""
    if given is None:
        return unsaid
    number = -1
    if isinstance(given, str):
        name = given.upper()
        if name not in _NAMES and name not in _OTHER_NAMES:
            raise BoxError(_ER_ITERATOR_TYPE, f"Unknown iterator type '{given[:64]}'")
        number = (*_NAMES, *_OTHER_NAMES).index(name)
    elif isinstance(given, int) and not isinstance(given, bool):
        number = given
    if number < 0 or number >= len(_NAMES) + len(_OTHER_NAMES):
        raise BoxError(_ER_ILLEGAL_PARAMS, "Illegal parameters, Invalid iterator type")
    if number >= len(_NAMES):
        raise BoxError(
            _ER_UNSUPPORTED_INDEX_FEATURE,
            f"Index '{index.name}' (TREE) of space '{space}' does not support requested iterator type; "
            f"use one of {', '.join(_NAMES)}",
        )
    return number


def _check(options: dict[object, object], known: list[str]) -> None:
    for name in options:
        if name not in known:
            raise LuaError(f"unknown option {name!r}; use one of {', '.join(known)}")


def _number(options: dict[object, object], name: str, unsaid: int) -> int:
    value = options.get(name)
    if value is None:
        return unsaid
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Lua has only one type of numbers.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise LuaError(f"{name} must be a whole number, 0 or more")
    return min(value, NEVER)
