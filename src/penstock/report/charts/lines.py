"""Lines over time. A step without a value is a gap in the line. A value between two gaps is a dot.

Coordinates in a path are whole numbers and relative to the point before, because a page has tens of thousands of
points. The plot is ROWS units high, which is about one unit per pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.report.charts.scales import Scale
from penstock.report.charts.svg import chart, clean, escape, plot, tag
from penstock.report.charts.time_axis import TimeAxis
from penstock.report.units import count_text

HEIGHT_PX: Final = 176
TOP_PX: Final = 8
PLOT_PX: Final = 140
ROWS: Final = 100

Point = tuple[int, int]  # A step, and a height in units from the top.


@dataclass(frozen=True)
class Line:
    """A line: one value per step, or None where there is none."""

    label: str
    series: int  # Number of the colour.
    values: Sequence[float | None]
    # A level keeps its value for the whole step, and until the next value. In gaps it is dotted.
    level: bool = False
    before: float | None = None  # The level before the first value.
    faint: bool = False  # A companion of another line with this colour, for example its peaks.


@dataclass(frozen=True)
class Mark:
    """A horizontal line at a value, with a label."""

    value: float
    label: str


def lines_chart(
    name: str,
    title: str,
    lines: Sequence[Line],
    axis: TimeAxis,
    scale: Scale,
    marks: Sequence[Mark] = (),
    text: Callable[[float], str] = count_text,
) -> str:
    """Return a chart over time. `text` writes a value for the description."""
    drawn = "".join(_path(line, scale, axis.count) for line in sorted(lines, key=lambda line: not line.faint))
    return chart(
        name,
        title,
        _description(lines, axis, text),
        HEIGHT_PX,
        grid(scale.ticks(), TOP_PX, PLOT_PX),
        axis.labels(TOP_PX + PLOT_PX),
        plot(TOP_PX, PLOT_PX, axis.count, ROWS, drawn),
        *(mark_line(mark.label, TOP_PX + PLOT_PX * (1 - scale.place(mark.value))) for mark in marks),
    )


def grid(ticks: Sequence[tuple[float, str]], top: float, height: float) -> str:
    """Return horizontal lines with labels to the left of the plot."""
    parts = []
    for place, label in ticks:
        y = round(top + height * (1 - place))
        parts.append(tag("rect", y=y) + tag("text", escape(label), y=y))
    return tag("g", *parts, class_="grid")


def mark_line(label: str, y: float) -> str:
    """Return a dashed line across the plot with a label at its right end."""
    # Below the line if there is no room above it.
    at = y - 5 if y > TOP_PX + 14 else y + 14
    line = tag("line", x2="100%", y1=y, y2=y)
    return tag("g", line, tag("text", escape(clean(label)), x="100%", y=at, text_anchor="end"), class_="mark")


def _path(line: Line, scale: Scale, count: int) -> str:
    heights = [None if value is None else round(ROWS * (1 - scale.place(value))) for value in line.values]
    classes = f"s{line.series}" + (" faint" if line.faint else "")
    name = tag("title", escape(clean(line.label)))
    if not line.level:
        runs = list(_runs(heights))
        drawn = "".join(map(_sloped, (run for run in runs if len(run) > 1)))
        dots = "".join(f"M{step} {height}h0" for run in runs if len(run) == 1 for step, height in run)
        # A value stands in the middle of its step.
        return (tag("path", name, class_=classes, d=drawn, transform="translate(.5 0)") if drawn else "") + (
            tag("path", name, class_=f"{classes} dot", d=dots, transform="translate(.5 0)") if dots else ""
        )
    drawn = "".join(map(_stepped, _runs(heights)))
    before = None if line.before is None else round(ROWS * (1 - scale.place(line.before)))
    held = "" if line.faint else _held(heights, before, count)
    return (tag("path", name, class_=classes, d=drawn) if drawn else "") + (
        tag("path", class_=f"{classes} held", d=held) if held else ""
    )


def _runs(heights: Sequence[int | None]) -> Iterator[list[Point]]:
    """Yield the points between two gaps."""
    run: list[Point] = []
    for step, height in enumerate(heights):
        if height is not None:
            run.append((step, height))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _sloped(run: list[Point]) -> str:
    """Return the path through two or more points."""
    (step, height), *rest = run
    moves: list[str] = []
    flat = 0
    for _, next_height in rest:
        change = next_height - height
        height = next_height
        if change == 0:
            flat += 1
            continue
        if flat:
            moves.append(f"{flat} 0")
            flat = 0
        moves.append(f"1{change}" if change < 0 else f"1 {change}")
    if flat:
        moves.append(f"{flat} 0")
    return f"M{step} {run[0][1]}l{' '.join(moves)}"


def _stepped(run: list[Point]) -> str:
    """Return the path of a level. Each value lasts for its whole step."""
    step, height = run[0]
    parts = [f"M{step} {height}"]
    flat = 0
    for _, next_height in run:
        if next_height != height:
            parts.append(f"h{flat}v{next_height - height}")
            height, flat = next_height, 0
        flat += 1
    return "".join([*parts, f"h{flat}"])


def _held(heights: Sequence[int | None], before: int | None, count: int) -> str:
    """Return the path of a level through its gaps: each value is held until the next one."""
    parts = []
    last, since = before, 0
    for step, height in enumerate(heights):
        if height is None:
            continue
        if last is not None and step > since:
            parts.append(f"M{since} {last}h{step - since}")
        last, since = height, step + 1
    if last is not None and since < count:
        parts.append(f"M{since} {last}h{count - since}")
    return "".join(parts)


def _description(lines: Sequence[Line], axis: TimeAxis, text: Callable[[float], str]) -> str:
    """Return the time span, and the greatest value of each line with its time."""
    begin, end = axis.moment(0), axis.moment(axis.count)
    found = [f"From {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC."]
    for line in lines:
        known = [(value, -step) for step, value in enumerate(line.values) if value is not None]
        if not known:
            found.append(f"{clean(line.label)}: no values.")
            continue
        value, step = max(known)
        found.append(f"{clean(line.label)}: at most {text(value)}, at {axis.moment(-step):%m-%d %H:%M}.")
    return " ".join(found)
