"""The prompt of `penstock cli`, with history, completion and help. It reconnects to a lost server."""

from __future__ import annotations

import readline
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cli.console.command_runner import CONNECTION_ERRORS, QUIT_WORDS, CommandRunner, print_note
from penstock.cli.console.manual import built_in
from penstock.cli.contexts import state_home
from penstock.cli.errors import printable_lines
from penstock.server.config.settings import find

_HISTORY_LINES: Final = 1_000


class Prompt:
    """Reads commands from the terminal and runs them."""

    def __init__(self, runner: CommandRunner) -> None:
        self._runner = runner
        self._manual = built_in()

    def run(self) -> None:
        history = state_home() / "cli-history"
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
        """Read and run one line. Return whether to continue."""
        try:
            line = input(f"{self._runner.server if self._runner.is_connected else 'not connected'}> ")
        except EOFError:
            sys.stdout.write("\n")
            return False
        except KeyboardInterrupt:
            # Ctrl-C discards the line but does not leave the prompt.
            sys.stdout.write("\n")
            return True
        words = self._runner.words(line)
        if not words:
            return True
        if _is_secret(words) and readline.get_current_history_length():
            readline.remove_history_item(readline.get_current_history_length() - 1)
        first = words[0].lower()
        if first in QUIT_WORDS:
            return False
        if first in ("help", "?"):
            sys.stdout.write(printable_lines(self._manual.help(words[1:])) + "\n")
        else:
            self._run(words)
        return True

    def _run(self, words: list[str]) -> None:
        """Run a command. Connection errors are printed, and the prompt continues."""
        try:
            if self._runner.is_connected or self._connect(f"connected to {self._runner.server}"):
                self._runner.run(words)
        except CONNECTION_ERRORS as error:
            print_note(str(error))
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            self._connect("interrupted; this is a new connection, and jobs that the old one had taken are returned")

    def _connect(self, words: str) -> bool:
        """Connect, and print `words` or the error. Return whether the connection was established."""
        try:
            self._runner.connect()
        except CONNECTION_ERRORS as error:
            print_note(str(error))
            return False
        if words:
            print_note(words)
        return True

    def _complete(self, begun: str, index: int) -> str | None:
        typed = readline.get_line_buffer()[: readline.get_begidx()].split()
        found = self._manual.completions(typed, begun)
        return f"{found[index]} " if index < len(found) else None


def _save_history(path: Path) -> None:
    # An unwritable history file must not prevent quitting.
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        readline.set_history_length(_HISTORY_LINES)
        # Restrict access before anything is written.
        path.touch(0o600)
        path.chmod(0o600)
        readline.write_history_file(path)


def _is_secret(words: list[str]) -> bool:
    """Return whether a line contains a password or a token, which must not be stored in the history file."""
    lower = [word.lower() for word in words]
    if lower[0] == "config":
        settings = map(find, words[2:])
        return any(setting is not None and setting.secret for setting in settings)
    return "auth" in lower or lower[0] in ("identify", "token") or any(word.endswith(".identify") for word in lower[:2])
