"""What is said to one server and how its answers are shown, whether a shell, a file or somebody at a prompt says it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from penstock.cli.answers import Answer
from penstock.cli.exits import printable
from penstock.cli.shown import as_text
from penstock.cli.speaker import Speaker
from penstock.core.errors import Unauthenticated, WrongPassword
from penstock.server.words import UnbalancedQuotes, split, to_bytes

Form = Callable[[Answer], str | bytes]

# The errors of a server to a client that has not authenticated, or cannot.
_NOT_AUTHENTICATED: Final = (Unauthenticated.code.encode(), WrongPassword.code.encode())

LEAVING: Final = ("quit", "exit")

# What these answer is a page of text, which nobody wants to see in quotes.
_PAGES_OF_TEXT: Final = {
    ("info",),
    ("client", "list"),
    ("cluster", "nodes"),
    ("cluster", "info"),
    ("latency", "doctor"),
    ("latency", "graph"),
}


class Conversation:
    """Commands and their answers."""

    def __init__(self, speaker: Speaker, form: Form) -> None:
        self.speaker = speaker
        self._form = form
        self.failed = False  # Whether anything was refused.
        self.is_locked_out = False  # Whether anything was refused because nobody has authenticated.

    def run(self, words: list[str]) -> None:
        """Say one command and show what is answered; raises what is Trouble."""
        if self.speaker.is_lost():
            self.speaker.close()
            self.speaker.connect()
            note(f"the server had closed the connection; connected to {self.speaker.address} again")
        answer = self.speaker.ask([to_bytes(word) for word in words])
        self.failed |= answer.is_error
        self.is_locked_out |= answer.is_error and (
            words[0].lower() == "auth" or answer.text.split(b" ", 1)[0] in _NOT_AUTHENTICATED
        )
        self._show(answer, words)
        if words[0].lower() == "monitor" and not answer.is_error:
            # From now on there is no end of answers.
            while True:
                self._show(self.speaker.hear(), words)

    def run_lines(self, lines: Iterable[str]) -> None:
        """Run commands that come from a file or another program; a line that makes no sense counts as refused."""
        for line in lines:
            words = self.words(line)
            if words and words[0].lower() in LEAVING:
                return
            if words:
                self.run(words)

    def words(self, line: str) -> list[str]:
        """The words of a line; none, and a sentence, if its quotes make no sense."""
        try:
            return split(line)
        except UnbalancedQuotes:
            self.failed = True
            sys.stdout.write("(error) a quote is not closed, or closed in the middle of a word\n")
            return []

    def _show(self, answer: Answer, words: list[str]) -> None:
        names = tuple(word.lower() for word in words[:2])
        if self._form is as_text and answer.kind == "$" and (names in _PAGES_OF_TEXT or names[:1] in _PAGES_OF_TEXT):
            answer = Answer("=", answer.text.replace(b"\r\n", b"\n").rstrip(b"\n"))
        shown = self._form(answer)
        sys.stdout.flush()
        sys.stdout.buffer.write(shown if isinstance(shown, bytes) else shown.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def note(words: str) -> None:
    """Say something that is no answer, where it is not taken for one."""
    sys.stdout.flush()
    sys.stderr.write(f"({printable(words)})\n")
    sys.stderr.flush()
