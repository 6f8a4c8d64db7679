"""Commands of `penstock cli` and their replies, from the shell, from a file or from the prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from penstock.cli.console.raw_connection import RawConnection, Status
from penstock.cli.console.reply_formats import format_text
from penstock.client.handshake import LOST, no_answer
from penstock.client.url import Target
from penstock.core.errors import CommandError, ConnectionLost, NoServer, Unauthenticated, WrongPassword
from penstock.server.config.words import UnbalancedQuotes, split, to_bytes
from penstock.wire.quoting import printable
from penstock.wire.resp_client import ErrorReply

# Errors of a connection. CommandError means that the server refused the authentication.
CONNECTION_ERRORS: Final = (NoServer, ConnectionLost, CommandError)

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
    """Sends commands to one server and prints the replies."""

    def __init__(self, server: Target, form: Callable[[object], str | bytes]) -> None:
        self.server = server
        self._form = form
        self._connection: RawConnection | None = None
        self.failed = False  # A command was refused.
        self.is_unauthenticated = False  # A command was refused because the client is not authenticated.

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def connect(self) -> RawConnection:
        """Connect again. Raise one of `CONNECTION_ERRORS` if that fails."""
        self.close()
        try:
            self._connection = RawConnection(self.server)
        except LOST as error:
            raise no_answer(self.server, self.server.seeds[0], error) from None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def run(self, words: list[str]) -> None:
        """Send a command and print its reply. Raise one of `CONNECTION_ERRORS` if the connection fails."""
        is_stale = self._connection is not None and self._connection.is_stale()
        connection = self.connect() if self._connection is None or is_stale else self._connection
        if is_stale:
            print_note(f"the server had closed the connection; reconnected to {self.server}")
        name = words[0].lower()
        try:
            answer = connection.call([to_bytes(word) for word in words])
            self._show(answer, words)
            while name == "monitor" and not isinstance(answer, ErrorReply):
                # The server sends replies until the connection is closed.
                self._show(connection.receive(), words)
        except BaseException:
            # The reply to an interrupted command must not be read as the reply to the next one.
            self.close()
            raise
        if isinstance(answer, ErrorReply):
            self.failed = True
            self.is_unauthenticated |= name == "auth" or answer.line.split(b" ", 1)[0] in _NOT_AUTHENTICATED

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

    def _show(self, answer: object, words: list[str]) -> None:
        names = tuple(word.lower() for word in words[:2])
        is_page = names in _PAGES_OF_TEXT or names[:1] in _PAGES_OF_TEXT
        if is_page and isinstance(answer, bytes) and self._form is format_text:
            answer = Status(answer.replace(b"\r\n", b"\n").rstrip(b"\n"))
        shown = self._form(answer)
        sys.stdout.flush()
        sys.stdout.buffer.write(shown if isinstance(shown, bytes) else shown.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def print_note(words: str) -> None:
    """Print a message on standard error, so that it cannot be mistaken for a reply."""
    sys.stdout.flush()
    sys.stderr.write(f"({printable(words)})\n")
    sys.stderr.flush()
