"""`--where`: a condition on jobs, like `body.user == 42 and deliveries > 3`.

The syntax is a subset of Python's. A condition reads a job's record: `body` and its parts, `id`, `tube`, `state`,
`key`, `name`, `number`, `priority`, `deliveries`, `nacks`, `buries`, `reason`, `age` in seconds. It cannot call
anything or use other names. A missing value is null. A comparison of values that cannot be compared is false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from penstock.cli.errors import USAGE, fail
from penstock.cli.output import Record

# Bounds that no typed condition reaches. More levels would exhaust the stack.
CHARACTERS_MAX: Final = 4_096
DEPTH_MAX: Final = 50

Condition = Callable[[Record], bool]
_Value = Callable[[Record], Any]

_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
FIELDS: Final = (
    *("age", "as", "body", "buries", "deliveries", "expires", "headers", "id", "key", "nacks", "name", "number"),
    *("priority", "reason", "returns", "state", "tube"),
)


class _NotUnderstood(Exception):
    """The condition contains an unsupported construct, which the message names."""


def condition(text: str | None) -> Condition:
    """Compile a condition into a function that tests a record. Without a condition, every record matches."""
    if text is None:
        return lambda record: True
    try:
        if len(text) > CHARACTERS_MAX:
            raise _NotUnderstood(f"more than {CHARACTERS_MAX} characters")
        parsed = ast.parse(text.strip(), mode="eval").body
        if _depth(parsed) > DEPTH_MAX:
            raise _NotUnderstood(f"more than {DEPTH_MAX} levels")
        value = _value(parsed)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        fail(
            f"--where is invalid: {getattr(error, 'msg', error)}; write for example body.user == 42 and nacks > 3",
            USAGE,
        )
    except _NotUnderstood as error:
        fail(f"--where does not allow {error}; write for example body.user == 42 and nacks > 3", USAGE)
    return lambda record: bool(value(record))


def _depth(node: ast.AST) -> int:
    """Return how deeply a condition is nested. The function is not recursive, because the depth can be large."""
    level, depth = [node], 0
    while level:
        level = [child for each in level for child in ast.iter_child_nodes(each)]
        depth += 1
    return depth


def _value(node: ast.expr) -> _Value:
    if isinstance(node, ast.BoolOp):
        parts = [_value(each) for each in node.values]
        both = all if isinstance(node.op, ast.And) else any
        return lambda record: both(part(record) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _value(node.operand)
        return lambda record: not inner(record)
    if isinstance(node, ast.Compare):
        return _compared(node)
    return _plain(node)


def _plain(node: ast.expr) -> _Value:
    """Compile a value: a field of the job, a constant, or a list of values."""
    if isinstance(node, (ast.Constant, ast.UnaryOp)):
        constant = _constant(node)
        return lambda record: constant
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_plain(each) for each in node.elts]
        return lambda record: [item(record) for item in items]
    if isinstance(node, ast.Name):
        return _named(node.id)
    if isinstance(node, ast.Attribute):
        return _within(_plain(node.value), node.attr)
    if isinstance(node, ast.Subscript):
        return _within(_plain(node.value), _constant(node.slice))
    raise _NotUnderstood(f"{ast.unparse(node)!r}")


def _constant(node: ast.expr) -> Any:
    """Return the value of a literal: text, a number with or without a minus sign, or None."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(inner, ast.Constant):
        if isinstance(inner.value, (int, float)):
            return -inner.value if negative else inner.value
        if not negative and (inner.value is None or isinstance(inner.value, str)):
            return inner.value
    raise _NotUnderstood(f"{ast.unparse(node)!r}")


def _named(name: str) -> _Value:
    if name in _CONSTANTS:
        constant = _CONSTANTS[name]
        return lambda record: constant
    if name not in FIELDS:
        raise _NotUnderstood(f"{name!r}; the fields of a job are {', '.join(FIELDS)}")
    return lambda record: record.get(name)


def _within(container: _Value, key: Any) -> _Value:
    """Compile the access to a key of a dict or an index of a list."""

    def find(record: Record) -> Any:
        value = container(record)
        if isinstance(value, dict):
            return value.get(key)
        if isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
        return None

    return find


def _compared(node: ast.Compare) -> _Value:
    values = [_plain(each) for each in [node.left, *node.comparators]]
    if any(type(each) not in _COMPARISONS for each in node.ops):
        raise _NotUnderstood("`is`; write == null")
    comparisons = [_COMPARISONS[type(each)] for each in node.ops]

    def compare(record: Record) -> bool:
        found = [value(record) for value in values]
        try:
            return all(does(found[at], found[at + 1]) for at, does in enumerate(comparisons))
        except TypeError:
            return False

    return compare
