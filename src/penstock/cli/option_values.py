"""Parsers of option values and arguments: durations, moments, rates, sizes, bodies and ids."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.errors import USAGE, fail
from penstock.cli.name_completion import complete_jobs, complete_tubes

# The lowest rate is one job in 17 minutes. A lower one is probably a mistake.
RATE_MIN: Final = 0.001


def parse_duration(text: str | float) -> float:
    """Parse a duration like 30, 1.5, 250ms, 30s, 5m, 2h, 1d or forever. Return seconds. Return a number unchanged."""
    from penstock.core.durations import NO_DURATION, read_duration
    from penstock.core.limits import NEVER

    if not isinstance(text, str):
        return text
    ms = read_duration(text.encode())
    if ms == NO_DURATION:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30 (seconds), 500ms, 5m, 2h, 7d or forever")
    return math.inf if ms == NEVER else ms / 1000


def parse_datetime(text: str | datetime) -> datetime:
    """Parse a date and time in ISO 8601. Without an offset or a Z it is local time. Return a datetime unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a date and time; "
            "write 2026-12-24T18:00 (local time), 2026-12-24T18:00+01:00 or 2026-12-24T17:00Z"
        ) from None


def parse_rate(text: str | float) -> float:
    """Parse a number of jobs per second. Raise BadParameter if it is below RATE_MIN or not finite."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not RATE_MIN <= found < math.inf:
        raise typer.BadParameter(f"{text} is not a valid number of jobs per second; the minimum is {RATE_MIN}")
    return found


def rate_option(help: str) -> Any:
    """Return the option --rate, which limits the speed of a command."""
    return typer.Option("--rate", parser=parse_rate, metavar="N", help=help)


def parse_header(text: str | tuple[str, str]) -> tuple[str, str]:
    """Parse a header of the form NAME=VALUE. Return a pair unchanged."""
    if not isinstance(text, str):
        return text
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise typer.BadParameter(f"{text!r} is not a header; write NAME=VALUE, for example tenant=acme")
    return name, value


def unique_headers(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return headers as a dict. Raise BadHeaders if a name is given twice."""
    from penstock.core.errors import BadHeaders

    headers = dict(pairs)
    if len(headers) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadHeaders(f"the header {twice[:60]!r} is given twice; each name can have one value")
    return headers


def parse_json_object(text: str | dict[str, Any]) -> dict[str, Any]:
    """Parse a JSON object. Return a dict unchanged, because it is the default of the option."""
    if not isinstance(text, str):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter(f'{text!r} is not a JSON object; write for example \'{{"color": "red"}}\'')
    return found


def parse_size(text: str | int) -> int:
    """Parse a size like 1000, 64kb or 10gb. Return the number of bytes. Return a number unchanged."""
    from penstock.server.config.kinds import read_size

    if not isinstance(text, str):
        return text
    found = read_size(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size; write 1000 (bytes), 64kb or 10gb")
    return found


def duration_option(*names: str, help: str, default: str | bool = False) -> Any:
    """Return an option that is a duration. `default` is the text of its default in the help."""
    return typer.Option(*names, parser=parse_duration, metavar="TIME", help=help, show_default=default)


# The type in which consumers receive a body.
BodyKind = StrEnum("BodyKind", "BYTES TEXT JSON")


def read_body(word: str, kind: BodyKind | None) -> Any:
    """Return the body that an argument names: `@FILE`, `-` for standard input, or the text itself.

    A text that starts with `@@` stands for a body that starts with `@`.
    """
    if word == "-":
        raw = sys.stdin.buffer.read()
    elif word.startswith("@") and not word.startswith("@@"):
        raw = Path(word[1:]).read_bytes()
    else:
        raw = os.fsencode(word.removeprefix("@") if word.startswith("@@") else word)
    return body_of(raw, kind)


def body_of(raw: bytes, kind: BodyKind | None) -> Any:
    """Return bytes as a body of this type. Without a type, the body is text if the bytes are UTF-8."""
    if kind is BodyKind.BYTES:
        return raw
    if kind is BodyKind.JSON:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            fail(f"the body is not JSON ({json_error(error)}); correct it, or use --as text", USAGE)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if kind is BodyKind.TEXT:
            fail("the body is not UTF-8 text; use --as bytes", USAGE)
        return raw


def json_error(error: Exception) -> str:
    """Return a description of a JSON error with its position."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def read_ids(words: Iterable[str]) -> Iterator[str]:
    """Yield the given ids. For `-`, read standard input: each line is an id, or a job as `--json` prints it."""
    for word in words:
        if word != "-":
            yield word
            continue
        for number, line in enumerate(sys.stdin, 1):
            if line.strip():
                yield _id_in(line.strip(), number)


def _id_in(line: str, number: int) -> str:
    if not line.startswith("{"):
        return line.split()[0]
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, RecursionError):
        fail(f'line {number} of standard input has no id; write ids, or JSON objects with an "id"', USAGE)


TubeName = Annotated[str, typer.Argument(metavar="TUBE", help="Name of the tube.", autocompletion=complete_tubes)]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of the job: 40 characters, 32 hexadecimal digits, or TUBE#NUMBER.",
        autocompletion=complete_jobs,
    ),
]
PastJobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of the job: 40 characters, 32 hexadecimal digits, TUBE#NUMBER, or its number in a lake.",
        autocompletion=complete_jobs,
    ),
]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help="Ids of jobs. - reads them from standard input, one per line, bare or as JSON.",
        autocompletion=complete_jobs,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and to how many jobs.")]
Delay = Annotated[float, duration_option("--delay", help="Wait this long before the job can be taken.")]
