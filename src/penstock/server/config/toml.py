"""Config files in TOML, with one top-level key per setting: reading, and changing values in place.

    port = 7711
    max_body = "64mb"

    [users.alice]
    password_sha256 = "…"

Python's tomllib reads TOML, but reports no line numbers and cannot write. So the lines of a setting are found by trial:
they are the fewest lines that parse by themselves.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.server.config.disque_conf import MARKER, Rewrite
from penstock.server.config.settings import ConfigError, find
from penstock.server.config.words import quote

# A value is searched in this many lines. A longer value is read, but cannot be changed in place.
VALUE_LINES_MAX: Final = 100

_KEY: Final = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=\s*""", re.ASCII)
_TABLE: Final = re.compile(r"""\s*\[+\s*["']?([A-Za-z0-9_-]+)""", re.ASCII)
_FIRST_LINE: Final = re.compile(r"""\s*(\[|[\w."'-]+\s*=)""")


@dataclass(frozen=True)
class Entry:
    """A key of the file, and its value."""

    place: str
    key: str
    value: object


def is_toml(text: str) -> bool:
    """Return whether a file is TOML: its first line that is no comment has an equals sign or a bracket."""
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            return _FIRST_LINE.match(line) is not None
    return False


def entries(text: str, label: str) -> Iterator[Entry]:
    """Yield all top-level keys and their values."""
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
    """The lines of a top-level key and its value."""

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
    """Return the numbers of the lines on which keys and tables begin, by their names. The first line is 1."""
    found = {span.key: span.first + 1 for span in _spans(lines)}
    for number, line in enumerate(lines, 1):
        table = _TABLE.match(line)
        if table:
            found.setdefault(table[1], number)
    return found


def rewritten(text: str, rewrites: dict[str, Rewrite]) -> str:
    """Return the text with new values. For each changed setting, `rewrites` has the new value in the field `line`.

    New keys are added after the last top-level key, because below a table's heading they would belong to the table.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    spans = list(_spans(lines))
    settings = [find(span.key) for span in spans]
    there = {setting.name for setting in settings if setting}
    added = [f"{name} = {rewrite.line}" for name, rewrite in rewrites.items() if name not in there and rewrite.needed]
    if added:
        end = spans[-1].last + 1 if spans else 0
        lines[end:end] = added if MARKER in lines else [MARKER, *added]
    for span, setting in reversed(list(zip(spans, settings))):  # From the end, so that earlier line numbers stay right.
        if setting and setting.name in rewrites:
            line = _replaced(lines[span.first : span.last + 1], rewrites[setting.name].line)
            lines[span.first : span.last + 1] = [line]
    result = "\n".join([*lines, ""])
    if not _parses(result):
        raise ConfigError("this TOML file cannot be changed line by line, so it was not changed")
    return result


def _replaced(lines: list[str], value: str) -> str:
    """Return the line that gives a key the new `value`. `lines` are the old lines of the key.

    If there is only one old line, keep the comment at its end.
    """
    key = _KEY.match(lines[0])
    assert key is not None
    comment = ""
    if len(lines) == 1:
        # The first # that follows a complete value starts the comment. An earlier one is inside of a string.
        at = next((at for at, sign in enumerate(lines[0]) if sign == "#" and _parses(lines[0][:at])), None)
        comment = f"  {lines[0][at:]}" if at is not None else ""
    return f"{key[0]}{value}{comment}"


def quoted(text: str) -> str:
    """Return a text as a TOML string on one line."""
    return quote(text, _escape)


def _escape(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        raise ConfigError("a value that is not UTF-8 cannot be written to a TOML file")
    return f"\\U{ord(character):08x}"
