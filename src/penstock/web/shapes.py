"""Shapes: what a value of a request or a response looks like.

A shape checks a JSON value (`check`), parses a text of a query (`read`), and describes itself in the dialect of JSON
Schema that OpenAPI 3.1 uses (`schema`). One declaration is therefore both the validation and the documentation.

The checks raise ValueError with a sentence about the value. `Record` adds the name of the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.limits import DURATION_MS_MAX, NEVER
from penstock.web.json_text import JsonText

Schema = dict[str, Any]

INTEGER_MAX: Final = 2**63 - 1

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class Shape:
    """Any JSON value."""

    kind = "any"

    def __init__(self, about: str = "", example: Any = ...) -> None:
        self.about = about
        self.example = example

    def check(self, value: Any) -> Any:
        """Return the value, converted if necessary. Raise ValueError if it does not have this shape."""
        return value

    def read(self, text: str) -> Any:
        """Return the value of a parameter of a query."""
        return self.check(text)

    def schema(self) -> Schema:
        """Return the schema of this shape, with its description and example."""
        described = self._schema()
        if self.about:
            described["description"] = self.about
        if self.example is not ...:
            described["examples"] = [self.example]
        return described

    def _schema(self) -> Schema:
        return {}

    def sample(self) -> Any:
        """Return an example of a value."""
        return None if self.example is ... else self.example


class Text(Shape):
    """A string."""

    def __init__(
        self,
        about: str = "",
        *,
        example: Any = ...,
        length: tuple[int, int] = (0, 65_535),
        choices: tuple[str, ...] = (),
        pattern: str = "",
        form: str = "",
    ) -> None:
        super().__init__(about, example)
        self.length = length
        self.choices = choices
        self.pattern = pattern
        self.form = form
        self._regex = re.compile(pattern) if pattern else None

    def check(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        if not self.length[0] <= len(value) <= self.length[1]:
            raise ValueError(f"must have {self.length[0]} to {self.length[1]:,} characters")
        if self._regex is not None and not self._regex.search(value):
            raise ValueError(f"must match {self.pattern}")
        return value

    def _schema(self) -> Schema:
        described: Schema = {"type": "string"}
        if self.choices:
            described["enum"] = list(self.choices)
            return described
        if self.length[0]:
            described["minLength"] = self.length[0]
        if self.length[1] < 65_535:
            described["maxLength"] = self.length[1]
        if self.pattern:
            described["pattern"] = self.pattern
        if self.form:
            described["format"] = self.form
        return described

    def sample(self) -> Any:
        if self.example is not ...:
            return self.example
        return self.choices[0] if self.choices else "text"


class Whole(Shape):
    """An integer."""

    def __init__(self, about: str = "", *, least: int = 0, most: int = INTEGER_MAX, example: Any = ...) -> None:
        super().__init__(about, example)
        self.least = least
        self.most = most

    def check(self, value: Any) -> Any:
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # JSON Schema counts 1.0 as an integer.
        if type(value) is not int:
            raise ValueError("must be an integer")
        if not self.least <= value <= self.most:
            raise ValueError(f"must be {self.least:,} to {self.most:,}")
        return value

    def read(self, text: str) -> Any:
        if not _WHOLE.fullmatch(text):
            raise ValueError("must be an integer")
        return self.check(int(text))

    def _schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def sample(self) -> Any:
        return max(self.least, 1) if self.example is ... else self.example


class Number(Shape):
    """A number."""

    def __init__(self, about: str = "", *, least: float = 0, most: float = 1e12, example: Any = ...) -> None:
        super().__init__(about, example)
        self.least = least
        self.most = most

    def check(self, value: Any) -> Any:
        if type(value) not in (int, float):
            raise ValueError("must be a number")
        if not self.least <= value <= self.most:
            raise ValueError(f"must be {self.least:g} to {self.most:g}")
        return value

    def _schema(self) -> Schema:
        return {"type": "number", "minimum": self.least, "maximum": self.most}

    def sample(self) -> Any:
        return 1.5 if self.example is ... else self.example


class Yes(Shape):
    """A boolean."""

    def check(self, value: Any) -> Any:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    def read(self, text: str) -> Any:
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"

    def _schema(self) -> Schema:
        return {"type": "boolean"}

    def sample(self) -> Any:
        return True if self.example is ... else self.example


_DURATION: Final = r"^([0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h|d|w)?|forever)$"


class Time(Shape):
    """A duration: a number of seconds, or text such as `250ms`, `5m` or `forever`. It is converted to milliseconds."""

    def __init__(self, about: str = "", *, example: Any = "5m", most_s: float | None = None) -> None:
        super().__init__(about, example)
        self.most_s = most_s  # None: no limit, and `forever` is allowed.
        self._number_max = DURATION_MS_MAX // 1000 if most_s is None else most_s
        self._regex = re.compile(_DURATION, re.ASCII)

    def check(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError("must be seconds, or a duration such as 5m")
        if isinstance(value, str):
            if not self._regex.fullmatch(value) or (ms := read_duration(value.encode())) == NO_DURATION:
                raise ValueError("must be a duration such as 250ms, 30s, 5m or 2h")
        elif not 0 <= value <= self._number_max:
            raise ValueError(f"must be 0 to {self._number_max:,.0f} seconds")
        else:
            ms = round(value * 1000)
        if self.most_s is not None and (ms == NEVER or ms > self.most_s * 1000):
            raise ValueError(f"must be at most {self.most_s:g} seconds")
        return ms

    def _schema(self) -> Schema:
        return {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": self._number_max},
                {"type": "string", "pattern": _DURATION},
            ]
        }


class Items(Shape):
    """A list."""

    def __init__(self, of: Shape, about: str = "", *, least: int = 0, most: int = 1_000, example: Any = ...) -> None:
        super().__init__(about, example)
        self.of = of
        self.least = least
        self.most = most

    def check(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("must be a list")
        if not self.least <= len(value) <= self.most:
            raise ValueError(f"must have {self.least} to {self.most:,} items")
        return [_at(f"[{at}]", self.of, each) for at, each in enumerate(value)]

    def read(self, text: str) -> Any:
        found = text.split(",")
        if len(found) > self.most:
            raise ValueError(f"must have at most {self.most} items")
        return [self.of.read(each) for each in found]

    def _schema(self) -> Schema:
        described: Schema = {"type": "array", "items": self.of.schema(), "maxItems": self.most}
        if self.least:
            described["minItems"] = self.least
        return described

    def sample(self) -> Any:
        return [self.of.sample()] if self.example is ... else self.example


class Map(Shape):
    """An object with any names."""

    def __init__(self, of: Shape, about: str = "", *, most: int = 1_000_000, example: Any = ...) -> None:
        super().__init__(about, example)
        self.of = of
        self.most = most

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        if len(value) > self.most:
            raise ValueError(f"must have at most {self.most:,} members")
        return {name: _at(f".{name[:50]}", self.of, each) for name, each in value.items()}

    def _schema(self) -> Schema:
        described: Schema = {"type": "object", "additionalProperties": self.of.schema()}
        if self.most < 1_000_000:
            described["maxProperties"] = self.most
        return described

    def sample(self) -> Any:
        return {} if self.example is ... else self.example


class Null(Shape):
    """A value of another shape, or null."""

    def __init__(self, of: Shape, about: str = "", *, example: Any = ...) -> None:
        super().__init__(about or of.about, of.example if example is ... else example)
        self.of = of

    def check(self, value: Any) -> Any:
        return None if value is None else self.of.check(value)

    def read(self, text: str) -> Any:
        return self.of.read(text)

    def _schema(self) -> Schema:
        return {"anyOf": [self.of._schema(), {"type": "null"}]}

    def sample(self) -> Any:
        return self.of.sample() if self.example is ... else self.example


class Body(Shape):
    """The body of a job. In a request it is JsonText."""

    def check(self, value: Any) -> Any:
        assert isinstance(value, JsonText)
        return value


class Record(Shape):
    """An object with known fields. Other fields are refused in a request, and can be added to a response later."""

    def __init__(
        self,
        required: Mapping[str, Shape],
        optional: Mapping[str, Shape] | None = None,
        *,
        about: str = "",
        example: Any = ...,
        open: bool = False,
        title: str = "",
    ) -> None:
        """Create the shape. `open` allows other fields. A shape with a `title` is a component of the document."""
        super().__init__(about, example)
        self.required = dict(required)
        self.optional = dict(optional or {})
        self.open = open
        self.title = title
        self._all = {**self.required, **self.optional}

    def with_fields(self, optional: Mapping[str, Shape]) -> Record:
        return Record(self.required, {**self.optional, **optional}, about=self.about, open=self.open)

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        fields = self._all
        found = {}
        for name, each in value.items():
            shape = fields.get(name)
            if shape is None:
                raise ValueError(f"has no field {name[:50]!r}; there are {', '.join(fields) or 'none'}")
            found[name] = _at(f".{name}", shape, each)
        for name in self.required:
            if name not in found:
                raise ValueError(f"needs the field {name!r}")
        return found

    def _schema(self) -> Schema:
        described: Schema = {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self._all.items()},
        }
        if self.required:
            described["required"] = list(self.required)
        if not self.open:
            described["additionalProperties"] = False
        return described

    def sample(self) -> Any:
        if self.example is not ...:
            return self.example
        shown = {**self.required, **{name: each for name, each in self.optional.items() if each.example is not ...}}
        return {name: shape.sample() for name, shape in shown.items()}


def _at(where: str, shape: Shape, value: Any) -> Any:
    """Check a part of a value. An error names the place of the part."""
    try:
        return shape.check(value)
    except ValueError as error:
        sentence = str(error)
        separator = "" if sentence.startswith((".", "[")) else " "
        raise ValueError(f"{where}{separator}{sentence}") from None
