"""A heatmap over time: a column per step, a row per band of durations, and a darker cell for more jobs.

Cells of one shade are one path, in which cells next to each other are one stroke. A cell of its own element would make
the page several times as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from penstock.report.charts.lines import Mark, grid, mark_line
from penstock.report.charts.scales import DurationBands
from penstock.report.charts.svg import chart, plot, tag
from penstock.report.charts.time_axis import TimeAxis
from penstock.report.units import count_text, duration_text

BAND_PX: Final = 15
TOP_PX: Final = 8
LABELS_PX: Final = 28
SHADES: Final = 6

Cells = Mapping[tuple[int, int], int]  # By step and band: the number of jobs. Cells without jobs are missing.


def heatmap(name: str, title: str, cells: Cells, axis: TimeAxis, bands: DurationBands, mark: Mark | None = None) -> str:
    """Return a heatmap. The lowest band is at the bottom."""
    rows = len(bands.ends)
    height = rows * BAND_PX
    place = None if mark is None else bands.place(mark.value)
    return chart(
        name,
        title,
        _description(cells, axis, bands),
        TOP_PX + height + LABELS_PX,
        grid(bands.ticks(), TOP_PX, height),
        axis.labels(TOP_PX + height),
        plot(TOP_PX, height, axis.count, rows, _shaded(cells, rows)),
        mark_line(mark.label, TOP_PX + height * (1 - place)) if mark is not None and place is not None else "",
    )


def shade_of(count: int, greatest: int) -> int:
    """Return the shade of a cell, from 1 to SHADES. Shades are steps of a logarithmic scale."""
    if count >= greatest:
        return SHADES
    return 1 + int((SHADES - 1) * math.log(max(count, 1)) / math.log(greatest)) if greatest > 1 else SHADES


def _shaded(cells: Cells, rows: int) -> str:
    greatest = max(cells.values(), default=0)
    strokes: dict[int, list[str]] = {}
    run: tuple[int, int, int, int] | None = None  # Shade, row, first step, length.
    shades = {place: shade_of(count, greatest) for place, count in cells.items() if count > 0}
    for step, band in sorted(shades, key=lambda place: (place[1], place[0])):
        shade = shades[step, band]
        if run is not None and run[:2] == (shade, band) and run[2] + run[3] == step:
            run = (*run[:3], run[3] + 1)
            continue
        _stroke(strokes, run, rows)
        run = (shade, band, step, 1)
    _stroke(strokes, run, rows)
    # A stroke is one row high, around the middle of the row.
    paths = [tag("path", class_=f"q{shade}", d="".join(parts)) for shade, parts in sorted(strokes.items())]
    return tag("g", *paths, class_="cells", transform="translate(0 .5)")


def _stroke(strokes: dict[int, list[str]], run: tuple[int, int, int, int] | None, rows: int) -> None:
    if run is not None:
        shade, band, step, length = run
        strokes.setdefault(shade, []).append(f"M{step} {rows - 1 - band}h{length}")


def _description(cells: Cells, axis: TimeAxis, bands: DurationBands) -> str:
    begin, end = axis.moment(0), axis.moment(axis.count)
    span = f"From {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC."
    if not cells:
        return f"{span} No values."
    sums: dict[int, int] = {}
    for (_, band), count in cells.items():
        sums[band] = sums.get(band, 0) + count
    listed = ", ".join(f"{count_text(sums[band])} up to {duration_text(bands.ends[band])}" for band in sorted(sums))
    return f"{span} Jobs by duration: {listed}."
