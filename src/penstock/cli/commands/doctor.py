"""`penstock doctor`: examines this machine and the installation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.output import Column, Output, Record, column

_COLUMNS: Final = (
    column("area"),
    column("name"),
    column("level"),
    Column("value", lambda row: row["value"], wide=True),
)


def doctor(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIRECTORY", help="Examine the disk of this directory. It need not exist.")
    ] = Path("penstock-data"),
    port: Annotated[int, typer.Option("--port", min=1, max=55_535, help="Examine this port of a server.")] = 7711,
    *,
    out: Output,
) -> None:
    """Examine this machine: installation, limits, clock, disk, ports.

    It measures how long a sync takes, and whether it reaches the disk. For this it writes a temporary file of 64 MB to
    the directory. The exit code is 1 if there is a problem: Penstock does not work here, or jobs can be lost.
    """
    from penstock.cli.doctor.disk import examine_disk
    from penstock.cli.doctor.environment import examine_environment
    from penstock.cli.doctor.finding import PROBLEM
    from penstock.cli.doctor.machine import examine_machine
    from penstock.cli.doctor.ports import examine_ports

    found = [*examine_environment(), *examine_machine(), *examine_disk(directory.absolute()), *examine_ports(port)]
    out.table([asdict(each) for each in found], _COLUMNS, "")
    problems = [each for each in found if each.level == PROBLEM]
    if not out.json:
        _print_advice([asdict(each) for each in found if each.advice])
    if problems:
        raise typer.Exit(1)


def _print_advice(found: list[Record]) -> None:
    if not found:
        typer.echo("\nNo problems were found.")
    for each in found:
        typer.echo(f"\n{each['level']}: {each['name']}: {each['value']}\n  {each['advice']}")
