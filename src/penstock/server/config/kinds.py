"""Kinds of settings: how the value of a setting is read and written.

A value has three written forms. `text` is for users and TOML ("64mb", "7d", "never"). `disque` is the reply of CONFIG
GET to programs written for Disque ("67108864", "604800", "no"). `conf` is for a config file in Disque's form.

A kind reads a list of words, because a line of a config file or a flag can have several. It also gets the previous
value: kinds that collect entries (renamed commands, users) add to it, and the others ignore it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.core.durations import UNITS_MS, read_duration
from penstock.core.limits import DURATION_MS_MAX
from penstock.server import machine
from penstock.server.config.words import UnbalancedQuotes, quote, split, to_bytes

T = TypeVar("T")

# The largest signed 64-bit integer, which compiled code can hold.
WHOLE_MAX: Final = (1 << 63) - 1

# Shown instead of a secret.
MASK: Final = "***"

# The maximum length of a value. CONFIG SET can receive hundreds of megabytes, and splitting them would take minutes.
TEXT_CHARACTERS_MAX: Final = 64 * 1024

# A recorded handshake of the bus lets an attacker test guesses offline, as fast as its hardware can. So a secret must
# look like 256 random bits: hex digits or base64, and not a password or words.
_RANDOM_HEX: Final = re.compile(r"[0-9A-Fa-f]{64,512}", re.ASCII)
_RANDOM_BASE64: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])[0-9A-Za-z+/_-]{43,510}={0,2}", re.ASCII)
_RANDOM_CHARACTERS_MIN: Final = 10  # Different ones. Less than one in a billion random secrets has fewer.

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,19}) ?([kmgt]i?b?|b)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS: Final[dict[str, int]] = {
    **{"": 1, "b": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000},
    **{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40},
}
_HOST_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}", re.ASCII | re.IGNORECASE)
_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)


class Refused(ValueError):
    """The input is not a valid value. The message describes valid values and completes the sentence "… must be …"."""


class Kind(Generic[T]):
    """A kind of setting: it reads and writes the values of settings of this kind."""

    # The type of its values, as written in an annotation.
    annotation: str
    # A description of valid values. It completes the sentence "… must be …" in errors and in the documentation.
    allowed: str
    # Whether a value is written as several words.
    several = False

    def read(self, word: str) -> T:
        """Parse a value that is one word. Raise Refused if it is not valid."""
        raise NotImplementedError

    def parse(self, words: list[str], before: T | None) -> T:
        """Parse a value that is a list of words. `before` is the previous value. Raise Refused if it is not valid."""
        if len(words) != 1:
            raise Refused(f"one value: {self.allowed}")
        return self.read(words[0])

    def take(self, given: object, before: T | None) -> T:
        """Parse a value in any form: a list of words, one text, or a TOML value.

        `before` is the previous value. Raise Refused if the new one is not valid.
        """
        if isinstance(given, str) and len(given) <= TEXT_CHARACTERS_MAX:
            return self.parse(self.words(given), before)
        if isinstance(given, list) and all(isinstance(each, str) for each in given):
            return self.parse(given, before)
        if isinstance(given, bool):
            return self.parse(["yes" if given else "no"], before)
        if isinstance(given, (int, float)):
            return self.parse([str(given)], before)
        raise Refused(self.allowed)

    def words(self, text: str) -> list[str]:
        """Split the text of a value into words."""
        if not self.several:
            return [text]
        try:
            return split(text)
        except UnbalancedQuotes:
            raise Refused("words with closed quotes") from None

    def initial(self, default: str) -> T:
        """Return the value of a setting that the user has not set."""
        return self.take(default, None)

    def text(self, value: T) -> str:
        """Return the text of a value in the form that users write."""
        return str(value)

    def masked(self, value: T) -> str:
        """Return the text that may be shown for a secret: only whether it is set."""
        return MASK if value else ""

    def disque(self, value: T) -> str:
        """Return the text of a value in the reply of CONFIG GET."""
        return self.text(value)

    def conf(self, value: T) -> str:
        """Return the text of a value that follows the directive in a config file of Disque's form."""
        return self.disque(value)

    def writes(self, words: list[str]) -> bool:
        """Return whether CONFIG REWRITE is allowed to replace a line with these words after the directive."""
        return True


