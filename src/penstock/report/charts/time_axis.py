"""The horizontal axis of a chart over time: steps of equal length, and labels at round times in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.report.charts.svg import escape, number, tag

_DAY_S: Final = 86_400
_TICKS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY_S, 2 * _DAY_S, 7 * _DAY_S, 14 * _DAY_S, 30 * _DAY_S, 90 * _DAY_S, 365 * _DAY_S),
)
# Intervals between labels. A panel is 210 pixels wide on a phone, and next to two others. Labels with seconds are long.
_INTERVALS_MAX: Final = 4.5
_INTERVALS_OF_SECONDS_MAX: Final = 2.5
# Steps of a chart.
STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1_800),
    *(3_600, 7_200, 10_800, 21_600, 43_200),
    *(_DAY_S, 2 * _DAY_S, 7 * _DAY_S, 28 * _DAY_S, 364 * _DAY_S),
)


@dataclass(frozen=True)
class TimeAxis:
    """`count` steps of `step_s` seconds. The first one starts at `start_s` (Unix time)."""

    start_s: int
    step_s: int
    count: int

    @staticmethod
    def between(first: datetime, last: datetime, grain_s: int, steps_max: int) -> TimeAxis:
        """Return the axis with the shortest steps, at least `grain_s`, of which at most `steps_max` cover the times."""
        begin, end = int(first.timestamp()), int(last.timestamp())
        for step in STEPS_S:
            count = end // step - begin // step + 1
            if step >= grain_s and (count <= steps_max or step == STEPS_S[-1]):
                return TimeAxis(begin // step * step, step, count)
        raise AssertionError("the last step always fits")

    @property
    def end_s(self) -> int:
        return self.start_s + self.step_s * self.count

    def step_of(self, moment_s: int) -> int:
        """Return the number of the step that contains a time."""
        return (moment_s - self.start_s) // self.step_s

    def moment(self, step: int) -> datetime:
        """Return the time at which a step starts."""
        return datetime.fromtimestamp(self.start_s + step * self.step_s, UTC)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the labelled places, as shares of the width, with their labels."""
        length = self.end_s - self.start_s
        every = next((tick for tick in _TICKS_S if length / tick <= _intervals_max(tick)), _TICKS_S[-1])
        first = -(-self.start_s // every) * every
        found = range(first, self.end_s + 1, every)
        return [((tick - self.start_s) / length, _label(tick, every)) for tick in found]

    def labels(self, top: float) -> str:
        """Return the labels below a plot that ends at `top`, and a short line for each."""
        parts = []
        for place, label in self.ticks():
            # Labels at the ends would be cut off if they were centered.
            anchor = "start" if place < 0.04 else "end" if place > 0.96 else None
            at = f"{number(100 * place)}%"
            parts.append(tag("rect", x=at) + tag("text", escape(label), x=at, text_anchor=anchor))
        return tag("g", *parts, class_="axis", transform=f"translate(0 {number(top)})")


def _intervals_max(every_s: int) -> float:
    return _INTERVALS_OF_SECONDS_MAX if every_s < 60 else _INTERVALS_MAX


def _label(tick_s: int, every_s: int) -> str:
    moment = datetime.fromtimestamp(tick_s, UTC)
    if every_s >= 365 * _DAY_S:
        return f"{moment:%b %Y}"
    if every_s >= _DAY_S or tick_s % _DAY_S == 0:
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if every_s < 60 else f"{moment:%H:%M}"
