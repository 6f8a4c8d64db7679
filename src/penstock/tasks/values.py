"""Arguments and results: to values that msgpack and JSON can hold, and back by their annotations.

`plain` converts any value of a supported type without an annotation. `reader_of` returns the function that converts a
plain value back, so that a task receives the types that its signature declares. Dataclasses need no package. Structs of
msgspec and models of pydantic are recognized if the package of their class has been imported.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Reader = Callable[[Any], Any]

_SIMPLE: Final = frozenset({str, int, float, bool, bytes, type(None)})


class BadValue(TypeError):
    """A value is of a type that cannot be stored, or does not match its annotation."""


def plain(value: Any) -> Any:
    """Return the value as one that msgpack and JSON can hold. Raise BadValue if there is none."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if kind is dict:
        return {_key(key): plain(each) for key, each in value.items()}
    if kind in (list, tuple, set, frozenset):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if _is_model(kind):
        return plain(value.model_dump(mode="python"))
    if _is_struct(kind):
        return plain(sys.modules["msgspec"].to_builtins(value))
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    bases: tuple[Any, ...] = (str, int, float, dict, list, tuple)
    for base in bases:
        if isinstance(value, base):
            return plain(base(value))  # A subclass, such as a named tuple.
    raise BadValue(f"a value of type {kind.__qualname__} cannot be stored; pass an id or plain data instead")


def _key(key: Any) -> Any:
    if type(key) in _SIMPLE:
        return key
    made = plain(key)
    if isinstance(made, (list, dict)):
        raise BadValue("the key of a dict must be text, a number or bytes")
    return made


def _is_model(kind: type) -> bool:
    return "pydantic" in sys.modules and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump")


def _is_struct(kind: type) -> bool:
    return "msgspec" in sys.modules and hasattr(kind, "__struct_fields__")


def reader_of(annotation: Any) -> Reader | None:
    """Return the function that converts a plain value to the type of an annotation; None if any value fits it.

    The function raises BadValue if the value does not fit.
    """
    if isinstance(annotation, (str, TypeVar)) or annotation in (Any, object):
        return None
    if annotation in _READERS:
        return _READERS[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return reader_of(args[0])
    if origin is Literal:
        return _one_of(args)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin in _COLLECTIONS or annotation in _COLLECTIONS:
        return _collection(_COLLECTIONS[origin or annotation], origin or annotation, args)
    if isinstance(annotation, type):
        return _class_reader(annotation)
    return None


def _class_reader(kind: type) -> Reader | None:
    if issubclass(kind, Enum):
        return _constructed(kind, kind)
    if _is_model(kind):
        return _constructed(kind, kind.model_validate)  # type: ignore[attr-defined]
    if _is_struct(kind):
        return _constructed(kind, lambda value: sys.modules["msgspec"].convert(value, kind))
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, PurePath):
        return _constructed(kind, kind)
    return None


def _exactly(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _mismatch(kind.__name__, value)
        return value

    return read


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise _mismatch("float", value)
    return float(value)


def _bytes(value: Any) -> bytes:
    if type(value) is str:  # A client that sends JSON has no bytes.
        return value.encode()
    if type(value) is not bytes:
        raise _mismatch("bytes", value)
    return value


def _constructed(kind: type, make: Callable[[Any], Any]) -> Reader:
    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        try:
            return make(value)
        except Exception as error:
            raise BadValue(f"must be a valid {kind.__name__}: {error}") from None

    return read


def _parsed(kind: type, parse: Callable[[Any], Any]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        try:
            return parse(value)
        except (TypeError, ValueError, ArithmeticError):
            raise _mismatch(kind.__name__, value) from None

    return read


def _one_of(values: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in values:
            raise BadValue(f"must be one of {', '.join(map(repr, values))}, not {value!r}")
        return value

    return read


def _union(kinds: tuple[Any, ...]) -> Reader | None:
    readers = [reader_of(kind) for kind in kinds]
    # Exact types first, so that a text stays a text in `datetime | str`.
    order = sorted(zip(kinds, readers), key=lambda each: each[0] not in _SIMPLE)
    if any(read is None for read in readers):
        return None

    def read(value: Any) -> Any:
        for _, read_one in order:
            assert read_one is not None
            try:
                return read_one(value)
            except BadValue:
                continue
        names = ", ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise BadValue(f"must be one of {names}, not {type(value).__name__}")

    return read


def _collection(make: Callable[[Any], Any], origin: Any, args: tuple[Any, ...]) -> Reader:
    if make is dict:
        return _dict_reader(*(reader_of(each) for each in args[:2] or (Any, Any)))
    if origin is tuple and args and args[-1] is not Ellipsis:
        return _tuple_reader([reader_of(each) for each in args])
    element = reader_of(args[0]) if args else None

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise _mismatch("list", value)
        return make(value if element is None else (_at(at, element, each) for at, each in enumerate(value)))

    return read


def _dict_reader(key: Reader | None, element: Reader | None) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch("dict", value)
        return {
            name if key is None else _at(name, key, name): each if element is None else _at(name, element, each)
            for name, each in value.items()
        }

    return read


def _tuple_reader(elements: list[Reader | None]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(elements):
            raise BadValue(f"must be {len(elements)} values")
        return tuple(
            each if element is None else _at(at, element, each)
            for at, (element, each) in enumerate(zip(elements, value))
        )

    return read


def _dataclass_reader(kind: Any) -> Reader:
    readers: dict[str, Reader | None] = {}

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, dict):
            raise _mismatch(kind.__name__, value)
        if not readers:  # Its hints may name classes that are defined later than the task.
            hints = get_type_hints(kind, include_extras=True)
            readers.update((field.name, reader_of(hints[field.name])) for field in dataclasses.fields(kind))
        try:
            return kind(**{name: _at(name, readers.get(name), each) for name, each in value.items()})
        except BadValue:
            raise
        except Exception as error:
            raise BadValue(f"must be a valid {kind.__name__}: {error}") from None

    return read


def _at(place: object, read: Reader | None, value: Any) -> Any:
    try:
        return value if read is None else read(value)
    except BadValue as error:
        raise BadValue(f"[{place!r}] {error}") from None


def _mismatch(wanted: str, value: Any) -> BadValue:
    return BadValue(f"must be {wanted}, not {type(value).__name__}")


_READERS: Final[dict[Any, Reader]] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _float,
    bytes: _bytes,
    type(None): _exactly(type(None)),
    None: _exactly(type(None)),
    datetime: _parsed(datetime, datetime.fromisoformat),
    date: _parsed(date, date.fromisoformat),
    time: _parsed(time, time.fromisoformat),
    timedelta: _parsed(timedelta, lambda seconds: timedelta(seconds=seconds)),
    UUID: _parsed(UUID, UUID),
    Decimal: _parsed(Decimal, Decimal),
}
_COLLECTIONS: Final[dict[Any, Callable[[Any], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    dict: dict,
    typing.get_origin(typing.Sequence): list,
    typing.get_origin(typing.Iterable): list,
    typing.get_origin(typing.Mapping): dict,
}
