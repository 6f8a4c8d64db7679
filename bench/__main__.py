"""The command line: selects rows, measures them and prints them. A missed goal is not a failure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bench import (
    backlog,
    client,
    cluster,
    cycle,
    delays,
    http_api,
    journal,
    keys,
    memory,
    pauses,
    producers,
    rules,
    server,
    tasks,
    waits,
)
from bench.report import show_heading, show_rows, write_json
from bench.rows import Row
from bench.runner import chosen, run, unknown
from bench.scale import Scale
from bench.trial import Trial
from penstock._build import is_compiled

FAMILIES = (
    *(cycle, producers, backlog, keys, delays, memory, pauses, waits, rules, journal),
    *(server, client, http_api, cluster, tasks),
)


def main(arguments: list[str]) -> int:
    """Measure the selected rows. Return 0 unless a row could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the engine and the server.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="a row (cycle/fifo) or a family (cycle); default: all")
    parser.add_argument(
        "--quick", action="store_true", help="run the short form with fewer jobs, which takes half a minute"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures and all samples to this file")
    parser.add_argument("--list", action="store_true", help="list the rows without measuring them")
    parser.add_argument(
        "--against",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="also measure this server; its jobs are deleted",
    )
    options = parser.parse_args(arguments)
    scale = Scale(options.quick, is_compiled(), tuple(options.against))
    families = [family.trials(scale) for family in FAMILIES]
    if options.list:
        _list(families)
        return 0
    if wrong := unknown(families, options.names):
        parser.error(f"no such row or family: {', '.join(wrong)}; list them with --list")
    rows = _measure(chosen(families, options.names), scale)
    if options.json is not None:
        write_json(options.json, rows, scale)
    return 1 if any(row.error for row in rows) else 0


def _list(families: list[list[Trial]]) -> None:
    for family in families:
        for trial in family:
            for spec in trial.rows:
                print(f"{spec.name:24}{spec.what}")


def _measure(families: list[list[Trial]], scale: Scale) -> list[Row]:
    """Measure one family after another. If interrupted, print the finished families."""
    # Wide enough for a row per line, also if the output is not a terminal.
    console = Console(width=None if sys.stdout.isatty() else 170)
    show_heading(console, scale)
    if any(spec.name.startswith("server/") for family in families for trial in family for spec in trial.rows):
        for sentence in server.missing():
            console.print(sentence)
    rows: list[Row] = []
    try:
        for family in families:
            rows += run(family, scale.rounds, _tell)
        _tell("")
    except KeyboardInterrupt:
        _tell("")
        console.print("Interrupted. Finished families:")
        show_rows(console, rows, scale.compiled)
        sys.exit(130)
    show_rows(console, rows, scale.compiled)
    return rows


def _tell(what: str) -> None:
    """Print the current step on a terminal. A spinner of rich would run a thread during the measurement."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
