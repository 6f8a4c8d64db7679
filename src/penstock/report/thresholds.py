"""Checks for monitoring: metrics, thresholds on them, and the resulting level. A threshold is text like `oldest>5m`.

`penstock check` and the HTTP API share these rules.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.limits import NEVER
from penstock.report.units import duration_text

OK: Final = 0
WARNING: Final = 1
CRITICAL: Final = 2
UNKNOWN: Final = 3
LEVELS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    **{">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.ge}
}
_THRESHOLD: Final = re.compile(r"([a-z_]+)(>=|<=|>|<|=)(.+)")

# Returns the number of bytes in a text like 64kb, or None.
ReadSize = Callable[[str], int | None]


class BadThreshold(ValueError):
    """A threshold that is malformed or about an unknown metric."""


@dataclass(frozen=True)
class Metric:
    """A measured number, or None if there is nothing to measure."""

    name: str
    value: float | None
    unit: str = ""  # "s" for seconds, "B" for bytes, "" for a count.

    def figure(self) -> str:
        """Return the value of the metric as text that programs can parse."""
        return f"{self.value:.6f}" if self.unit == "s" else f"{self.value:.0f}"

    def shown(self) -> str:
        """Return the value of the metric as text for people."""
        if self.value is None:
            return "-"
        if self.unit == "s":
            return duration_text(round(self.value * 1000))
        return f"{self.value:,.0f}{' bytes' if self.unit == 'B' else ''}"

    def read(self, text: str, read_size: ReadSize) -> float:
        """Parse the value of a threshold on this metric. Raise BadThreshold if it is malformed."""
        if self.unit == "s":
            ms = read_duration(text.encode())
            if ms == NO_DURATION:
                raise BadThreshold(f"{text!r} is not a duration; write 30 (seconds), 500ms, 5m, 2h, 7d or forever")
            return math.inf if ms == NEVER else ms / 1000
        if self.unit == "B":
            size = read_size(text)
            if size is None:
                raise BadThreshold(f"{text!r} is not a size; write 1000 (bytes), 64kb or 10gb")
            return size
        if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", text):
            raise BadThreshold(f"{text!r} is not a number")
        return float(text)


@dataclass(frozen=True)
class Threshold:
    """A limit of a metric, and the level to report if the comparison of the metric with the limit is true."""

    level: int
    metric: Metric
    comparison: str
    limit: float
    text: str

    def is_passed(self) -> bool:
        """Return whether the comparison is true. It is false if there is nothing to measure."""
        return self.metric.value is not None and _COMPARISONS[self.comparison](self.metric.value, self.limit)


def parse_thresholds(
    metrics: Sequence[Metric], warn: Iterable[str], crit: Iterable[str], read_size: ReadSize
) -> list[Threshold]:
    """Parse the thresholds on these metrics. Raise BadThreshold if one is malformed or about an unknown metric."""
    known = {metric.name: metric for metric in metrics}
    asked = []
    for level, texts in ((CRITICAL, crit), (WARNING, warn)):
        for text in texts:
            found = _THRESHOLD.fullmatch(text)
            if found is None:
                raise BadThreshold(f"{text!r} is not a threshold; write a metric, > or <, and a value: 'ready>1000'")
            if found[1] not in known:
                raise BadThreshold(f"this check has no metric {found[1]!r}; its metrics are {', '.join(known)}")
            metric = known[found[1]]
            asked.append(Threshold(level, metric, found[2], metric.read(found[3], read_size), text))
    return asked


def judge(metrics: Sequence[Metric], asked: Sequence[Threshold], problem: str = "") -> tuple[int, str]:
    """Return the level and its reason. The level is CRITICAL if `problem` is not empty."""
    if problem:
        return CRITICAL, problem
    passed = [threshold for threshold in asked if threshold.is_passed()]
    level = max((threshold.level for threshold in passed), default=OK)
    if passed:
        return level, "; ".join(f"{each.metric.name} is {each.metric.shown()} ({each.text})" for each in passed)
    return level, ", ".join(f"{each.name} {each.shown()}" for each in metrics)
