"""TOML as a config file: a setting a key, at the top. How it is read, and changed in place.

    port = 7711
    max_body = "64mb"

    [users.alice]
    password_sha256 = "…"

Python reads TOML but does not say where what stands, and does not write it. So the lines of one setting are found by
trying: the fewest that are TOML by themselves.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.server.conf_file import MARKER, Rewrite
from penstock.server.settings import ConfigError, find

# How many lines one value is looked for in. One that has more is read all the same, but not changed in place.
VALUE_LINES_MAX: Final = 100

_KEY: Final = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=\s*""", re.ASCII)
_TABLE: Final = re.compile(r"""\s*\[+\s*["']?([A-Za-z0-9_-]+)""", re.ASCII)
_FIRST_LINE: Final = re.compile(r"""\s*(\[|[\w."'-]+\s*=)""")


@dataclass(frozen=True)
class Entry:
    """One key of the file, and what it is."""

    place: str
    key: str
    value: object


def is_toml(text: str) -> bool:
    """Tell TOML from Disque's form by the first line that says something: it has an equals sign, or a bracket."""
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            return _FIRST_LINE.match(line) is not None
    return False


def entries(text: str, label: str) -> Iterator[Entry]:
    """Everything that the file says."""
    try:
        text.encode()
        table = tomllib.loads(text.replace("\r\n", "\n"))
    except RecursionError:
        raise ConfigError(f"{label}: values are nested too deeply") from None
    except ValueError as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise ConfigError(f"{label}: {reason}") from None
    numbers = _numbers(text.split("\n"))
    for key, value in table.items():
        number = numbers.get(key)
        yield Entry(f"{label} line {number}" if number else label, key, value)


@dataclass(frozen=True)
class _Span:
    """The lines that one simple key and its value take, at the top of the file."""

    key: str
    first: int
    last: int


def _spans(lines: list[str]) -> Iterator[_Span]:
    at = 0
    while at < len(lines) and not lines[at].lstrip().startswith("["):
        last = _last_line(lines, at)
        if last is None:
            return
        key = _KEY.match(lines[at])
        if key:
            yield _Span(key[1], at, last)
        at = last + 1


def _last_line(lines: list[str], first: int) -> int | None:
    for last in range(first, min(first + VALUE_LINES_MAX, len(lines))):
        if _parses("\n".join(lines[first : last + 1])):
            return last
    return None


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text.replace("\r", ""))
    except (ValueError, RecursionError):
        return False
    return True


def _numbers(lines: list[str]) -> dict[str, int]:
    """On which line, from 1, a key or its table begins."""
    found = {span.key: span.first + 1 for span in _spans(lines)}
    for number, line in enumerate(lines, 1):
        table = _TABLE.match(line)
        if table:
            found.setdefault(table[1], number)
    return found


def rewritten(text: str, rewrites: dict[str, Rewrite]) -> str:
    """The text with these settings, by name, as they should be; the line of each is its value as TOML has it.

    What is new goes behind the last key at the top: below a table's heading it would belong to the table.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    spans = list(_spans(lines))
    settings = [find(span.key) for span in spans]
    there = {setting.name for setting in settings if setting}
    added = [f"{name} = {rewrite.line}" for name, rewrite in rewrites.items() if name not in there and rewrite.needed]
    if added:
        end = spans[-1].last + 1 if spans else 0
        lines[end:end] = added if MARKER in lines else [MARKER, *added]
    for span, setting in reversed(list(zip(spans, settings))):  # From below, so that the numbers above stay right.
        if setting and setting.name in rewrites:
            line = _replaced(lines[span.first : span.last + 1], rewrites[setting.name].line)
            lines[span.first : span.last + 1] = [line]
    result = "\n".join([*lines, ""])
    if not _parses(result):
        raise ConfigError("this TOML cannot be changed line by line; it was left as it is")
    return result


def _replaced(lines: list[str], value: str) -> str:
    """The line of a key with another value; the comment behind the old one stays, if that was on one line."""
    key = _KEY.match(lines[0])
    assert key is not None
    comment = ""
    if len(lines) == 1:
        # The first # before which there is a whole value is not inside of one.
        at = next((at for at, sign in enumerate(lines[0]) if sign == "#" and _parses(lines[0][:at])), None)
        comment = f"  {lines[0][at:]}" if at is not None else ""
    return f"{key[0]}{value}{comment}"


def quoted(text: str) -> str:
    """A text as TOML has it, on one line."""
    return f'"{"".join(_escape(character) for character in text)}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    if "\ud800" <= character <= "\udfff":
        raise ConfigError("a value that is not UTF-8 cannot be written to a TOML file")
    return f"\\U{ord(character):08x}"
