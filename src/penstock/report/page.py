"""Renders a report as one self-contained HTML file, which needs no network, no script and no other files.

The Content-Security-Policy of the page allows nothing but its own style sheet, which it names by its hash. Therefore
the page has no style attributes. Texts are escaped, because names of tubes, keys and clients, and reasons of failures
are hostile input.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final

from penstock.report.charts.svg import clean, escape, tag
from penstock.report.section import Column, Figure, Report, Section, Status, value_text

# A name can have 64 KB, and a table has many rows.
CELL_CHARACTERS_MAX: Final = 80
SUBTITLE_CHARACTERS_MAX: Final = 400

_ICONS: Final = {"good": "✓", "late": "!", "bad": "✗", "unknown": "?"}
_CODE: Final = re.compile("`([^`]*)`")


@cache
def style() -> str:
    """Return the style sheet of the page, without comments and line breaks."""
    texts = [(files("penstock.report") / name).read_text() for name in ("charts/charts.css", "page.css")]
    plain = re.sub(r"/\*.*?\*/", "", "".join(texts), flags=re.DOTALL)
    return re.sub(r"\s*([{};])\s*", r"\1", " ".join(plain.split())).strip()


def policy() -> str:
    """Return the Content-Security-Policy of the page."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def page(report: Report, footer: str) -> str:
    """Return the report as an HTML page."""
    shown = [section for section in report.sections if section.status is None]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy())}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            tag("title", escape(clean(report.title))),
            f"<style>{style()}</style>",
            "</head>",
            "<body>",
            "<main>",
            tag("h1", escape(clean(report.title))),
            tag("p", escape(clean(report.subtitle, SUBTITLE_CHARACTERS_MAX))),
            _statuses(report.sections),
            tag("div", *(_total(label, value) for label, value in report.totals), class_="totals"),
            tag("nav", *(tag("a", escape(each.title), href=f"#{each.name}") for each in shown), aria_label="Sections"),
            *map(_section, shown),
            tag("p", _prose(footer), class_="note"),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _total(label: str, value: str) -> str:
    return tag("div", tag("b", escape(value)), tag("span", escape(label)))


def _statuses(sections: Sequence[Section]) -> str:
    cards = [_card(section, section.status) for section in sections if section.status is not None]
    return tag("div", *cards, class_="statuses") if cards else ""


def _card(section: Section, status: Status) -> str:
    """Return a card with the answer of a section. Its table is folded, unless the answer is bad."""
    table = ""
    if section.rows:
        opened = " open" if status.tone == "bad" else ""
        table = f"<details{opened}>{tag('summary', 'Details')}{_table(section)}</details>"
    return tag(
        "div",
        tag("h2", escape(section.title)),
        tag("b", escape(f"{_ICONS[status.tone]} {status.headline}")),
        tag("p", _prose(status.detail)) if status.detail else "",
        table,
        class_=f"status {status.tone}",
        id=section.name,
    )


def _section(section: Section) -> str:
    return tag(
        "section",
        tag("h2", escape(section.title)),
        tag("p", _prose(section.question)),
        _legend(section) if section.figures else "",
        *map(_panels, section.figures),
        _table(section),
        tag("p", _prose(section.note), class_="note") if section.note and section.rows else "",
        id=section.name,
    )


def _legend(section: Section) -> str:
    if len(section.legend) < 2:
        return ""
    labels = [tag("li", escape(label), class_=f"s{at}") for at, label in enumerate(section.legend)]
    return tag("ul", *labels, class_="legend")


def _panels(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    shown = [
        tag("figure", tag("figcaption", escape(figure.caption)), tag("div", figure.svg, class_="scroll"))
        for figure in figures
    ]
    return tag("div", *shown, class_=f"panels p{len(figures)}")


def _table(section: Section) -> str:
    if not section.rows:
        return tag("p", _prose(section.empty), class_="note")
    head = tag("tr", *(tag("th", escape(each.heading), class_=_class(each), scope="col") for each in section.columns))
    body = [tag("tr", *(_cell(each, each.cell(row)) for each in section.columns)) for row in section.rows]
    table = tag("table", tag("thead", head), tag("tbody", *body))
    # Wide tables scroll on their own. With tabindex, the keyboard can scroll them, too.
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"{section.title}, table")


def _cell(column: Column, value: object) -> str:
    # A time is not wrapped.
    kind = "t" if isinstance(value, datetime) else _class(column)
    return tag("td", escape(clean(value_text(value, column.unit), CELL_CHARACTERS_MAX)), class_=kind)


def _class(column: Column) -> str | None:
    return "n" if column.number else None


def _prose(text: str) -> str:
    """Return a sentence as markup: escaped, with words in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(clean(text, 2 * SUBTITLE_CHARACTERS_MAX)))
