"""What the value of a setting can be: what people may write for it, and how it is written back.

A value has three written forms: `text`, for people and TOML ("64mb", "7d", "never"); `disque`, what CONFIG GET answers
to programs made for Disque ("67108864", "604800", "no"); and `conf`, what stands in a config file of Disque's.

A kind reads words, because a line of a config file and a flag may have several. It is also told what the value was
before: of a kind that collects (renamed commands, users), every line adds to it; the others do not look.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.core.durations import UNITS_MS, read_duration
from penstock.core.limits import DURATION_MS_MAX
from penstock.server import machine
from penstock.server.words import UnbalancedQuotes, quote, split, to_bytes

T = TypeVar("T")

# What a signed 64-bit integer holds: compiled code must be able to take it.
WHOLE_MAX: Final = (1 << 63) - 1

# Shown instead of a secret.
MASK: Final = "***"

# No value is longer; CONFIG SET could bring hundreds of megabytes, and splitting them into words takes minutes.
TEXT_CHARACTERS_MAX: Final = 64 * 1024

# A recorded handshake of the bus lets an attacker test guesses offline, as fast as its hardware can. So a secret must
# look like 256 random bits: hex digits or base64, and not a password or words.
_RANDOM_HEX: Final = re.compile(r"[0-9A-Fa-f]{64,512}", re.ASCII)
_RANDOM_BASE64: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])[0-9A-Za-z+/_-]{43,510}={0,2}", re.ASCII)
_RANDOM_CHARACTERS_MIN: Final = 10  # So many different ones: less than one in a billion random secrets has fewer.

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,19}) ?([kmgt]i?b?|b)?", re.ASCII | re.IGNORECASE)
_SIZE_UNITS: Final[dict[str, int]] = {
    **{"": 1, "b": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000},
    **{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40},
}
_HOST_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}", re.ASCII | re.IGNORECASE)
_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)


class Refused(ValueError):
    """This is no such value. The message says what would be, and goes on from "must be"."""


class Kind(Generic[T]):
    """One kind of value."""

    # The type that its values have, as it is written in an annotation.
    annotation: str
    # What a value must be: goes on from "must be" in errors and in the documentation.
    allowed: str
    # Whether it is written as several words.
    several = False

    def read(self, word: str) -> T:
        """The value that one word stands for; raises Refused."""
        raise NotImplementedError

    def parse(self, words: list[str], before: T | None) -> T:
        """The value after these words were given; raises Refused."""
        if len(words) != 1:
            raise Refused(f"one value: {self.allowed}")
        return self.read(words[0])

    def take(self, given: object, before: T | None) -> T:
        """The value after this was given: words, a text that comes in one piece, or what TOML has; raises Refused."""
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
        """The words of a text."""
        if not self.several:
            return [text]
        try:
            return split(text)
        except UnbalancedQuotes:
            raise Refused("words whose quotes are closed") from None

    def initial(self, default: str) -> T:
        """The value while nothing was given."""
        return self.take(default, None)

    def text(self, value: T) -> str:
        """As people write it."""
        return str(value)

    def masked(self, value: T) -> str:
        """As much of a secret as may be shown: whether there is one."""
        return MASK if value else ""

    def disque(self, value: T) -> str:
        """As CONFIG GET answers it."""
        return self.text(value)

    def conf(self, value: T) -> str:
        """As it stands behind the directive in a config file of Disque's."""
        return self.disque(value)

    def writes(self, words: list[str]) -> bool:
        """Whether a line with these words behind the directive is the one that `conf` would write anew."""
        return True


class Whole(Kind[int]):
    """A whole number."""

    annotation = "int"

    def __init__(self, low: int, high: int = WHOLE_MAX, clamps: bool = False) -> None:
        self._low, self._high, self._clamps = low, high, clamps
        if clamps:
            self.allowed = f"a whole number (taken as one from {low} to {high})"
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
    """The permissions of a file, in octal digits; in TOML too, where 700 means what it means to chmod."""

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
    """A time. What is given without a unit is in seconds."""

    annotation = "float"

    def __init__(self, low: float = 0, off: bool = False) -> None:
        self._low, self._off = low, off
        self.allowed = f"a time {_range(seconds_text(low), None)}, like 30 (seconds), 500ms or 7d" + ", or off" * off

    def read(self, word: str) -> float:
        if self._off and word.lower() == "off":
            return 0.0
        ms = read_duration(to_bytes(word))
        # What is for ever is no value of a setting either.
        if not self._low * 1000 <= ms <= DURATION_MS_MAX:
            raise Refused(self.allowed)
        return ms / 1000

    def text(self, value: float) -> str:
        return "off" if self._off and value == 0 else seconds_text(value)

    def disque(self, value: float) -> str:
        return str(int(value)) if value == int(value) else f"{value:.3f}"


class Keepalive(Seconds):
    """A time that Disque's CONFIG knows only as yes and no, though its file has seconds."""

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
    """Yes or no."""

    annotation = "bool"
    allowed = "yes or no"

    def read(self, word: str) -> bool:
        if word.lower() not in ("yes", "no"):
            raise Refused(self.allowed)
        return word.lower() == "yes"

    def text(self, value: bool) -> str:
        return "yes" if value else "no"


