"""Help and completion for the prompt: the summary and grammar of every command of this version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.node.caller import GROUPS
from penstock.server.commands.command_list import tables

_WORD: Final = re.compile(r"\b[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*\b")


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """The help of one command."""

    name: str  # In capitals.
    grammar: str
    summary: str
    group: str

    def text(self) -> str:
        return f"\n  {self.name} {self.grammar}".rstrip() + f"\n  {self.summary}\n  group: {self.group}\n"


class Manual:
    """The help of all commands. Subcommands have names of two words."""

    def __init__(self, pages: list[CommandHelp]) -> None:
        self._pages = {page.name: page for page in sorted(pages, key=lambda page: page.name)}

    def help(self, words: list[str]) -> str:
        """Return the help for a command, a family of subcommands or a group. Without words, explain help itself."""
        if not words:
            return _ABOUT
        name = " ".join(words[:2]).upper()
        found = [page for page in self._pages.values() if page.name == name or page.name.startswith(f"{name} ")]
        if words[0].startswith("@"):
            found = [page for page in self._pages.values() if page.group == words[0][1:].lower()]
        return "".join(page.text() for page in found) or self._unknown(" ".join(words))

    def _unknown(self, name: str) -> str:
        groups = ", ".join(f"@{group}" for group in sorted({page.group for page in self._pages.values()}))
        near = [each for each in self._pages if each.startswith(name.upper()[:3])]
        return f"\n  There is no {name}. Commands like it: {', '.join(near) or 'none'}. Groups: {groups}\n"

    def completions(self, words: list[str], begun: str) -> list[str]:
        """Return the words that begin with `begun` and can follow `words`, in lower case if `begun` is."""
        typed = [word.upper() for word in words]
        if typed[:1] in (["HELP"], ["?"]):
            found = self._names(typed[1:])
        else:
            found = self._names(typed) or self._options(typed)
            found += ["HELP", "QUIT"] if not typed else []
        fitting = dict.fromkeys(word for word in found if word.startswith(begun.upper()))
        return [word.lower() if begun and begun == begun.lower() else word for word in fitting]

    def _names(self, typed: list[str]) -> list[str]:
        """Return the next words of the command names that begin with the typed words."""
        names = [name.split() for name in self._pages]
        return [name[len(typed)] for name in names if len(name) > len(typed) and name[: len(typed)] == typed]

    def _options(self, typed: list[str]) -> list[str]:
        page = self._pages.get(" ".join(typed[:2])) or self._pages.get(typed[0])
        return [] if page is None else _options(page.grammar, typed[len(page.name.split()) :])


def _options(grammar: str, typed: list[str]) -> list[str]:
    """Return the option words (in capitals) that can follow the words `typed`, according to a command's grammar."""
    alternatives = [part.strip() for part in grammar.strip("[]").split(" | ")]
    if len(alternatives) == 1:
        return _WORD.findall(grammar)
    if not typed:
        return [word for part in alternatives for word in _WORD.findall(part)[:1]]
    begun = [part for part in alternatives if part.split(" ")[0].upper() == typed[0]]
    return [word for part in begun for word in _WORD.findall(part)[1:]]


_ABOUT: Final = """
  help COMMAND     summary and arguments of a command
  help @GROUP      all commands of a group: @read, @write, @admin
  quit             leave the prompt, as Ctrl-D does; Ctrl-C interrupts a waiting command
  Tab completes commands and their arguments.
"""


def built_in() -> Manual:
    """Return the manual of all commands of this version."""
    return Manual(
        [
            CommandHelp(
                command.name.decode().upper(),
                command.grammar,
                command.summary,
                next(name for name, bit in GROUPS.items() if command.group & bit),
            )
            for kind in tables()
            for command in kind
        ]
    )
