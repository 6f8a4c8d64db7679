"""How commands print: tables on a terminal, aligned text into a pipe, a line of JSON each with --json.

A command gathers records, which are dicts as JSON has them, and says which columns people want to see of them. What
came from outside never reaches a terminal as it is: a body could obey it.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from penstock.cli.exits import ERROR, TEMPORARY, USAGE, fail, printable, sentence_of
from penstock.cli.spans import span
from penstock.core.errors import CommandError, InUse

Record = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """What a table shows of a record."""

    heading: str
    cell: Callable[[Record], object]
    wide: bool = False  # It takes what is left of the line, and is cut there on a terminal.


def column(name: str) -> Column:
    """A field of a record under its own name."""
    return Column(name.replace("_", " "), lambda record: record.get(name))


@dataclass(frozen=True)
class Output:
    """How a command prints what it has to say."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line for each thing.")] = False

    def table(self, records: Sequence[Record], columns: Sequence[Column], empty: str) -> None:
        """Show records side by side; if there are none, say so in a sentence that helps."""
        if self.json:
            for record in records:
                self.line_of_json(record)
        elif not records:
            # Not on standard output, where a program would take it for a row.
            typer.echo(empty, err=True)
        elif sys.stdout.isatty():
            _print_rich(records, columns)
        else:
            _print_aligned(records, columns)

    def record(self, record: Record) -> None:
        """Show one record, a line for each field."""
        if self.json:
            self.line_of_json(record)
            return
        width = max(len(name) for name in record)
        for name, value in record.items():
            typer.echo(f"{name.replace('_', ' '):<{width}}  {text_of(value)}".rstrip())

    def done(self, words: str, **record: Any) -> None:
        """Tell that something was done: in words, or as JSON."""
        if self.json:
            self.line_of_json(record)
        else:
            typer.echo(printable(words))

    def line_of_json(self, record: Record) -> None:
        """One line of JSON."""
        sys.stdout.write(json_format.dumps(record, ensure_ascii=False, default=str) + "\n")


def text_of(value: object) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if sys.stdout.isatty() else str(value)
    if isinstance(value, (dict, list)):
        return printable(json_format.dumps(value, ensure_ascii=False))
    return printable(str(value))


def jobs_text(count: int) -> str:
    """So many jobs."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def seconds_text(seconds: float | None) -> str | None:
    """A time as people read it; None stays None."""
    return None if seconds is None else span(round(seconds * 1000))


def body_text(record: Record) -> str:
    """The body in a record as people read it, on one line."""
    if "body_base64" in record:
        return f"{len(record['body_base64']) * 3 // 4:,} bytes that are no text"
    body = record.get("body")
    return printable(body) if isinstance(body, str) else printable(json_format.dumps(body, ensure_ascii=False))


def _print_aligned(records: Sequence[Record], columns: Sequence[Column]) -> None:
    rows = [[each.heading.upper() for each in columns]]
    rows += [[text_of(each.cell(record)) for each in columns] for record in records]
    right = [_is_number(each.cell(records[0])) for each in columns]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    for row in rows:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(row, widths, right)
        ]
        typer.echo("  ".join(cells).rstrip())


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _print_rich(records: Sequence[Record], columns: Sequence[Column]) -> None:
    from rich.console import Console

    Console().print(rich_table(records, columns))


def rich_table(records: Sequence[Record], columns: Sequence[Column]) -> Any:
    """Records as a table for a terminal: what a pipe gets, cut at the edge of the screen."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each in columns:
        number = bool(records) and _is_number(each.cell(records[0]))
        overflow = "ellipsis" if each.wide else "fold"
        justify = "right" if number else "left"
        table.add_column(each.heading.upper(), justify=justify, no_wrap=True, overflow=overflow)  # type: ignore[arg-type]
    for record in records:
        table.add_row(*(Text(text_of(each.cell(record))) for each in columns))
    return table


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed, unless the answer was given with the command."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody can be asked here: say --yes", USAGE)
    if not typer.confirm(question, err=True):
        fail("nothing was done")


@contextmanager
def told(directory: str) -> Iterator[None]:
    """Whatever is refused while a directory is looked at is said with its name."""
    try:
        yield
    except PermissionError as error:
        fail(f"{error.filename or directory} may not be read or written by you; ask its owner, or become its owner")
    except FileNotFoundError as error:
        fail(f"{error.filename or directory} is not there; see whether the path is right, and try again")
    except NotADirectoryError as error:
        fail(f"{error.filename or directory} is no directory; name the one that the queue was opened with")
    except BrokenPipeError:
        # Whoever reads what is written has read enough.
        raise
    except CommandError as error:
        fail(f"{directory}: {sentence_of(error)}", TEMPORARY if isinstance(error, InUse) else ERROR)
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}; see whether the disk is in order, and try again")
