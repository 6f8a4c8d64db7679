"""Filters of a query that this source applies itself, so that Spark need not read the other events.

The source accepts filters on the columns in PUSHED. It applies them exactly, so Spark does not apply them again.
Filters on positions, times and nodes limit the part of the logs that is read. The other columns are built after
filtering.

Filters are recognised by the names of their classes, because Spark 4.0 does not have these classes.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.spark.events.options import EventsOptions

_TEXTS: Final = ("node", "event", "tube")
PUSHED: Final = ("position", "time", *_TEXTS)

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
_SEARCH: Final[dict[str, Callable[[str, str], bool]]] = {
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

# Greater than any position, and than any time in µs.
END: Final = 1 << 62


@dataclass(frozen=True)
class Condition:
    """A condition on one column. Times are in µs since 1970."""

    column: str
    kind: str  # The name of a class of Spark's filters.
    value: Any
    negated: bool = False

    def matches(self, text: str) -> bool:
        """Return whether a value of a text column meets the condition."""
        return bool(self._holds(text)) != self.negated

    def _holds(self, text: str) -> bool:
        if self.kind == "In":
            return text in self.value
        return bool((_COMPARE.get(self.kind) or _SEARCH[self.kind])(text, self.value))

    def mask(self, numbers: Any) -> Any:
        """Return for each number of an array whether it meets the condition."""
        import numpy as np

        found = np.isin(numbers, self.value) if self.kind == "In" else _COMPARE[self.kind](numbers, self.value)
        return ~found if self.negated else found

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest number that may meet the condition."""
        if self.negated:
            return 0, END
        if self.kind == "In":
            return min(self.value), max(self.value)
        low = {"GreaterThan": self.value + 1, "LessThan": 0, "LessThanOrEqual": 0}.get(self.kind, self.value)
        high = {"LessThan": self.value - 1, "GreaterThan": END, "GreaterThanOrEqual": END}.get(self.kind, self.value)
        return low, high


@dataclass(frozen=True)
class EventFilters:
    """The conditions that every event of a query meets: those of the options, and those that Spark has pushed."""

    conditions: tuple[Condition, ...] = ()
    tube_pattern: str | None = None

    @classmethod
    def of_options(cls, options: EventsOptions) -> EventFilters:
        named = (("tube", options.tubes), ("event", options.events))
        return cls(tuple(Condition(column, "In", names) for column, names in named if names), options.tube_pattern)

    def push(self, filters: Iterable[Any]) -> tuple[EventFilters, list[Any]]:
        """Return these conditions with the filters that are accepted, and the filters that Spark must apply."""
        accepted, left = list(self.conditions), []
        for each in filters:
            condition = _condition_of(each)
            if condition is None:
                left.append(each)
            else:
                accepted.append(condition)
        return replace(self, conditions=tuple(accepted)), left

    def has_node(self, node: str) -> bool:
        """Return whether events of a node can match."""
        return all(each.matches(node) for each in self.conditions if each.column == "node")

    def bounds(self, column: str) -> tuple[int, int]:
        """Return the least and the greatest position or time that can match."""
        found = [each.bounds() for each in self.conditions if each.column == column]
        return max((low for low, _ in found), default=0), min((high for _, high in found), default=END)

    def columns(self) -> set[str]:
        """Return the columns that are needed to apply the conditions."""
        pattern = () if self.tube_pattern is None else ("tube",)
        return {*pattern, *(each.column for each in self.conditions)} - {"node"}

    def has_text(self, column: str, text: str) -> bool:
        """Return whether events with a value of the column `event` or `tube` can match."""
        if column == "tube" and self.tube_pattern is not None and not re.fullmatch(self.tube_pattern, text):
            return False
        return all(each.matches(text) for each in self.conditions if each.column == column)

    def numeric(self, column: str) -> list[Condition]:
        return [each for each in self.conditions if each.column == column]


def _condition_of(given: Any) -> Condition | None:
    """Return the condition of a filter of Spark, or None if this source cannot apply it exactly."""
    negated = type(given).__name__ == "Not"
    inner = given.child if negated else given
    kind = type(inner).__name__
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in PUSHED:
        return None
    column = path[0]
    if kind not in _COMPARE and kind != "In" and not (kind in _SEARCH and column in _TEXTS):
        return None
    read = str_of if column in _TEXTS else us_of if column == "time" else int_of
    if kind == "In":
        values = tuple(read(value) for value in inner.value)
        # SQL: `x NOT IN (…, NULL)` is never true, and `x IN (…, NULL)` is rare. Spark applies both.
        return None if None in values or not values else Condition(column, kind, values, negated)
    value = read(inner.value)
    return None if value is None else Condition(column, kind, value, negated)


def str_of(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def int_of(value: Any) -> int | None:
    return value if type(value) is int else None


def us_of(value: Any) -> int | None:
    """Return a time in µs since 1970, or None if it has no time zone: only Spark knows that of its session."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
