"""The charts of a report, made with plotly from plain rows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

Row = dict[str, Any]
Figure = Any  # plotly has no types of its own.

# Colours that remain distinguishable with colour blindness (Okabe and Ito).
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7A6A00", "#444444")
PANEL_PX: Final = 240
PANELS_ACROSS_MAX: Final = 3
BAR_PX: Final = 26

_LAYOUT: Final = {
    "template": "none",
    "colorway": COLOURS,
    "margin": {"l": 64, "r": 16, "t": 8, "b": 40},
    "hovermode": "x unified",
    "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#333"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
_AXIS: Final = {"gridcolor": "#e6e6e6", "zerolinecolor": "#bbb", "automargin": True}


def label(name: object) -> str:
    """Return a name as text for a chart: shortened, and escaped because plotly interprets HTML tags."""
    text = "(none)" if name is None else str(name)
    return html.escape(text if len(text) <= 60 else f"{text[:59]}…", quote=False)


def over_time(
    rows: Sequence[Row],
    panels: dict[str, str],
    unit: str,
    tubes: Sequence[str],
    span: tuple[datetime, datetime] | None,
    level: bool = False,
) -> Figure:
    """Return a chart over time: a panel for each field in `panels`, with a curve for each tube.

    `panels` maps fields to the titles of their panels. With `level`, a curve has steps: a value holds until the next.
    """
    # Four panels are arranged two by two.
    across = len(panels) if len(panels) <= PANELS_ACROSS_MAX else 2
    down = -(-len(panels) // across)
    figure = make_subplots(rows=down, cols=across, subplot_titles=list(panels.values()), shared_xaxes="all")
    for number, field in enumerate(panels):
        for at, tube in enumerate(tubes):
            mine = [row for row in rows if row["tube"] == tube]
            figure.add_scatter(
                x=[row["minute"] for row in mine],
                y=[row[field] for row in mine],
                name=label(tube),
                legendgroup=tube,
                showlegend=number == 0 and len(tubes) > 1,
                # With markers, because a single point is not visible as a line.
                mode="lines+markers",
                marker={"size": 4},
                line={"color": COLOURS[at % len(COLOURS)], "shape": "hv" if level else "linear"},
                row=number // across + 1,
                col=number % across + 1,
            )
    figure.update_xaxes({**_AXIS, "type": "date", "range": span})
    figure.update_yaxes({**_AXIS, "rangemode": "tozero"})
    figure.update_yaxes(title_text=unit, col=1)
    figure.update_layout({**_LAYOUT, "height": 60 + PANEL_PX * down, "margin": {"l": 64, "r": 16, "t": 50, "b": 40}})
    figure.update_layout(legend_y=1.0 + 34 / (PANEL_PX * down))
    return figure


def bars(rows: Sequence[Row], name: str, values: dict[str, str], unit: str) -> Figure:
    """Return a bar chart with the first row on top. `values` maps the fields to show to their titles."""
    figure = go.Figure()
    # Bars are placed by number. Placed by label, bars with equal or equally shortened labels would overlap.
    places = [str(number) for number in range(len(rows))]
    labels = [label(row[name]) for row in rows]
    for field, called in values.items():
        figure.add_bar(y=places, x=[row[field] for row in rows], name=called, orientation="h")
    return _laid_out(
        figure,
        barmode="group",
        hovermode="y unified",
        height=max(160, 90 + BAR_PX * len(rows) * (1 if len(values) == 1 else 1.5)),
        showlegend=len(values) > 1,
        xaxis={"title": {"text": unit}, "rangemode": "tozero"},
        yaxis={
            **{"type": "category", "autorange": "reversed", "gridcolor": "rgba(0,0,0,0)"},
            **{"tickmode": "array", "tickvals": places, "ticktext": labels},
        },
    )


def matrix(rows: Sequence[Row], down: str, across: str, count: str) -> Figure:
    """Return a heat map of the sums of the field `count`, by the fields `down` and `across`."""
    downs = list(dict.fromkeys(row[down] for row in rows))
    acrosses = list(dict.fromkeys(row[across] for row in rows))
    counts: dict[tuple[Any, Any], int] = {}
    for row in rows:
        place = row[down], row[across]
        counts[place] = counts.get(place, 0) + row[count]
    cells = [[counts.get((one, other)) for other in acrosses] for one in downs]
    figure = go.Figure(
        go.Heatmap(
            x=[label(each) for each in acrosses],
            y=[label(each) for each in downs],
            z=cells,
            text=[["" if cell is None else f"{cell:,}" for cell in line] for line in cells],
            texttemplate="%{text}",
            hovertemplate="%{y} → %{x}: %{text}<extra></extra>",
            hoverongaps=False,
            colorscale=[[0, "#e8f1f8"], [1, COLOURS[0]]],
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    return _laid_out(
        figure,
        hovermode="closest",
        height=110 + 44 * len(downs),
        xaxis={"title": {"text": "to"}, "type": "category", "side": "top"},
        yaxis={"title": {"text": "from"}, "type": "category", "autorange": "reversed"},
        margin={"l": 64, "r": 16, "t": 60, "b": 16},
    )


def _laid_out(figure: Figure, xaxis: Row, yaxis: Row, **layout: Any) -> Figure:
    figure.update_layout({**_LAYOUT, **layout, "xaxis": {**_AXIS, **xaxis}, "yaxis": {**_AXIS, **yaxis}})
    return figure