class WholeNumber(Kind[int]):
    """A whole number within limits."""

    annotation = "int"

    def __init__(self, low: int, high: int = WHOLE_MAX, clamps: bool = False) -> None:
        self._low, self._high, self._clamps = low, high, clamps
        if clamps:
            self.allowed = f"a whole number (limited to {low} to {high})"
        else:
            self.allowed = f"a whole number {_range(str(low), str(high) if high < WHOLE_MAX else None)}"

    def read(self, word: str) -> int:
        if not _WHOLE.fullmatch(word):
            raise Refused(self.allowed)
        value = int(word)
        if self._clamps:
            return max(self._low, min(self._high, value))
        if not self._low <= value <= self._high:
            raise Refused(self.allowed)
        return value


class Mode(Kind[int]):
    """File permissions in octal digits. TOML numbers are read in the same way: 700 means the same as for chmod."""

    annotation = "int"
    allowed = "permissions in octal digits, from 0 to 777"

    def read(self, word: str) -> int:
        if not re.fullmatch(r"0?[0-7]{1,3}", word, re.ASCII):
            raise Refused(self.allowed)
        return int(word, 8)

    def text(self, value: int) -> str:
        return f"{value:o}"


class Size(Kind[int]):
    """A number of bytes."""

    annotation = "int"

    def __init__(self, low: int = 0, high: int = WHOLE_MAX, of_memory: bool = False) -> None:
        self._low, self._high, self._of_memory = low, high, of_memory
        limits = _range(size_text(low), size_text(high) if high < WHOLE_MAX else None)
        self.allowed = f"a size {limits}, like 64mb" + (", or a share of the machine's memory, like 50%" * of_memory)

    def read(self, word: str) -> int:
        share = _PERCENT.fullmatch(word) if self._of_memory else None
        value = _share_of_memory(int(share[1])) if share else read_size(word)
        if value is None or not self._low <= value <= self._high:
            raise Refused(self.allowed)
        return value

    def text(self, value: int) -> str:
        return size_text(value)

    def disque(self, value: int) -> str:
        return str(value)

    def conf(self, value: int) -> str:
        return size_text(value)


class Seconds(Kind[float]):
    """A duration. A number without a unit is in seconds."""

    annotation = "float"

    def __init__(self, low: float = 0, off: bool = False) -> None:
        self._low, self._off = low, off
        self.allowed = f"a time {_range(seconds_text(low), None)}, like 30 (seconds), 500ms or 7d" + ", or off" * off

    def read(self, word: str) -> float:
        if self._off and word.lower() == "off":
            return 0.0
        ms = read_duration(to_bytes(word))
        # "forever" is not allowed for settings.
        if not self._low * 1000 <= ms <= DURATION_MS_MAX:
            raise Refused(self.allowed)
        return ms / 1000

    def text(self, value: float) -> str:
        return "off" if self._off and value == 0 else seconds_text(value)

    def disque(self, value: float) -> str:
        return str(int(value)) if value == int(value) else f"{value:.3f}"


class Keepalive(Seconds):
    """A duration. CONFIG GET shows it as yes or no, and config files in Disque's form contain seconds."""

    _YES: Final = 300.0

    def read(self, word: str) -> float:
        if word.lower() in ("yes", "no"):
            return self._YES if word.lower() == "yes" else 0.0
        return super().read(word)

    def disque(self, value: float) -> str:
        return "yes" if value else "no"

    def conf(self, value: float) -> str:
        return super().disque(value)


class YesNo(Kind[bool]):
    """A value that is yes or no."""

    annotation = "bool"
    allowed = "yes or no"

    def read(self, word: str) -> bool:
        if word.lower() not in ("yes", "no"):
            raise Refused(self.allowed)
        return word.lower() == "yes"

    def text(self, value: bool) -> str:
        return "yes" if value else "no"


class Choice(Kind[str]):
    """One of several words. Disque's own word for one of the choices is accepted, too."""

    annotation = "str"

    def __init__(self, *choices: str, disque: dict[str, str] | None = None) -> None:
        self._disque = disque or {}
        self._choices = {choice: choice for choice in choices} | {word: ours for ours, word in self._disque.items()}
        self.allowed = f"{', '.join(choices[:-1])} or {choices[-1]}"

    def read(self, word: str) -> str:
        found = self._choices.get(word.lower())
        if found is None:
            raise Refused(self.allowed)
        return found

    def disque(self, value: str) -> str:
        return self._disque.get(value, value)


