"""`--where`: a condition on jobs, like `body.user == 42 and deliveries > 3`.

It is written as in Python and reads a job's record: `body` and what is in it, `id`, `tube`, `state`, `key`, `name`,
`number`, `priority`, `deliveries`, `nacks`, `buries`, `reason`, `age` in seconds. Nothing is called and nothing else
can be named. What is not there is null; values that cannot be compared make a comparison false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from penstock.cli.exits import USAGE, fail
from penstock.cli.output import Record

# Nobody types a longer one, or one with more levels, which would exhaust the stack.
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
    *("age", "as", "body", "buries", "deliveries", "expires", "id", "key", "nacks", "name", "number", "priority"),
    *("reason", "returns", "state", "tube"),
)


class _NotUnderstood(Exception):
    """A condition that is none. The message says what was met."""


def condition(text: str | None) -> Condition:
    """What a condition says of a record; without one, everything is wanted."""
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
            f"--where was not understood: {getattr(error, 'msg', error)}; write like body.user == 42 and nacks > 3",
            USAGE,
        )
    except _NotUnderstood as error:
        fail(f"--where cannot have {error}; write like body.user == 42 and nacks > 3", USAGE)
    return lambda record: bool(value(record))


def _depth(node: ast.AST) -> int:
    """How many levels there are; without a call for each."""
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
    """A value that is no condition: something of the job, or a constant."""
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
    """A value that is written out: text, a number, which may be negative, or true, false and null."""
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
        raise _NotUnderstood(f"{name!r}, since a job has {', '.join(FIELDS)}")
    return lambda record: record.get(name)


def _within(container: _Value, key: Any) -> _Value:
    """What is in something under a name, or at an index."""

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
