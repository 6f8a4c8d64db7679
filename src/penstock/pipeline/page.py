"""Renders a report as one self-contained HTML file, which needs no network and no other files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from string import Template
from typing import Final

from plotly.offline import get_plotlyjs

from penstock.pipeline.sections import Section, text

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fafafa; margin: 0; }
main { max-width: 1100px; margin: 0 auto; padding: 24px; }
h1 { margin: 0; font-size: 28px; }
h2 { margin: 0; font-size: 20px; }
p { margin: 4px 0 12px; color: #555; }
nav { margin: 16px 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
a { color: #0072B2; }
section { background: #fff; border: 1px solid #e2e2e2; border-radius: 8px; padding: 20px; margin: 20px 0; }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.figures div { background: #fff; border: 1px solid #e2e2e2; border-radius: 8px; padding: 12px 20px; min-width: 110px; }
.figures b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.figures span { color: #555; font-size: 14px; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 16px 4px 0; border-bottom: 1px solid #eee; text-align: left; overflow-wrap: anywhere; }
th { color: #555; font-weight: 600; white-space: nowrap; }
.number { text-align: right; }
.note { font-size: 14px; }
@media print { body { background: #fff; } nav { display: none; } section { break-inside: avoid; border: 0; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p>$subtitle</p>
<div class="figures">$figures</div>
<nav>$contents</nav>
$sections
<p class="note">$footer</p>
</main>
<script>$plotly</script>
<script>
for (const chart of document.querySelectorAll("[data-chart]")) {
  const figure = JSON.parse(document.getElementById(chart.dataset.chart).textContent);
  Plotly.newPlot(chart, figure.data, figure.layout, {responsive: true, displaylogo: false});
}
</script>
</body>
</html>
""")


def page(
    title: str, subtitle: str, figures: Sequence[tuple[str, str]], sections: Sequence[Section], footer: str
) -> str:
    return _PAGE.substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        figures="".join(
            f"<div><b>{html.escape(value)}</b><span>{html.escape(of)}</span></div>" for of, value in figures
        ),
        contents="".join(f'<a href="#{each.name}">{html.escape(each.title)}</a>' for each in sections),
        sections="\n".join(_section(each) for each in sections),
        footer=html.escape(footer),
        plotly=get_plotlyjs(),
    )


def _section(section: Section) -> str:
    parts = [
        f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2><p>{html.escape(section.question)}</p>'
    ]
    if section.figure is not None:
        # Names in the data could contain `</script>`, which would end the element. Without `<` they cannot.
        data = section.figure.to_json().replace("<", "\\u003c")
        parts.append(f'<div data-chart="{section.name}-data"></div>')
        parts.append(f'<script type="application/json" id="{section.name}-data">{data}</script>')
    parts.append(_table(section))
    if section.note:
        parts.append(f'<p class="note">{html.escape(section.note)}</p>')
    return "".join([*parts, "</section>"])


def _table(section: Section) -> str:
    if not section.rows:
        return f'<p class="note">{html.escape(section.empty)}</p>'
    numbers = [isinstance(column.cell(section.rows[0]), (int, float)) for column in section.columns]
    head = _cells("th", [column.heading for column in section.columns], numbers)
    body = "".join(
        _cells("td", [text(column.cell(row)) for column in section.columns], numbers) for row in section.rows
    )
    return f'<div class="table"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _cells(tag: str, texts: Iterable[str], numbers: Iterable[bool]) -> str:
    cells = [
        f"<{tag}{' class=number' if number else ''}>{html.escape(each)}</{tag}>" for each, number in zip(texts, numbers)
    ]
    return f"<tr>{''.join(cells)}</tr>"