class Text(Kind[str]):
    """Any text."""

    annotation = "str"

    def __init__(self, bytes_max: int = 4_096) -> None:
        self._bytes_max = bytes_max
        self.allowed = f"text of at most {bytes_max:,} bytes"

    def read(self, word: str) -> str:
        if len(to_bytes(word)) > self._bytes_max:
            raise Refused(self.allowed)
        if "\0" in word:
            raise Refused(f"{self.allowed}, without zero bytes")
        return word

    def conf(self, value: str) -> str:
        return quote(value)


class Secret(Text):
    """A random secret of 256 bits as text, or an empty text for no secret."""

    def __init__(self) -> None:
        super().__init__(512)
        self.allowed = (
            "256 random bits as 64 hex digits or in base64: `penstock cluster secret` prints a new secret, "
            "and so does `openssl rand -hex 32`"
        )

    def read(self, word: str) -> str:
        is_random = _RANDOM_HEX.fullmatch(word) or _RANDOM_BASE64.fullmatch(word)
        if word and not (is_random and len(set(word)) >= _RANDOM_CHARACTERS_MIN):
            raise Refused(self.allowed)
        return super().read(word)


class Texts(Kind[tuple[str, ...]]):
    """A list of words."""

    annotation = "tuple[str, ...]"
    several = True

    def __init__(self, what: str, count_max: int) -> None:
        self._count_max = count_max
        self.allowed = f"1 to {count_max} {what}, separated by spaces"

    def parse(self, words: list[str], before: tuple[str, ...] | None) -> tuple[str, ...]:
        if not 1 <= len(words) <= self._count_max or not all(words) or any("\0" in word for word in words):
            raise Refused(self.allowed)
        return tuple(words)

    def text(self, value: tuple[str, ...]) -> str:
        return " ".join(value)


