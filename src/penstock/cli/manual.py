"""What a prompt knows of the commands: what they do, and with which words; told by the server or, offline, by us."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.cli.answers import Answer

_WORD: Final = re.compile(r"\b[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*\b")


@dataclass(frozen=True, slots=True)
class Page:
    """One command."""

    name: str  # In capitals.
    grammar: str
    summary: str
    group: str

    def text(self) -> str:
        return f"\n  {self.name} {self.grammar}".rstrip() + f"\n  {self.summary}\n  group: {self.group}\n"


class Manual:
    """All commands."""

    def __init__(self, pages: list[Page]) -> None:
        self._pages = {page.name: page for page in sorted(pages, key=lambda page: page.name)}

    def help(self, words: list[str]) -> str:
        """What is told about a command, a group of them, or help itself."""
        if not words:
            return _ABOUT
        if words[0].startswith("@"):
            pages = [page for page in self._pages.values() if page.group == words[0][1:].lower()]
            return "".join(page.text() for page in pages) or self._unknown(words[0])
        page = self._pages.get(words[0].upper())
        return self._unknown(words[0]) if page is None else page.text()

    def _unknown(self, word: str) -> str:
        groups = ", ".join(f"@{group}" for group in sorted({page.group for page in self._pages.values()}))
        near = [name for name in self._pages if name.startswith(word.upper()[:3])]
        return f"\n  There is no {word}. Commands like it: {', '.join(near) or 'none'}. Groups: {groups}\n"

    def completions(self, words: list[str], begun: str) -> list[str]:
        """How a word that is begun may go on, behind these words; in the case it is typed in."""
        if not words:
            found: Iterator[str] | list[str] = iter([*self._pages, "HELP", "QUIT"])
        elif words[0].upper() in ("HELP", "?"):
            found = iter(self._pages)
        else:
            page = self._pages.get(words[0].upper())
            found = [] if page is None else _options(page, words)
        fitting = dict.fromkeys(word for word in found if word.startswith(begun.upper()))
        return [word.lower() if begun and begun == begun.lower() else word for word in fitting]


def _options(page: Page, words: list[str]) -> list[str]:
    """The words in capitals of a grammar; where it offers alternatives, only those of the one that was begun."""
    alternatives = [part.strip() for part in re.split(r" \| ", page.grammar.strip("[]"))]
    if len(alternatives) > 1 and len(words) > 1:
        begun = [part for part in alternatives if part.split(" ")[0].upper() == words[1].upper()]
        return [word for part in begun for word in _WORD.findall(part)[1:]]
    if len(alternatives) > 1:
        return [word for part in alternatives for word in _WORD.findall(part)[:1]]
    return _WORD.findall(page.grammar)


_ABOUT: Final = """
  help COMMAND     what a command does, and with which words
  help @GROUP      all commands of a group: @read, @write, @admin
  quit             leave; so does Ctrl-D. Ctrl-C leaves a command that waits.
  Tab completes commands and their words.
"""


def from_docs(answer: Answer) -> Manual:
    """What COMMAND DOCS told, in version 2 or 3."""
    pages = []
    for name, told in _pairs(answer):
        about = dict(_pairs(told))
        arguments = [dict(_pairs(each)).get("name") for each in about.get("arguments", Answer("*")).items]
        grammar = " ".join(_text(each) for each in arguments if each is not None)
        summary, group = (_text(about.get(what, Answer("$"))) for what in ("summary", "group"))
        pages.append(Page(name.upper(), grammar, summary, group))
    return Manual(pages)


def offline() -> Manual:
    """What a server of this version would tell."""
    from penstock.dialects.command import GROUPS
    from penstock.server.catalogue import commands

    return Manual(
        [
            Page(
                command.name.decode().upper(),
                command.grammar,
                command.summary,
                next(name for name, bit in GROUPS.items() if command.group & bit),
            )
            for command in commands()
        ]
    )


def _pairs(answer: Answer) -> Iterator[tuple[str, Answer]]:
    for name, value in zip(answer.items[::2], answer.items[1::2]):
        yield _text(name), value


def _text(answer: Answer) -> str:
    return answer.text.decode("utf-8", "backslashreplace")
