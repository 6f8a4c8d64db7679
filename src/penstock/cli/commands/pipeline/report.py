"""`penstock pipeline report`: a report on the lake, as an HTML page and as tables on the terminal."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock._version import __version__
from penstock.cli.errors import printable_lines
from penstock.cli.lake_options import LakeOptions, day_option
from penstock.cli.output import Column, Output, naming_directory
from penstock.cli.targets import Target as Server
from penstock.cli.targets import server_url
from penstock.report.units import bytes_text
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.report.section import Report, Section
    from penstock.report.source import ReportSource
    from penstock.report.targets import Target


def _target(text: str) -> Target:
    from penstock.report.targets import parse_target

    try:
        return parse_target(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def report(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="File for the HTML page. [default: report.html in the lake, or here if the lake is not a directory]",
        ),
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the HTML page, or only print tables.")] = True,
    tubes: Annotated[list[str] | None, typer.Option("--tube", help="Report only this tube. Repeatable.")] = None,
    since: Annotated[datetime.date | None, day_option("--since", "First day of the report.")] = None,
    until: Annotated[datetime.date | None, day_option("--until", "Last day of the report.")] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="PERCENTILE=TIME",
            help="Limit for a percentile of the wait times, for example p95=2s. Repeatable.",
        ),
    ] = None,
    urls: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="URL", help="URL of a node, to show how far the lake is behind it. Repeatable."),
    ] = None,
    *,
    lake: LakeOptions,
    out: Output,
) -> None:
    """Report rates, waiting times, run times, backlog, failures, keys and workers.

    Write one self-contained HTML file, and print the same tables. The command reads the gold tables of the lake and
    does not need Spark.
    """
    from penstock.report.build import build_report

    limits = [_target(text) for text in targets or ()]
    source = open_source(lake, since, until, urls or ())
    found = build_report(source, datetime.datetime.now(datetime.UTC), tubes or (), limits)
    show(found, out)
    if page:
        path = write_page(found, Path(to or _default_path(lake)), f"The lake is {lake.place}.")
        size = path.stat().st_size
        out.report_done(f"The report is {path} ({bytes_text(size)})", report=str(path), bytes=size)


def _default_path(lake: LakeOptions) -> Path:
    place = lake.open().place
    return Path(place.uri, "report.html") if place.is_local else Path("report.html")


def open_source(
    lake: LakeOptions, since: datetime.date | None, until: datetime.date | None, urls: Sequence[str] = ()
) -> ReportSource:
    """Return the tables of a lake from the day `since` to the day `until`, both inclusive."""
    from penstock.lake.report_source import LakeSource
    from penstock.pipeline.source import Source, unread

    found = lake.open()
    nodes = Source(tuple(server_url(Server(url=url)) for url in urls))
    return LakeSource(found, since, until, partial(unread, found, nodes) if urls else None)


def show(report: Report, out: Output) -> None:
    """Print the sections of a report as tables, or with --json one line per row."""
    for section in report.sections:
        if out.json:
            for row in section.rows:
                fields = {each.json_key: each.json_value(row) for each in section.columns}
                out.json_line({"section": section.name, **fields})
        else:
            _show_section(section, out)
    if not out.json:
        typer.echo()


def _show_section(section: Section, out: Output) -> None:
    typer.echo(f"\n{printable(section.title)}: {printable(section.question)}")
    if section.status is not None:
        typer.echo(printable(f"{section.status.headline}. {section.status.detail}".rstrip()))
    # Counts stay numbers, so that a table in a pipe has no thousands separators.
    columns = [
        Column(each.heading, each.text if each.unit or not each.number else each.cell, right=each.number)
        for each in section.columns
    ]
    if section.rows or section.status is None:
        out.table(section.rows, columns, section.empty)
    if section.note and section.rows:
        typer.echo(printable_lines(section.note))


def write_page(report: Report, path: Path, source: str) -> Path:
    """Write the HTML page. The file appears when it is complete."""
    from penstock.report.page import page

    text = page(report, f"{source} Made by penstock {__version__}.")
    half = path.with_name(f"{path.name}.part")
    with naming_directory(str(path)):
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    return path.absolute()