class HostNames(Kind[tuple[str, ...]]):
    """A list of host names. It can be empty."""

    annotation = "tuple[str, ...]"
    several = True
    allowed = "up to 64 names without ports, separated by spaces, or *"

    def parse(self, words: list[str], before: tuple[str, ...] | None) -> tuple[str, ...]:
        names = [word for word in words if word]
        if len(names) > 64 or not all(_HOST_NAME.fullmatch(name) or name == "*" for name in names):
            raise Refused(self.allowed)
        return tuple(name.lower() for name in names)

    def text(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def conf(self, value: tuple[str, ...]) -> str:
        return self.text(value) or '""'


class File(Kind[Path | None]):
    """A file, or none. A relative path starts in the directory in which the server was started."""

    annotation = "Path | None"
    allowed = "the path of a file"

    def read(self, word: str) -> Path | None:
        return _path(word, self.allowed) if word else None

    def text(self, value: Path | None) -> str:
        return str(value) if value else ""

    def conf(self, value: Path | None) -> str:
        return quote(self.text(value))


class Folder(Kind[Path]):
    """A directory. A relative path starts in the directory in which the server was started."""

    annotation = "Path"
    allowed = "the path of a directory"

    def read(self, word: str) -> Path:
        if not word:
            raise Refused(self.allowed)
        return _path(word, self.allowed)

    def conf(self, value: Path) -> str:
        return quote(str(value))


class OutputLimit(NamedTuple):
    """Limits of a client's unread replies. A client that exceeds one is disconnected. Zero is no limit."""

    hard_bytes: int  # A client with more unread bytes is disconnected immediately.
    soft_bytes: int  # More than this, for `soft_seconds` without a break, disconnects.
    soft_seconds: int


class OutputLimits(Kind[OutputLimit]):
    """The output limits of normal clients. Disque has no other class of clients.

    Early versions of Disque's example file had lines for Redis's classes `slave` and `pubsub`. Such lines are ignored.
    """

    annotation = "OutputLimit"
    allowed = "a hard limit, a soft limit and its seconds, like: normal 64mb 16mb 30"
    several = True

    def parse(self, words: list[str], before: OutputLimit | None) -> OutputLimit:
        if len(words) == 3:
            return self._limit(words)
        if not words or len(words) % 4:
            raise Refused(self.allowed)
        limits = {words[at].lower(): self._limit(words[at + 1 : at + 4]) for at in range(0, len(words), 4)}
        if not limits.keys() <= {"normal", "slave", "pubsub"}:
            raise Refused(self.allowed)
        return limits.get("normal") or before or OutputLimit(0, 0, 0)

    def _limit(self, words: list[str]) -> OutputLimit:
        hard, soft = read_size(words[0]), read_size(words[1])
        if hard is None or soft is None or not re.fullmatch("[0-9]{1,9}", words[2], re.ASCII):
            raise Refused(self.allowed)
        return OutputLimit(hard, soft, int(words[2]))

    def text(self, value: OutputLimit) -> str:
        return f"{size_text(value.hard_bytes)} {size_text(value.soft_bytes)} {value.soft_seconds}"

    def disque(self, value: OutputLimit) -> str:
        return f"normal {value.hard_bytes} {value.soft_bytes} {value.soft_seconds}"

    def conf(self, value: OutputLimit) -> str:
        return f"normal {self.text(value)}"

    def writes(self, words: list[str]) -> bool:
        return bool(words) and words[0].lower() not in ("slave", "pubsub")


class Collected(Kind[dict[str, T]]):
    """A dictionary of entries by name.

    A config file can have the setting on several lines. Each of these lines adds an entry, and CONFIG REWRITE keeps all
    entries.
    """

    several = True

    def entry(self, words: list[str]) -> tuple[str, T]:
        """Parse the words of one line. Return the name and the value of the entry, or raise Refused."""
        raise NotImplementedError

    def toml_entry(self, name: str, value: object) -> tuple[str, T]:
        """Parse an entry of a TOML table. Return its name and value, or raise Refused."""
        raise NotImplementedError

    def initial(self, default: str) -> dict[str, T]:
        return {}

    def parse(self, words: list[str], before: dict[str, T] | None) -> dict[str, T]:
        name, value = self.entry(words)
        return {**(before or {}), name: value}

    def take(self, given: object, before: dict[str, T] | None) -> dict[str, T]:
        if isinstance(given, dict):
            return {**(before or {}), **dict(self.toml_entry(name, each) for name, each in given.items())}
        if isinstance(given, str):  # One entry per line.
            for line in given.split("\n"):
                before = super().take(line, before) if line.strip() else before
            return before or {}
        return super().take(given, before)


class Renames(Collected[str]):
    """New names of commands, by their old names in lower case. An empty new name removes the command."""

    annotation = "dict[str, str]"
    allowed = 'a command and its new name, or "" for none'

    def entry(self, words: list[str]) -> tuple[str, str]:
        if len(words) != 2 or not words[0]:
            raise Refused(self.allowed)
        return words[0].lower(), words[1].lower()

    def toml_entry(self, name: str, value: object) -> tuple[str, str]:
        if not isinstance(value, str):
            raise Refused(self.allowed)
        return self.entry([name, value])


def read_size(word: str) -> int | None:
    """Parse a number of bytes, or return None. As in Disque, 1k is 1,000 bytes and 1kb is 1,024; 1kib equals 1kb."""
    found = _SIZE.fullmatch(word)
    return int(found[1]) * _SIZE_UNITS[(found[2] or "").lower().replace("i", "")] if found else None


def size_text(value: int) -> str:
    """Return the text of a size in the largest unit that divides it."""
    for unit in ("gb", "mb", "kb"):
        if value and value % _SIZE_UNITS[unit] == 0:
            return f"{value // _SIZE_UNITS[unit]}{unit}"
    return str(value)


def seconds_text(value: float) -> str:
    """Return the text of a duration in the largest unit that divides it."""
    ms = round(value * 1000)
    for unit in ("d", "h", "m", "s", "ms"):
        if ms and ms % UNITS_MS[unit.encode()] == 0:
            return f"{ms // UNITS_MS[unit.encode()]}{unit}"
    return "0"


def _share_of_memory(percent: int) -> int:
    """Return a percentage of the machine's memory in bytes, rounded to whole megabytes for readability."""
    megabyte = _SIZE_UNITS["mb"]
    return max(machine.memory_bytes() * percent // 100 // megabyte, 1) * megabyte


def _range(low: str, high: str | None) -> str:
    return f"of at least {low}" if high is None else f"from {low} to {high}"


def _path(word: str, allowed: str) -> Path:
    if "\0" in word:
        raise Refused(allowed)
    return Path(word)
