"""Parses the options of a source, which Spark passes as text. Unknown names and invalid values are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import OutOfRange, WrongType

# Options of every source and sink that name the server.
SERVER_OPTIONS: Final = ("url", "user", "password")

# Options that Spark adds.
_SPARK_OPTIONS: Final = ("checkpointLocation", "queryName")

_YES: Final = ("true", "yes", "1")
_NO: Final = ("false", "no", "0")

_UNITS: Final = ("", "k", "m", "g", "t")
_BYTES: Final = re.compile(r"([0-9]{1,18})([kmgt]?)b?")


def split_words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


class Options:
    """The options of a source. Their names are case-insensitive."""

    def __init__(
        self, source: str, given: Mapping[str, str], known: Iterable[str], aliases: Mapping[str, str] | None = None
    ) -> None:
        """Check the names of the given options. `aliases` has other names of known options."""
        self._given: dict[str, str] = {}
        self._source = source
        names = {name: name for name in (*SERVER_OPTIONS, *known, *_SPARK_OPTIONS)} | dict(aliases or {})
        by_case = {name.lower(): name for name in names}
        used: dict[str, str] = {}
        for lower, value in ((name.lower(), value) for name, value in given.items()):
            if lower not in by_case:
                close = get_close_matches(lower, by_case, 1, 0.6)
                listed = ", ".join(sorted((*SERVER_OPTIONS, *known)))
                hint = f"did you mean {by_case[close[0]]}?" if close else f"available options: {listed}"
                raise WrongType(f'format("{source}") has no option {lower!r}; {hint}')
            name = names[by_case[lower]]
            if name in used:
                both = " and ".join(sorted((used[name], by_case[lower])))
                raise WrongType(f"{both} are names of one option; give one of them")
            used[name] = by_case[lower]
            self._given[name.lower()] = value

    def urls(self) -> tuple[str, ...]:
        # Imported here, because some processes of Spark need only the columns of a source, and importing costs time.
        from penstock.spark.node import parse_urls

        return parse_urls(self._given.get("url"), self._given.get("user"), self._given.get("password"))

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower(), default)

    def required(self, name: str, why: str) -> str:
        """Return an option that must be given. `why` is part of the error if it is missing."""
        value = self._given.get(name.lower())
        if not value:
            raise WrongType(f'format("{self._source}") needs .option("{name}", …): {why}')
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of a comma-separated option."""
        return split_words(self._given.get(name.lower()))

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return an option that is a whole number from `least` to `most`."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        if not value.strip().isascii() or not value.strip().isdigit() or not least <= int(value) <= most:
            raise OutOfRange(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        return int(value)

    def bytes(self, name: str, default: int, least: int, most: int) -> int:
        """Return an option that is a number of bytes, with an optional unit of k, m, g or t."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        found = _BYTES.fullmatch(value.strip().lower())
        count = int(found[1]) << 10 * _UNITS.index(found[2]) if found else 0
        if not least <= count <= most:
            raise OutOfRange(f"{name} must be a number of bytes like 1000000 or 64m, not {value!r}")
        return count

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is true or false."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        if value.lower() not in (*_YES, *_NO):
            raise WrongType(f"{name} must be true or false, not {value!r}")
        return value.lower() in _YES

    def duration_ms(self, name: str, default: int) -> int:
        """Return an option that is a duration like 30s or 5m, in milliseconds."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        ms = read_duration(value.encode())
        if ms == NO_DURATION:
            raise WrongType(f"{name} must be a duration like 30s, 5m or 1h, not {value!r}")
        return ms
