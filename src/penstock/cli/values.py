"""What people type for a time, a body or an id, and what it stands for."""

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

from penstock.cli.exits import USAGE, fail
from penstock.cli.names import complete_jobs, complete_tubes

# A slower rate than a job in 17 minutes is a mistake.
RATE_MIN: Final = 0.001


def duration(text: str | float) -> float:
    """A time in seconds: 30, 1.5, 250ms, 30s, 5m, 2h, 1d; forever. A default is one already."""
    from penstock.core.durations import NO_DURATION, read_duration
    from penstock.core.limits import NEVER

    if not isinstance(text, str):
        return text
    ms = read_duration(text.encode())
    if ms == NO_DURATION:
        raise typer.BadParameter(f"{text!r} is no time; write 30 (seconds), 500ms, 5m, 2h or 7d, or forever")
    return math.inf if ms == NEVER else ms / 1000


def moment(text: str | datetime) -> datetime:
    """A moment in ISO 8601, in local time unless it has an offset or a Z. A default is one already."""
    if not isinstance(text, str):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2026-12-24T18:00 (local time), 2026-12-24T18:00+01:00 or 2026-12-24T17:00Z"
        ) from None


def rate(text: str | float) -> float:
    """A number of jobs per second. A default is one already."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not RATE_MIN <= found < math.inf:
        raise typer.BadParameter(f"{text} is no number of jobs a second; write one from {RATE_MIN} on, or leave it out")
    return found


def rate_option(help: str) -> Any:
    """The option --rate of a command that can be slowed down."""
    return typer.Option("--rate", parser=rate, metavar="N", help=help)


def json_object(text: str | dict[str, Any]) -> dict[str, Any]:
    """A JSON object. A default is one already."""
    if not isinstance(text, str):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter(f'{text!r} is no JSON object; write one like \'{{"color": "red"}}\'')
    return found


def size(text: str | int) -> int:
    """A number of bytes: 1000, 64kb, 10gb. A default is one already."""
    from penstock.server.kinds import read_size

    if not isinstance(text, str):
        return text
    found = read_size(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size; write 1000 (bytes), 64kb or 10gb")
    return found


def duration_option(*names: str, help: str, default: str | bool = False) -> Any:
    """An option that is a time, and how its default is written."""
    return typer.Option(*names, parser=duration, metavar="TIME", help=help, show_default=default)


class BodyKind(StrEnum):
    """What a body is to those who take it."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


def read_body(word: str, kind: BodyKind | None) -> Any:
    """The body that an argument stands for: itself, `@FILE`, or `-` for standard input; `@@` begins one with an @."""
    if word == "-":
        raw = sys.stdin.buffer.read()
    elif word.startswith("@") and not word.startswith("@@"):
        raw = Path(word[1:]).read_bytes()
    else:
        raw = os.fsencode(word.removeprefix("@") if word.startswith("@@") else word)
    return body_of(raw, kind)


def body_of(raw: bytes, kind: BodyKind | None) -> Any:
    """Bytes as what they are said to be; without a word, text if that is what they are."""
    if kind is BodyKind.BYTES:
        return raw
    if kind is BodyKind.JSON:
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            fail(f"the body is not JSON ({json_trouble(error)}); mend it, or say --as text", USAGE)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if kind is BodyKind.TEXT:
            fail("the body is not text in UTF-8; say --as bytes", USAGE)
        return raw


def json_trouble(error: Exception) -> str:
    """What is wrong with a piece of JSON, and where in it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def read_ids(words: Iterable[str]) -> Iterator[str]:
    """Ids as they were given; `-` stands for those on standard input, a line each, bare or as `--json` writes jobs."""
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
        fail(f'line {number} of standard input has no id: give ids, or JSON with an "id" in it', USAGE)


TubeName = Annotated[str, typer.Argument(metavar="TUBE", help="The tube's name.", autocompletion=complete_tubes)]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The job's id: 40 characters, 32 hexadecimal digits, or TUBE#NUMBER.",
        autocompletion=complete_jobs,
    ),
]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help="Ids of jobs; - reads them from standard input, a line each, bare or as JSON.",
        autocompletion=complete_jobs,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done, and to how many.")]
Delay = Annotated[float, duration_option("--delay", help="Not before so long.")]
