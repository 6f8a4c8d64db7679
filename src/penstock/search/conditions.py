"""Conditions on jobs, like `body.user == 42 and deliveries > 3`: the parser, and the test of one job.

docs/reference/search.md describes the language and its grammar. A condition is parsed to a tree of nodes. A node
returns its value for a job, whose fields it reads through `Fields`. Nothing can be called, and only the fields of the
job can be read. The parser raises BadCondition and nothing else, for any text. Tests raise no error: a missing value is
null, and a comparison of values that cannot be compared is false.

Python's own parser (`ast`) was rejected: it accepts far more than the language has, its limits of depth depend on the
version of Python, and its trees cannot be compiled.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.errors import BadCondition

# Limits that no typed condition reaches. The depth limits the stack of the parser and of a test.
CHARACTERS_MAX: Final = 4_096
DEPTH_MAX: Final = 50

# The fields of a job. A field is read by its index in this list.
FIELDS: Final = (
    *("age", "as", "body", "buries", "created", "deliveries", "expires", "headers", "holder", "id", "key", "nacks"),
    *("name", "number", "priority", "reason", "returns", "state", "tube"),
)
AGE: Final = 0
AS: Final = 1
BODY: Final = 2
BURIES: Final = 3
CREATED: Final = 4
DELIVERIES: Final = 5
EXPIRES: Final = 6
HEADERS: Final = 7
HOLDER: Final = 8
ID: Final = 9
KEY: Final = 10
NACKS: Final = 11
NAME: Final = 12
NUMBER: Final = 13
PRIORITY: Final = 14
REASON: Final = 15
RETURNS: Final = 16
STATE: Final = 17
TUBE: Final = 18

# Comparisons.
_EQUAL: Final = 0
_NOT_EQUAL: Final = 1
_LESS: Final = 2
_LESS_EQUAL: Final = 3
_GREATER: Final = 4
_GREATER_EQUAL: Final = 5
_IN: Final = 6
_NOT_IN: Final = 7
_COMPARISONS: Final = {
    **{"==": _EQUAL, "!=": _NOT_EQUAL, "<": _LESS, "<=": _LESS_EQUAL, ">": _GREATER, ">=": _GREATER_EQUAL},
    **{"in": _IN, "not in": _NOT_IN},
}
_CONSTANTS: Final[dict[str, object]] = {
    **{"true": True, "false": False, "null": None},
    **{"True": True, "False": False, "None": None},
}
_WORDS: Final = frozenset(["and", "or", "not", "in"])

_TOKEN: Final = re.compile(
    r"""(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<mark>==|!=|<=|>=|[<>()\[\],.-])"""
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}

# The type of a token: a name is also a word such as `and`. The end has the text "".
_NUMBER: Final = 0
_NAME: Final = 1
_TEXT: Final = 2
_MARK: Final = 3
_END: Final = 4
_TYPES: Final = {"number": _NUMBER, "name": _NAME, "text": _TEXT, "mark": _MARK}


@mypyc_attr(allow_interpreted_subclasses=True)
class Fields:
    """The fields of the job that is tested."""

    def get(self, field: i64) -> object:
        """Return a field by its index in FIELDS: text, a number, null, or for the body and the headers any value."""
        raise NotImplementedError


class Node:
    """A part of a condition."""

    is_test: bool  # The value is true or false, because the node is a comparison or combines some.

    def __init__(self) -> None:
        self.is_test = False

    def value(self, job: Fields) -> object:
        """Return the value of this part for a job."""
        raise NotImplementedError


class _Constant(Node):
    def __init__(self, constant: object) -> None:
        super().__init__()
        self.constant = constant

    def value(self, job: Fields) -> object:
        return self.constant


class _Field(Node):
    def __init__(self, field: i64) -> None:
        super().__init__()
        self.field: i64 = field

    def value(self, job: Fields) -> object:
        return job.get(self.field)


class _Path(Node):
    """A part of a field: the value of a map at a key, or of a list at an index, and so on for each key."""

    def __init__(self, field: i64, keys: list[object]) -> None:
        super().__init__()
        self.field: i64 = field
        self.keys = keys

    def value(self, job: Fields) -> object:
        value = job.get(self.field)
        for key in self.keys:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
                value = value[key]
            else:
                return None
        return value


class _List(Node):
    def __init__(self, items: list[Node]) -> None:
        super().__init__()
        self.items = items

    def value(self, job: Fields) -> object:
        return [item.value(job) for item in self.items]


class _Compared(Node):
    """One or more comparisons in a row, such as `1 < age <= 5`."""

    def __init__(self, values: list[Node], operators: list[int]) -> None:
        super().__init__()
        self.is_test = True
        self.values = values
        self.operators = operators

    def value(self, job: Fields) -> object:
        left = self.values[0].value(job)
        for at in range(len(self.operators)):
            right = self.values[at + 1].value(job)
            if not _compare(left, self.operators[at], right):
                return False
            left = right
        return True


class _Not(Node):
    def __init__(self, inner: Node) -> None:
        super().__init__()
        self.is_test = True
        self.inner = inner

    def value(self, job: Fields) -> object:
        return not self.inner.value(job)


class _Junction(Node):
    """Parts that are combined with `and` or with `or`."""

    def __init__(self, parts: list[Node], ends_at: bool) -> None:
        super().__init__()
        self.is_test = True
        self.parts = parts
        self.ends_at = ends_at  # The truth of a part that decides the whole: false for `and`, true for `or`.

    def value(self, job: Fields) -> object:
        for part in self.parts:
            if bool(part.value(job)) == self.ends_at:
                return self.ends_at
        return not self.ends_at


def _compare(left: object, operator: int, right: object) -> bool:
    """Return the result of a comparison, or False if these values cannot be compared."""
    if operator == _EQUAL:
        return left == right
    if operator == _NOT_EQUAL:
        return left != right
    if operator in (_IN, _NOT_IN):
        if isinstance(right, str):
            # Numbers are not parts of text.
            return isinstance(left, str) and (left in right) == (operator == _IN)
        if isinstance(right, list):
            return (left in right) == (operator == _IN)
        if isinstance(right, dict):
            return isinstance(left, (str, int, float)) and (left in right) == (operator == _IN)
        return False
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if operator == _LESS:
            return left < right
        if operator == _LESS_EQUAL:
            return left <= right
        return left > right if operator == _GREATER else left >= right
    if isinstance(left, str) and isinstance(right, str):
        if operator == _LESS:
            return left < right
        if operator == _LESS_EQUAL:
            return left <= right
        return left > right if operator == _GREATER else left >= right
    return False


class Condition:
    """A condition that was parsed."""

    text: str
    cost: i64  # The number of its parts.
    root: Node

    def __init__(self, text: str, cost: i64, root: Node) -> None:
        self.text = text
        self.cost = cost
        self.root = root

    def matches(self, job: Fields) -> bool:
        """Return whether a job meets the condition."""
        return bool(self.root.value(job))


def parse_condition(text: str) -> Condition:
    """Return the condition that a text describes. Raise BadCondition if it is not valid."""
    if len(text) > CHARACTERS_MAX:
        raise BadCondition(f"the condition has {len(text)} characters; at most {CHARACTERS_MAX} are allowed")
    parser = _Parser(text)
    root = parser.condition(0)
    if parser.type != _END:
        raise parser.unexpected("the end of the condition, `and` or `or`")
    return Condition(text, parser.parts, root)


class _Parser:
    """Reads a text token by token. `token` is the next one, which starts at `at`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0  # Where the next token ends.
        self.at = 0
        self.token = ""
        self.type: int = _END
        self.parts: i64 = 0
        self._next()

    def condition(self, depth: int) -> Node:
        """Read parts that are combined with `or`."""
        parts = [self._conjunction(depth)]
        while self._skips("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else _Junction(parts, True)

    def _conjunction(self, depth: int) -> Node:
        parts = [self._negation(depth)]
        while self._skips("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else _Junction(parts, False)

    def _negation(self, depth: int) -> Node:
        self._check_depth(depth)
        if self._skips("not"):
            return _Not(self._negation(depth + 1))
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        values = [self._value(depth)]
        operators: list[int] = []
        operator = self._operator()
        while operator >= 0:
            operators.append(operator)
            values.append(self._value(depth))
            operator = self._operator()
        if not operators:
            return values[0]
        for value in values:
            if value.is_test:
                raise BadCondition("a comparison cannot be compared with a value; combine them with `and` or `or`")
        return _Compared(values, operators)

    def _operator(self) -> int:
        """Read a comparison. Return -1 if there is none."""
        name = self.token if self.type != _TEXT else ""
        if name == "not":
            self._next()
            if self.token != "in":
                raise self.unexpected("`in`")
            name = "not in"
        operator = _COMPARISONS.get(name, -1)
        if operator >= 0:
            self._next()
        return operator

    def _value(self, depth: int) -> Node:
        self._check_depth(depth)
        self.parts += 1
        if self.type == _TEXT or self.type == _NUMBER or (self.type == _MARK and self.token == "-"):
            return _Constant(self._literal())
        if self._skips("["):
            return _List(self._items([], "]", depth))
        if self._skips("("):
            return self._in_parentheses(depth)
        if self.type != _NAME or self.token in _WORDS:
            raise self.unexpected("a field, text, a number or a list")
        name = self.token
        at = self.at
        self._next()
        if name in _CONSTANTS:
            return _Constant(_CONSTANTS[name])
        if name not in FIELDS:
            raise BadCondition(f"{name[:60]!r} at character {at + 1}: the fields of a job are {', '.join(FIELDS)}")
        return self._path(FIELDS.index(name))

    def _path(self, field: int) -> Node:
        """Read the names and indexes behind a field."""
        keys: list[object] = []
        while True:
            if self._skips("."):
                if self.type != _NAME:
                    raise self.unexpected("a name")
                keys.append(self.token)
                self._next()
            elif self._skips("["):
                keys.append(self._literal())
                self._expect("]")
            else:
                return _Path(field, keys) if keys else _Field(field)
            self.parts += 1

    def _in_parentheses(self, depth: int) -> Node:
        """Read a condition, or a list that is written with parentheses."""
        if self._skips(")"):
            return _List([])
        inner = self.condition(depth + 1)
        if self._skips(","):
            return _List(self._items([inner], ")", depth))
        self._expect(")")
        return inner

    def _items(self, items: list[Node], end: str, depth: int) -> list[Node]:
        """Read the values of a list up to its end."""
        while not self._skips(end):
            items.append(self._value(depth + 1))
            if not self._skips(","):
                self._expect(end)
                break
        for item in items:
            if item.is_test:
                raise BadCondition("a list has values, not comparisons")
        return items

    def _literal(self) -> object:
        """Read text, or a number with or without a minus sign."""
        negative = self._skips("-")
        token = self.token
        if self.type == _TEXT and not negative:
            self._next()
            return _unescaped(token[1:-1])
        if self.type != _NUMBER:
            raise self.unexpected("a number" if negative else "text or a number")
        self._next()
        if token.isdigit():
            return -int(token) if negative else int(token)
        return -float(token) if negative else float(token)

    def _skips(self, token: str) -> bool:
        """Skip the next token if it is this one. Return whether it was."""
        if self.type == _TEXT or self.token != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        if not self._skips(token):
            raise self.unexpected(f"`{token}`")

    def _next(self) -> None:
        space = _SPACE.match(self._text, self._end)
        assert space is not None
        self.at = space.end()
        if self.at == len(self._text):
            self._end = self.at
            self.token = ""
            self.type = _END
            return
        found = _TOKEN.match(self._text, self.at)
        if found is None or found.lastgroup is None:
            rest = self._text[self.at : self.at + 20]
            what = "text that does not end" if rest[0] in "\"'" else f"{rest[0]!r}"
            if rest[0] == "=":
                raise BadCondition(f"'=' at character {self.at + 1}; compare with ==, and write text in quotes")
            raise BadCondition(f"{what} at character {self.at + 1}; write for example body.user == 42 and nacks > 3")
        self._end = found.end()
        self.token = found.group()
        self.type = _TYPES[found.lastgroup]

    def _check_depth(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise BadCondition(f"the condition is nested more than {DEPTH_MAX} deep")

    def unexpected(self, wanted: str) -> BadCondition:
        """Return the error for a token that is not allowed here."""
        there = "the condition ends" if self.type == _END else f"{self.token[:60]!r} at character {self.at + 1}"
        return BadCondition(f"{there}, where {wanted} is expected; write for example body.user == 42 and nacks > 3")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        code = found.group(1)
        parts.append(text[at : found.start()])
        if len(code) > 1:
            parts.append(chr(int(code[1:], 16)))
        elif code in _ESCAPED:
            parts.append(_ESCAPED[code])
        else:
            raise BadCondition(f"\\{code} in text; the escapes are \\n \\t \\r \\\\ \\\" \\' \\/ \\xNN \\uNNNN")
        at = found.end()
    parts.append(text[at:])
    return "".join(parts)
