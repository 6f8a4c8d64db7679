"""How commands print: tables on a terminal, aligned text into a pipe, a line of JSON each with --json.

A command gathers records, which are dicts as JSON has them, and says which columns people want to see of them. What
came from outside never reaches a terminal as it is: a body could obey it.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from penstock.cli.exits import NOT_FOUND, USAGE, code_of, fail, printable, printable_json, sentence_of
from penstock.cli.spans import span
from penstock.core.errors import CommandError, Unreachable

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

    def table(self, records: Iterable[Record], columns: Sequence[Column], empty: str) -> None:
        """Show records side by side; if there are none, say so in a sentence that helps."""
        if self.json:
            # Each as it comes: there may be millions, and who reads may want only the first.
            for record in records:
                self.line_of_json(record)
            return
        rows = list(records)
        if not rows:
            # Not on standard output, where a program would take it for a row.
            typer.echo(printable(empty), err=True)
        elif sys.stdout.isatty():
            _print_rich(rows, columns)
        else:
            _print_aligned(rows, columns)

    def record(self, record: Record) -> None:
        """Show one record, a line for each field."""
        if self.json:
            self.line_of_json(record)
            return
        width = max(len(name) for name in record)
        for name, value in record.items():
            # A server may tell figures under names of its own.
            typer.echo(f"{printable(name.replace('_', ' ')):<{width}}  {text_of(value)}".rstrip())

    def done(self, words: str, **record: Any) -> None:
        """Tell that something was done: in words, or as JSON."""
        if self.json:
            self.line_of_json(record)
        else:
            typer.echo(printable(words))

    def line_of_json(self, record: Record) -> None:
        """One line of JSON."""
        sys.stdout.write(printable_json(json_format.dumps(record, ensure_ascii=False, default=str)) + "\n")


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


# Of a longer body, people see so much, and how long it is: --body prints megabytes to those who ask for them.
BODY_LETTERS_MAX: Final = 1_000


def body_text(record: Record) -> str:
    """The body in a record as people read it, on one line."""
    if "body_base64" in record:
        return f"{len(record['body_base64']) * 3 // 4:,} bytes that are no text"
    body = record.get("body")
    text = body if isinstance(body, str) else json_format.dumps(body, ensure_ascii=False)
    if len(text) > BODY_LETTERS_MAX:
        return f"{printable(text[:BODY_LETTERS_MAX])}… ({len(text):,} letters)"
    return printable(text)


# Columns are no wider than this. A name may have 64 KB, and all other rows would be padded to it.
WIDTH_MAX: Final = 200


def _print_aligned(records: Sequence[Record], columns: Sequence[Column]) -> None:
    rows = [[each.heading.upper() for each in columns]]
    rows += [[text_of(each.cell(record)) for each in columns] for record in records]
    right = [_is_number(each.cell(records[0])) for each in columns]
    widths = [min(max(len(row[at]) for row in rows), WIDTH_MAX) for at in range(len(columns))]
    for row in rows:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(row, widths, right)
        ]
        typer.echo("  ".join(cells).rstrip())


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _print_rich(records: Sequence[Record], columns: Sequence[Column]) -> None:
    from rich.console import Console

    console = Console()
    table = rich_table(records, columns, console.width)
    # Rather a line that goes on in the next one than half an id, which nobody can use.
    console.width = max(console.width, sum((each.width or 0) + 2 for each in table.columns))
    console.print(table)


def rich_table(records: Sequence[Record], columns: Sequence[Column], width: int) -> Any:
    """Records as a table for a terminal: what a pipe gets, but what is wide takes only the rest of the line."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    rows = [[text_of(each.cell(record)) for each in columns] for record in records]
    widths = [
        min(max(cell_len(cell) for cell in cells), WIDTH_MAX)
        for cells in zip((each.heading for each in columns), *rows)
    ]
    rest = width - sum(wide + 2 for wide, each in zip(widths, columns) if not each.wide)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each, natural in zip(columns, widths):
        number = bool(records) and _is_number(each.cell(records[0]))
        shown = min(natural, max(rest, len(each.heading))) if each.wide else natural
        table.add_column(
            each.heading.upper(),
            justify="right" if number else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=shown,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed, unless the answer was given with the command."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody can be asked here: say --yes", USAGE)
    if not typer.confirm(printable(question), err=True):
        fail("nothing was done")


@contextmanager
def told(directory: str) -> Iterator[None]:
    """Whatever is refused while a directory is looked at is said with its name."""
    try:
        yield
    except PermissionError as error:
        fail(f"{error.filename or directory} may not be read or written by you; ask its owner, or become its owner")
    except FileNotFoundError as error:
        fail(f"{error.filename or directory} is not there; see whether the path is right, and try again", NOT_FOUND)
    except (NotADirectoryError, FileExistsError) as error:
        fail(f"{error.filename or directory} is no directory; name the one that the queue was opened with")
    except (BrokenPipeError, Unreachable):
        # Whoever reads what is written has read enough; or it is a server that is not there.
        raise
    except CommandError as error:
        sentence = sentence_of(error)
        fail(sentence if sentence.startswith(directory) else f"{directory}: {sentence}", code_of(error))
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}; see whether the disk is in order, and try again")
