"""The command line: counts the instructions per command, and compares them with the recorded ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.instructions import records
from bench.instructions.measuring import measure, why_not_measurable
from bench.instructions.records import Record
from penstock._build import is_compiled


def main(arguments: list[str]) -> int:
    """Measure, print a table and return 0 if the figures are within the tolerance or have no record."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description="Count instructions per command.")
    parser.add_argument("--update", action="store_true", help="record the figures for this build")
    parser.add_argument("--file", type=Path, default=records.RECORDS, help="the recorded figures; default: %(default)s")
    options = parser.parse_args(arguments)
    if reason := why_not_measurable() or ("" if is_compiled() else "penstock is not compiled"):
        parser.error(f"cannot count instructions: {reason}")
    now = records.this_record(measure())
    known = records.read(options.file)
    recorded = records.find(known, now.build)
    _show(recorded, now)
    if options.update:
        records.update(options.file, now)
        print(f"recorded in {options.file}")
        return 0
    if recorded is None:
        print(f"{records.why_not_comparable(known, now.build)}; --update (make: UPDATE=1) records it")
        return 0
    found = records.deviations(recorded, now)
    for sentence in found:
        print(sentence)
    return 1 if found else 0


def _show(recorded: Record | None, now: Record) -> None:
    table = Table("command", *(column for column in ("recorded", "now", "change", "× PING")), title="instructions")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, figure in now.instructions.items():
        before = recorded.instructions.get(name) if recorded else None
        known = (f"{before:,}", f"{figure:,}", f"{figure / before - 1:+.2%}") if before else ("-", f"{figure:,}", "-")
        table.add_row(name, *known, f"{figure / now.instructions['PING']:.2f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