class Choice(Kind[str]):
    """One of some words. Where Disque has another word for one, that is another way to write it."""

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
            raise Refused(f"{self.allowed}, none of them zero")
        return word

    def conf(self, value: str) -> str:
        return quote(value)


class Secret(Text):
    """A random secret that cannot be guessed, or none."""

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
    """Some words."""

    annotation = "tuple[str, ...]"
    several = True

    def __init__(self, what: str, count_max: int) -> None:
        self._count_max = count_max
        self.allowed = f"1 to {count_max} {what}, with spaces between"

    def parse(self, words: list[str], before: tuple[str, ...] | None) -> tuple[str, ...]:
        if not 1 <= len(words) <= self._count_max or not all(words) or any("\0" in word for word in words):
            raise Refused(self.allowed)
        return tuple(words)

    def text(self, value: tuple[str, ...]) -> str:
        return " ".join(value)


class HostNames(Kind[tuple[str, ...]]):
    """Names of this machine, or none."""

    annotation = "tuple[str, ...]"
    several = True
    allowed = "up to 64 names without ports, with spaces between, or *"

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
    """A file, or none. A relative path begins where the server was started."""

    annotation = "Path | None"
    allowed = "the path of a file"

    def read(self, word: str) -> Path | None:
        return _path(word, self.allowed) if word else None

    def text(self, value: Path | None) -> str:
        return str(value) if value else ""

    def conf(self, value: Path | None) -> str:
        return quote(self.text(value))


class Folder(Kind[Path]):
    """A directory. A relative path begins where the server was started."""

    annotation = "Path"
    allowed = "the path of a directory"

    def read(self, word: str) -> Path:
        if not word:
            raise Refused(self.allowed)
        return _path(word, self.allowed)

    def conf(self, value: Path) -> str:
        return quote(str(value))


class OutputLimit(NamedTuple):
    """How much may wait to be sent to a client before it is disconnected. Zero: no limit."""

    hard_bytes: int  # At once.
    soft_bytes: int  # When it has been more than this...
    soft_seconds: int  # ...for so long without a break.


class OutputLimits(Kind[OutputLimit]):
    """The limit of normal clients, the only class that Disque has.

    Its example file had lines for two classes of Redis's once. They may stay there, and mean nothing.
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
    """Entries by name; every line adds one. They are never written back: their lines stay as they are."""

    several = True

    def entry(self, words: list[str]) -> tuple[str, T]:
        """The name and the entry that one line has; raises Refused."""
        raise NotImplementedError

    def toml_entry(self, name: str, value: object) -> tuple[str, T]:
        """The name and the entry that a TOML table has; raises Refused."""
        raise NotImplementedError

    def initial(self, default: str) -> dict[str, T]:
        return {}

    def parse(self, words: list[str], before: dict[str, T] | None) -> dict[str, T]:
        name, value = self.entry(words)
        return {**(before or {}), name: value}

    def take(self, given: object, before: dict[str, T] | None) -> dict[str, T]:
        if isinstance(given, dict):
            return {**(before or {}), **dict(self.toml_entry(name, each) for name, each in given.items())}
        if isinstance(given, str):  # Of which every line counts.
            for line in given.split("\n"):
                before = super().take(line, before) if line.strip() else before
            return before or {}
        return super().take(given, before)


class Renames(Collected[str]):
    """New names by old ones, in lower case; an empty new name means that there is no such command any more."""

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
    """A number of bytes: 1k is 1,000 of them and 1kb is 1,024, as in Disque; 1kib is another way to write 1kb."""
    found = _SIZE.fullmatch(word)
    return int(found[1]) * _SIZE_UNITS[(found[2] or "").lower().replace("i", "")] if found else None


def size_text(value: int) -> str:
    """In the largest unit of which it is a whole number."""
    for unit in ("gb", "mb", "kb"):
        if value and value % _SIZE_UNITS[unit] == 0:
            return f"{value // _SIZE_UNITS[unit]}{unit}"
    return str(value)


def seconds_text(value: float) -> str:
    """In the largest unit of which it is a whole number."""
    ms = round(value * 1000)
    for unit in ("d", "h", "m", "s", "ms"):
        if ms and ms % UNITS_MS[unit.encode()] == 0:
            return f"{ms // UNITS_MS[unit.encode()]}{unit}"
    return "0"


def _share_of_memory(percent: int) -> int:
    """In whole megabytes: nobody means more than that by a percentage, and it is easier to read."""
    megabyte = _SIZE_UNITS["mb"]
    return max(machine.memory_bytes() * percent // 100 // megabyte, 1) * megabyte


def _range(low: str, high: str | None) -> str:
    return f"of at least {low}" if high is None else f"from {low} to {high}"


def _path(word: str, allowed: str) -> Path:
    if "\0" in word:
        raise Refused(allowed)
    return Path(word)
