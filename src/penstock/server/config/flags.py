"""Settings on the command line, in the form of disque-server: `--port 7712 --bind 127.0.0.1 ::1 --appendonly yes`.

The value of a flag is every word up to the next flag. `--port=7712` is also possible. A yes-or-no setting needs no
value: `--journal`, `--no-journal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.server.config.kinds import YesNo
from penstock.server.config.settings import ConfigError, Setting, UnknownSetting, find, quoted_input, suggestion


@dataclass(frozen=True)
class Flag:
    """A flag as it was written, and the words of its value."""

    word: str
    setting: Setting
    words: list[str]

    @property
    def place(self) -> str:
        return f"flag --{self.word}"


def read(flags: Sequence[str] | Mapping[str, str]) -> Iterator[Flag]:
    """Yield every flag in order. If a setting has several flags, the last one counts."""
    arguments = [f"--{name}={value}" for name, value in flags.items()] if isinstance(flags, Mapping) else flags
    at = 0
    while at < len(arguments):
        if not arguments[at].startswith("--"):
            raise ConfigError(f"{quoted_input(arguments[at])} is not a flag; write settings like --port 7711")
        end = at + 1
        while end < len(arguments) and not arguments[end].startswith("--"):
            end += 1
        word, equals, value = arguments[at][2:].partition("=")
        yield _flag(word, [value] * bool(equals) + list(arguments[at + 1 : end]))
        at = end


def _flag(word: str, words: list[str]) -> Flag:
    setting = find(word)
    if setting is not None:
        return Flag(word, setting, words or ["yes"] * isinstance(setting.kind, YesNo))
    denied = find(word[3:]) if word.lower().startswith("no-") else None
    if denied is None or not isinstance(denied.kind, YesNo):
        raise UnknownSetting(word, f"there is no flag {quoted_input(f'--{word}')}{suggestion(word, '--')}")
    if words:
        raise ConfigError(f"flag --{word}: must have no value, not {quoted_input(words[0])}")
    return Flag(word, denied, ["no"])
