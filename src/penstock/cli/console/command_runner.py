"""Commands of `penstock cli` and their answers, from the shell, from a file or from the prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from penstock.cli.console.raw_connection import RawConnection
from penstock.cli.console.raw_replies import Reply
from penstock.cli.console.reply_formats import format_text
from penstock.core.errors import Unauthenticated, WrongPassword
from penstock.server.config.words import UnbalancedQuotes, split, to_bytes
from penstock.wire.quoting import printable

ReplyFormat = Callable[[Reply], str | bytes]

# The errors of a server to a client that has not authenticated, or cannot.
_NOT_AUTHENTICATED: Final = (Unauthenticated.code.encode(), WrongPassword.code.encode())

QUIT_WORDS: Final = ("quit", "exit")

# Commands that answer with a page of text. It is printed without quotes.
_PAGES_OF_TEXT: Final = {
    ("info",),
    ("client", "list"),
    ("cluster", "nodes"),
    ("cluster", "info"),
    ("latency", "doctor"),
    ("latency", "graph"),
}


class CommandRunner:
    """Sends commands to one server and prints the answers."""

    def __init__(self, speaker: RawConnection, form: ReplyFormat) -> None:
        self.speaker = speaker
        self._form = form
        self.failed = False  # A command was refused.
        self.is_unauthenticated = False  # A command was refused because the client is not authenticated.

    def run(self, words: list[str]) -> None:
        """Send a command and print its answer. Raise one of `CONNECTION_ERRORS` if the connection fails."""
        if self.speaker.is_closed_by_server():
            self.speaker.close()
            self.speaker.connect()
            print_note(f"the server had closed the connection; reconnected to {self.speaker.address}")
        answer = self.speaker.call([to_bytes(word) for word in words])
        self.failed |= answer.is_error
        self.is_unauthenticated |= answer.is_error and (
            words[0].lower() == "auth" or answer.text.split(b" ", 1)[0] in _NOT_AUTHENTICATED
        )
        self._show(answer, words)
        if words[0].lower() == "monitor" and not answer.is_error:
            # The server sends answers until the connection is closed.
            while True:
                self._show(self.speaker.receive(), words)

    def run_lines(self, lines: Iterable[str]) -> None:
        """Run commands from a file or another program. A line with unbalanced quotes counts as refused."""
        for line in lines:
            words = self.words(line)
            if words and words[0].lower() in QUIT_WORDS:
                return
            if words:
                self.run(words)

    def words(self, line: str) -> list[str]:
        """Split a line into words. If its quotes are unbalanced, print an error and return no words."""
        try:
            return split(line)
        except UnbalancedQuotes:
            self.failed = True
            sys.stdout.write("(error) a quote is not closed, or closed in the middle of a word\n")
            return []

    def _show(self, answer: Reply, words: list[str]) -> None:
        names = tuple(word.lower() for word in words[:2])
        if (
            self._form is format_text
            and answer.kind == "$"
            and (names in _PAGES_OF_TEXT or names[:1] in _PAGES_OF_TEXT)
        ):
            answer = Reply("=", answer.text.replace(b"\r\n", b"\n").rstrip(b"\n"))
        shown = self._form(answer)
        sys.stdout.flush()
        sys.stdout.buffer.write(shown if isinstance(shown, bytes) else shown.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def print_note(words: str) -> None:
    """Print a message on standard error, so that it cannot be mistaken for an answer."""
    sys.stdout.flush()
    sys.stderr.write(f"({printable(words)})\n")
    sys.stderr.flush()
