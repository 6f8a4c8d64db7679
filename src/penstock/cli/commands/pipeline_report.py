"""`penstock pipeline report`: a report on the lake, as an HTML page and as tables on the terminal."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock._version import __version__
from penstock.cli.errors import printable_lines
from penstock.cli.lake_options import LakeDirectory, day_option
from penstock.cli.output import Column, Output, naming_directory
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.pipeline.report import Report


def report(
    lake: LakeDirectory,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="File for the HTML page. [default: LAKE/report.html]")
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the HTML page, or only print tables.")] = True,
    tubes: Annotated[list[str] | None, typer.Option("--tube", help="Report only this tube. Repeatable.")] = None,
    since: Annotated[datetime.date | None, day_option("--since", "First day of the report.")] = None,
    until: Annotated[datetime.date | None, day_option("--until", "Last day of the report.")] = None,
    *,
    out: Output,
) -> None:
    """Report rates, waiting times, run times, backlog, failures, keys and workers.

    Write one self-contained HTML file, and print the same tables. The command reads the gold tables of the lake and
    does not need Spark.
    """
    from penstock.pipeline.gold_reader import GoldReader
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.report import report_of

    gold = GoldReader(Lake(lake), tubes or (), since, until)
    found = report_of(gold.require_tubes(tubes) if tubes else gold)
    show(found, out)
    if page:
        path = write_page(found, Path(to) if to else Path(lake, "report.html"), f"The lake is {lake}.")
        out.report_done(f"The report is {path}", report=str(path))


def show(report: Report, out: Output) -> None:
    for section in report.sections:
        if out.json:
            for row in section.rows:
                out.json_line({"section": section.name, **{each.heading: each.cell(row) for each in section.columns}})
            continue
        typer.echo(f"\n{printable(section.title)}: {printable(section.question)}")
        out.table(section.rows, [Column(each.heading, each.cell) for each in section.columns], section.empty)
        if section.note:
            typer.echo(printable_lines(section.note))
    if not out.json:
        typer.echo()


def write_page(report: Report, path: Path, source: str) -> Path:
    """Write the HTML page. The file appears when it is complete."""
    from penstock.pipeline.page import page

    text = page(
        report.title, report.subtitle, report.figures, report.sections, f"{source} Made by penstock {__version__}."
    )
    half = path.with_name(f"{path.name}.part")
    with naming_directory(str(path)):
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    return path.absolute()
