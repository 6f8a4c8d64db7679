"""The report: a table for people and JSON for programs. Every figure of an interpreted engine is marked as such."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from bench.rows import Of, Reference, Row
from bench.scale import Scale

GC = "frozen and off while measuring, as in the server; rows ending in +gc use Python's default"


def machine() -> str:
    """Return a description of the machine without its name."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} CPUs, {platform.machine()}, {python}"


def method(scale: Scale) -> str:
    """Return a description of how figures are computed from samples."""
    return (
        f"best of {scale.rounds} short samples taken in turns, of {scale.rounds_long} where one takes seconds; "
        f"pauses: minimum of each call in {scale.rounds_long} runs; memory: one sample"
    )


def show_heading(console: Console, scale: Scale) -> None:
    """Print which engine is measured, on which machine and how."""
    if scale.compiled:
        title, style = "COMPILED ENGINE", "bold green"
        text = "Compiled by mypyc, as users get it."
    else:
        title, style = "INTERPRETED ENGINE", "bold white on red"
        text = (
            "No compiled engine was found: this is the same source at about a tenth of the speed.\n"
            "Goals are set for the compiled engine, and every ratio below is a ratio of interpreted code."
        )
    form = "short form" if scale.quick else "full form"
    if not scale.compiled:
        form += ", with fewer jobs because it is interpreted"
    console.print(
        Panel(
            f"{text}\n{machine()} · {form}\n{method(scale)}\ngarbage collector: {GC}",
            title=title,
            style=style,
            expand=False,
        )
    )
    console.print("Compare ratios within this run; absolute figures depend on the machine and its load.\n")


def show_rows(console: Console, rows: list[Row], compiled: bool) -> None:
    """Print the table."""
    table = Table(header_style="bold")
    for name in ("row", "what"):
        table.add_column(name)
    for name in ("measured", "compared", "goal"):
        table.add_column(name, justify="right")
    table.add_column("")
    family = ""
    for row in rows:
        if family not in ("", _family(row)):
            table.add_section()
        family = _family(row)
        table.add_row(row.spec.name, row.spec.what, *_figures(row, compiled))
    console.print(table)
    for other in {row.spec.base for row in rows if isinstance(row.spec.base, Reference)}:
        console.print(f"{other.name}: {other.value:,.0f} a second, not measured in this run.")
    judged = [row.met for row in rows if row.met is not None]
    console.print(f"{judged.count(True)} of {len(judged)} goals met{'' if compiled else ', INTERPRETED'}.")


def write_json(path: Path, rows: list[Row], scale: Scale) -> None:
    """Write all figures and samples as JSON."""
    document = {
        "engine": _engine(scale.compiled),
        "form": "quick" if scale.quick else "full",
        "machine": machine(),
        "method": method(scale),
        "gc": GC,
        "rows": [_as_dict(row, scale.compiled) for row in rows],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _engine(compiled: bool) -> str:
    return "compiled" if compiled else "interpreted"


def _family(row: Row) -> str:
    return row.spec.name.partition("/")[0]


def _figures(row: Row, compiled: bool) -> tuple[str, str, str, str]:
    if row.value is None:
        return "–", "", _goal(row), f"[red]not measured: {row.error}"
    verdict = {None: "", True: "[green]met", False: "[red]not met"}[row.met]
    return row.spec.unit.text(row.value), _compared(row, compiled), _goal(row), verdict


def _compared(row: Row, compiled: bool) -> str:
    if row.ratio is None or row.extra is None:
        return ""
    text = f"{row.ratio:.2f} × {row.spec.base_name}"
    if row.spec.goal is not None and row.spec.goal.of is Of.EXTRA:
        text = f"{'+' if row.extra >= 0 else ''}{row.spec.unit.text(row.extra)}, {text}"
    return text if compiled else f"interpreted {text}"


def _goal(row: Row) -> str:
    goal = row.spec.goal
    if goal is None:
        return ""
    sign = "≥" if row.spec.unit.is_rate else "≤"
    if goal.of is Of.RATIO:
        return f"{sign} {goal.bound:g} ×"
    figure = row.spec.unit.text(goal.bound)
    return f"{sign} {'+' if goal.of is Of.EXTRA else ''}{figure}"


def _as_dict(row: Row, compiled: bool) -> dict[str, object]:
    goal = row.spec.goal
    return {
        "name": row.spec.name,
        "what": row.spec.what,
        "engine": _engine(compiled),
        "unit": row.spec.unit.value,
        "value": row.value,
        "samples": row.samples,
        "base": row.spec.base_name,
        "base_value": row.base_value,
        "ratio": row.ratio,
        "goal": None if goal is None else {"of": goal.of.value, "bound": goal.bound, "text": _goal(row)},
        "met": row.met,
        "error": row.error or None,
    }
