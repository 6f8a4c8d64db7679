"""A matrix of counts: a row and a column per name, and a darker cell for a greater count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.report.charts.heatmap import shade_of
from penstock.report.charts.svg import chart, clean, escape, number, tag
from penstock.report.units import count_text, short_count_text

ROW_PX: Final = 36
HEAD_PX: Final = 30
LABELS_SHARE: Final = 16.0  # Percent of the width.


def matrix(
    name: str, title: str, downs: Sequence[str], acrosses: Sequence[str], counts: Mapping[tuple[str, str], int]
) -> str:
    """Return a matrix of the counts by (row, column). A cell without a count stays empty."""
    width = (100 - LABELS_SHARE) / max(len(acrosses), 1)
    greatest = max(counts.values(), default=0)
    parts = [
        tag(
            "text", escape(clean(across, 12)), x=_percent(LABELS_SHARE + width * (at + 0.5)), y=18, text_anchor="middle"
        )
        for at, across in enumerate(acrosses)
    ]
    for row, down in enumerate(downs):
        top = HEAD_PX + ROW_PX * row
        parts.append(tag("text", escape(clean(down, 12)), y=top + 23))
        for column, across in enumerate(acrosses):
            count = counts.get((down, across))
            shade = shade_of(count, greatest) if count else 0
            left = LABELS_SHARE + width * column
            box = tag(
                "rect",
                *([tag("title", escape(f"{clean(down)} → {clean(across)}: {count_text(count)}"))] if count else []),
                x=_percent(left + 0.2),
                y=top + 1,
                width=_percent(width - 0.4),
                height=ROW_PX - 4,
                rx=4,
                class_=f"q{shade}",
            )
            parts.append(box)
            if count:
                colour = "dark" if shade > 3 else None
                place = _percent(left + width / 2)
                label = escape(short_count_text(count))
                parts.append(tag("text", label, x=place, y=top + 22, text_anchor="middle", class_=colour))
    described = "; ".join(
        f"{clean(down)} to {clean(across)}: {count_text(counts[down, across])}"
        for down in downs
        for across in acrosses
        if counts.get((down, across))
    )
    return chart(name, title, f"{described}.", HEAD_PX + ROW_PX * len(downs), *parts, class_="chart matrix")


def _percent(value: float) -> str:
    return f"{number(value)}%"
