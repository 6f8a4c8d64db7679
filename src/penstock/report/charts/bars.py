"""Horizontal bars: a label and its values above each group of bars, so that long labels have room on a phone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.report.charts.svg import chart, clean, escape, number, tag
from penstock.report.units import count_text

LABEL_PX: Final = 20
BAR_PX: Final = 8
GAP_PX: Final = 12


@dataclass(frozen=True)
class BarGroup:
    """A label and one value per series. None is a missing value."""

    label: str
    values: Sequence[float | None]
    alarm: bool = False  # The bars are red.


def bars_chart(
    name: str,
    title: str,
    series: Sequence[str],
    groups: Sequence[BarGroup],
    text: Callable[[float], str] = count_text,
    mark: float | None = None,
) -> str:
    """Return a bar chart with the first group on top. `mark` is a value at which a vertical line stands."""
    greatest = max([value for group in groups for value in group.values if value is not None] + [mark or 0, 0])
    group_px = LABEL_PX + BAR_PX * len(series) + GAP_PX
    parts = [_group(group, at * group_px, greatest, text) for at, group in enumerate(groups)]
    if mark is not None and greatest:
        x = f"{number(100 * mark / greatest)}%"
        lines = [
            tag("line", x1=x, x2=x, y1=at * group_px + LABEL_PX - 2, y2=at * group_px + LABEL_PX + BAR_PX + 2)
            for at in range(len(groups))
        ]
        parts.append(tag("g", *lines, class_="mark"))
    described = "; ".join(f"{clean(group.label)}: {_values(group, series, text)}" for group in groups)
    return chart(name, title, f"{described}.", group_px * len(groups), *parts, class_="chart bars")


def _group(group: BarGroup, top: float, greatest: float, text: Callable[[float], str]) -> str:
    shown = " / ".join("–" if value is None else text(value) for value in group.values)
    parts = [
        tag("text", escape(clean(group.label)), y=top + 14),
        tag("text", escape(shown), x="100%", y=top + 14, text_anchor="end", class_="value"),
    ]
    for at, value in enumerate(group.values):
        y = top + LABEL_PX + BAR_PX * at
        if at == 0:
            parts.append(tag("rect", y=y, width="100%", height=BAR_PX - 1, rx=2, class_="track"))
        if value:
            width = f"{number(max(100 * value / greatest, 0.3))}%"
            colour = "alarm" if group.alarm else f"f{at}"
            parts.append(tag("rect", y=y, width=width, height=BAR_PX - 1, rx=2, class_=colour))
    return "".join(parts)


def _values(group: BarGroup, series: Sequence[str], text: Callable[[float], str]) -> str:
    return ", ".join(
        f"{name} {'unknown' if value is None else text(value)}" for name, value in zip(series, group.values)
    )
