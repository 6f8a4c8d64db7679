"""Update operations on a row, in the form of `space:update`: `{{'=', 'name', 'new'}, {'+', 3, 1}}`."""

from __future__ import annotations

from typing import Any, Final

from penstock.dialects.xqueue.arguments import is_number
from penstock.dialects.xqueue.options import Options, XqueueError, as_list

# Tarantool's error numbers.
_ILLEGAL: Final = 1
_ARGUMENT: Final = 26
_UNKNOWN_OPERATION: Final = 28
_FIELD_ERROR: Final = 29
_NO_FIELD: Final = 37
_PRIMARY_KEY: Final = 94
_OVERFLOW: Final = 95

# The number of elements of each operation.
_LENGTHS: Final = {"=": 3, "!": 3, "#": 3, "+": 3, "-": 3, "&": 3, "|": 3, "^": 3, ":": 5}
_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1
_OPERATIONS_MAX: Final = 4_000  # Tarantool's limit.


def updated(row: list[Any], operations: object, options: Options, space: str) -> list[Any]:
    """Return a copy of a row with the operations applied. Raise an error if they change key, status or runat."""
    changed = list(row)
    given = as_list(operations, "attr.update")
    if len(given) > _OPERATIONS_MAX:
        raise XqueueError("too many operations for update", _ILLEGAL)
    for number, operation in enumerate(given, 1):
        if not isinstance(operation, (list, tuple)) or not operation:
            raise XqueueError("update operation must be an array {op,..}", _ILLEGAL)
        _apply(changed, list(operation), number, options)
    length = max(len(row), len(changed))
    before, after = _padded(row, length), _padded(changed, length)
    for at in options.key:
        if before[at] != after[at]:
            raise XqueueError(
                f"Attempt to modify a tuple field which is part of primary index in space '{space}'", _PRIMARY_KEY
            )
    for what, at in (("status", options.status), ("runat", options.runat)):
        if at >= 0 and before[at] != after[at]:
            raise XqueueError(f"Field {at + 1} UPDATE error: only the queue changes {what}", _FIELD_ERROR)
    return changed


def _padded(row: list[Any], length: int) -> list[Any]:
    return row + [None] * (length - len(row))


def _apply(row: list[Any], operation: list[Any], number: int, options: Options) -> None:
    sign = operation[0].decode("latin-1") if isinstance(operation[0], bytes) else operation[0]
    if not isinstance(sign, str) or sign not in _LENGTHS:
        raise XqueueError(f"Unknown UPDATE operation #{number}: wrong operation type", _UNKNOWN_OPERATION)
    if len(operation) != _LENGTHS[sign]:
        raise XqueueError(
            f"Unknown UPDATE operation #{number}: wrong number of arguments, expected {_LENGTHS[sign]}, "
            f"got {len(operation)}",
            _UNKNOWN_OPERATION,
        )
    at = _field(operation[1], row, sign, options)
    # The number counts from the start of the row, even if the operation counts from the end.
    shown = at + 1 if isinstance(operation[1], int) else f"'{operation[1]}'"
    argument = operation[2]
    if sign == "=":
        row[at : at + 1] = [argument]
    elif sign == "!":
        row.insert(at, argument)
    elif sign == "#":
        if isinstance(argument, bool) or not isinstance(argument, int) or argument < 1:
            raise XqueueError(f"Field {shown} UPDATE error: cannot delete 0 fields", _FIELD_ERROR)
        del row[at : at + argument]
    elif sign == ":":
        row[at] = _spliced(row[at], operation[2:], shown)
    elif sign in "+-":
        row[at] = _sum(row[at], argument, sign, shown)
    else:
        row[at] = _bits(row[at], argument, sign, shown)


def _field(given: object, row: list[Any], sign: str, options: Options) -> int:
    """Return the position of an operation's field. '=' and '!' can also use the position after the last field."""
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    if isinstance(given, str):
        for at, field in enumerate(options.format):
            if field.name == given and at < len(row):
                return at
        raise XqueueError(f"Field '{given}' was not found in the tuple", _NO_FIELD)
    if isinstance(given, bool) or not isinstance(given, int):
        raise XqueueError("field id must be a number or a name", _ILLEGAL)
    end = len(row) + 1 if sign in "=!" else len(row)
    at = given - 1 if given > 0 else len(row) + given + (1 if sign == "!" else 0)
    if given == 0 or at < 0 or at >= end:
        raise XqueueError(f"Field {given} was not found in the tuple", _NO_FIELD)
    return at


def _wrong(sign: str, shown: object, expected: str) -> XqueueError:
    return XqueueError(
        f"Argument type in operation '{sign}' on field {shown} does not match field type: expected {expected}",
        _ARGUMENT,
    )


def _sum(value: Any, argument: Any, sign: str, shown: object) -> Any:
    if not is_number(value) or not is_number(argument):
        raise _wrong(sign, shown, "a number")
    result = value + argument if sign == "+" else value - argument
    if isinstance(result, int) and not _INT_MIN <= result <= _INT_MAX:
        raise XqueueError(f"Integer overflow when performing '{sign}' operation on field {shown}", _OVERFLOW)
    return result


def _bits(value: Any, argument: Any, sign: str, shown: object) -> int:
    for each in (value, argument):
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= _INT_MAX:
            raise _wrong(sign, shown, "a positive integer")
    return int(value & argument if sign == "&" else value | argument if sign == "|" else value ^ argument)


def _spliced(value: Any, words: list[Any], shown: object) -> Any:
    """Return text with a part replaced, as the operation ':' does. The offset in `words` is counted from 1."""
    offset, cut, paste = words
    if not isinstance(value, (str, bytes)):
        raise _wrong(":", shown, "a string")
    if isinstance(paste, bytes) and isinstance(value, str):
        paste = paste.decode("utf-8", "replace")
    if type(paste) is not type(value):
        raise _wrong(":", shown, "a string")
    for each in (offset, cut):
        if isinstance(each, bool) or not isinstance(each, int):
            raise _wrong(":", shown, "an integer")
    start = offset - 1 if offset > 0 else len(value) + offset + 1
    if offset == 0 or start < 0:
        raise XqueueError(f"SPLICE error on field {shown}: offset is out of bound", 25)
    start = min(start, len(value))
    end = min(start + cut, len(value)) if cut >= 0 else max(start, len(value) + cut)
    return value[:start] + paste + value[end:]
