"""Builds SVG and HTML elements as text. Names in a report come from clients, so every text is escaped here."""

from __future__ import annotations

import html

# Names can have 64 KB.
LABEL_CHARACTERS_MAX = 40


def clean(text: object, characters_max: int = LABEL_CHARACTERS_MAX) -> str:
    """Return a text for people on one line: without control and direction characters, shortened, and not escaped."""
    found = "(none)" if text is None else str(text)
    if len(found) > characters_max:
        found = f"{found[: characters_max - 1]}…"
    # Characters that are not printable include those that reverse the direction of the text after them.
    return found if found.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in found)


def escape(text: str) -> str:
    return html.escape(text, quote=True)


def number(value: float) -> str:
    """Return a number for an attribute: at most two decimals, no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def tag(name: str, *children: str, **attributes: str | float | None) -> str:
    """Return an element. Children are markup. `class_` is the attribute class, and `text_anchor` is text-anchor."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        shown = escape(value) if isinstance(value, str) else number(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{shown}"')
    if not children and name in _EMPTY:
        return f"<{name}{''.join(parts)}/>"
    return f"<{name}{''.join(parts)}>{''.join(children)}</{name}>"


_EMPTY = frozenset(("line", "rect", "path", "circle"))


def chart(name: str, title: str, description: str, height: float, *children: str, class_: str = "chart") -> str:
    """Return the `<svg>` element of a chart with its title and description. `name` must be unique in the page."""
    return tag(
        "svg",
        tag("title", escape(title), id=f"{name}-title"),
        tag("desc", escape(description), id=f"{name}-desc"),
        *children,
        class_=class_,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        height=height,
    )


def plot(top: float, height: float, columns: float, rows: float, *children: str) -> str:
    """Return the drawing area of a chart: `columns` × `rows` units, stretched to the width of the chart."""
    return tag(
        "svg",
        *children,
        y=top,
        width="100%",
        height=height,
        viewBox=f"0 0 {number(columns)} {number(rows)}",
        preserveAspectRatio="none",
    )
