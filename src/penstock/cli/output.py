"""Output of commands: tables on a terminal, aligned text into a pipe, JSON lines with --json.

A command collects records, which are dicts as in JSON, and names the columns to show. Control characters from
outside, for example in a body, are escaped before they reach a terminal.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from penstock.cli.errors import NOT_FOUND, USAGE, exit_code_of, fail, message_of, printable_json
from penstock.core.errors import BadId, CommandError, Unreachable
from penstock.report.units import duration_text
from penstock.wire.quoting import printable

Record = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the function that returns its cell for a record."""

    heading: str
    cell: Callable[[Record], object]
    wide: bool = False  # The column uses the rest of the line, and a terminal cuts it there.
    right: bool = False  # The cells are numbers with units, which are aligned to the right like plain numbers.


def column(name: str) -> Column:
    """Return a column that shows the field `name`, with this name as its heading."""
    return Column(name.replace("_", " "), lambda record: record.get(name))


@dataclass(frozen=True)
class Output:
    """The output format of a command."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False

    def table(self, records: Iterable[Record], columns: Sequence[Column], empty: str) -> None:
        """Print records as a table. If there are none, print the sentence `empty` on standard error."""
        if self.json:
            # Print each record as it arrives. There may be millions, and the reader may want only the first.
            for record in records:
                self.json_line(record)
            return
        rows = list(records)
        if not rows:
            # On standard output a program would read this sentence as a row.
            typer.echo(printable(empty), err=True)
        elif sys.stdout.isatty():
            _print_rich(rows, columns)
        else:
            _print_aligned(rows, columns)

    def record(self, record: Record) -> None:
        """Print one record, with one line for each field."""
        if self.json:
            self.json_line(record)
            return
        width = max(len(name) for name in record)
        for name, value in record.items():
            # The names may come from a server, so they are escaped too.
            typer.echo(f"{printable(name.replace('_', ' ')):<{width}}  {as_text(value)}".rstrip())

    def report_done(self, words: str, **record: Any) -> None:
        """Report success: print `words`, or with --json the `record`."""
        if self.json:
            self.json_line(record)
        else:
            typer.echo(printable(words))

    def json_line(self, record: Record) -> None:
        sys.stdout.write(printable_json(json_format.dumps(record, ensure_ascii=False, default=str)) + "\n")


def as_text(value: object) -> str:
    """Return a value as text for people."""
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
    """Return a number of jobs in words: "1 job", "2,000 jobs"."""
    return "1 job" if count == 1 else f"{count:,} jobs"


def seconds_text(seconds: float | None) -> str | None:
    """Return a duration as text for people. None stays None."""
    return None if seconds is None else duration_text(round(seconds * 1000))


# A longer body is cut here and its length is shown. `--body` prints it in full.
BODY_CHARACTERS_MAX: Final = 1_000


def body_text(record: Record) -> str:
    """Return the body of a record as one line of text for people."""
    if "body_base64" in record:
        return f"{len(record['body_base64']) * 3 // 4:,} bytes of binary data"
    body = record.get("body")
    text = body if isinstance(body, str) else json_format.dumps(body, ensure_ascii=False)
    if len(text) > BODY_CHARACTERS_MAX:
        return f"{printable(text[:BODY_CHARACTERS_MAX])}… ({len(text):,} characters)"
    return printable(text)


def headers_text(headers: dict[str, str]) -> str:
    """Return headers as one line of text for people."""
    text = " ".join(f"{name}={value}" for name, value in headers.items())
    return printable(text if len(text) <= BODY_CHARACTERS_MAX else f"{text[:BODY_CHARACTERS_MAX]}…")


# Maximum width of a column. A name can have 64 KB, and all other rows would be padded to it.
WIDTH_MAX: Final = 200


def _print_aligned(records: Sequence[Record], columns: Sequence[Column]) -> None:
    rows = [[each.heading.upper() for each in columns]]
    rows += [[as_text(each.cell(record)) for each in columns] for record in records]
    right = [each.right or _is_number(each.cell(records[0])) for each in columns]
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
    # Wrap long lines instead of cutting them, because half an id is useless.
    console.width = max(console.width, sum((each.width or 0) + 2 for each in table.columns))
    console.print(table)


def rich_table(records: Sequence[Record], columns: Sequence[Column], width: int) -> Any:
    """Return records as a table for a terminal. Columns with `wide` set are cut, so that a line fits into `width`."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    rows = [[as_text(each.cell(record)) for each in columns] for record in records]
    widths = [
        min(max(cell_len(cell) for cell in cells), WIDTH_MAX)
        for cells in zip((each.heading for each in columns), *rows)
    ]
    rest = width - sum(wide + 2 for wide, each in zip(widths, columns) if not each.wide)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each, natural in zip(columns, widths):
        number = each.right or (bool(records) and _is_number(each.cell(records[0])))
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
    """Ask before data is destroyed, unless `yes` is set. Exit if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Standard input is not a terminal: confirm with --yes", USAGE)
    if not typer.confirm(printable(question), err=True):
        fail("nothing was done")


@contextmanager
def naming_directory(directory: str) -> Iterator[None]:
    """Turn errors of the block, which uses a directory, into messages that name the directory."""
    try:
        yield
    except PermissionError as error:
        fail(f"{error.filename or directory} is not readable or writable for you; ask its owner for access")
    except FileNotFoundError as error:
        fail(f"{error.filename or directory} does not exist; check the path", NOT_FOUND)
    except (NotADirectoryError, FileExistsError) as error:
        fail(f"{error.filename or directory} is not a directory; name the directory of the queue")
    except (BrokenPipeError, Unreachable, BadId):
        # `Program` handles a closed pipe. The error of an unreachable server names the server already. An invalid id is
        # no fault of the directory.
        raise
    except CommandError as error:
        sentence = message_of(error)
        fail(sentence if sentence.startswith(directory) else f"{directory}: {sentence}", exit_code_of(error))
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}; check the disk and try again")
