"""The prompt of `penstock cli`: history, completion, help; a lost server is said, and found again."""

from __future__ import annotations

import os
import readline
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cli.conversation import LEAVING, Conversation, note
from penstock.cli.exits import printable_lines
from penstock.cli.manual import Manual, from_docs, offline
from penstock.cli.speaker import Trouble
from penstock.server.settings import find

_HISTORY_LINES: Final = 1_000


class Prompt:
    """Somebody who types."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._speaker = conversation.speaker
        self._manual: Manual | None = None

    def run(self, history: Path) -> None:
        """Read and run lines until somebody leaves."""
        readline.set_completer(self._complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        with suppress(OSError):
            readline.read_history_file(history)
        try:
            self._connect("")
            while self._run_line():
                pass
        finally:
            _save_history(history)

    def _run_line(self) -> bool:
        """One line; tell whether to go on."""
        try:
            line = input(f"{self._speaker.address if self._speaker.is_connected else 'not connected'}> ")
        except EOFError:
            sys.stdout.write("\n")
            return False
        except KeyboardInterrupt:
            # Leaves the line, not the prompt.
            sys.stdout.write("\n")
            return True
        words = self._conversation.words(line)
        if not words:
            return True
        if _is_secret(words) and readline.get_current_history_length():
            readline.remove_history_item(readline.get_current_history_length() - 1)
        first = words[0].lower()
        if first in LEAVING:
            return False
        if first in ("help", "?"):
            sys.stdout.write(printable_lines(self._help().help(words[1:])) + "\n")
        else:
            self._run(words)
        return True

    def _run(self, words: list[str]) -> None:
        """Run a command; whatever becomes of the connection is said, and the prompt goes on."""
        try:
            if self._speaker.is_connected or self._connect(f"connected to {self._speaker.address}"):
                self._conversation.run(words)
        except Trouble as error:
            note(str(error))
        except KeyboardInterrupt:
            # Its answer may still come, so this connection is of no use any more.
            self._speaker.close()
            sys.stdout.write("\n")
            self._connect("left; this is a new connection, and what the old one had taken goes back")

    def _connect(self, words: str) -> bool:
        """Connect, and say so; if it cannot be, say that. Tells whether it was."""
        try:
            self._speaker.connect()
        except Trouble as error:
            note(str(error))
            return False
        if words:
            note(words)
        return True

    def _help(self) -> Manual:
        """The server's own manual, if there is one and it tells."""
        if self._manual is None and self._speaker.is_connected:
            with suppress(*Trouble):
                answer = self._speaker.ask([b"COMMAND", b"DOCS"])
                if not answer.is_error and answer.items:
                    self._manual = from_docs(answer)
        return self._manual or offline()

    def _complete(self, begun: str, index: int) -> str | None:
        typed = readline.get_line_buffer()[: readline.get_begidx()].split()
        found = self._help().completions(typed, begun)
        return f"{found[index]} " if index < len(found) else None


def history_file() -> Path:
    """Where what was typed is remembered."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "penstock" / "cli-history"


def _save_history(path: Path) -> None:
    # Nobody is kept from leaving because it cannot be written.
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        readline.set_history_length(_HISTORY_LINES)
        # Private before anything is in it.
        path.touch(0o600)
        path.chmod(0o600)
        readline.write_history_file(path)


def _is_secret(words: list[str]) -> bool:
    """Return whether a line has a password or the token of a session in it, which does not belong into a file."""
    lower = [word.lower() for word in words]
    if lower[0] == "config":
        settings = map(find, words[2:])
        return any(setting is not None and setting.secret for setting in settings)
    return "auth" in lower or lower[0] == "identify" or any(word.endswith(".identify") for word in lower[:2])
