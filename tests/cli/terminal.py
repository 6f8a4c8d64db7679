"""A dumb terminal that runs a program. It shows only the typed and printed text."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.serving import PATIENCE_S, Server, environment, wait_for

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]

# The program gets its own controlling terminal, so that Ctrl-C reaches only this program.
_AT_A_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
_MAIN = """
from penstock.cli.main import main
main()
"""


class Terminal:
    """`penstock` with these arguments, running in a terminal."""

    def __init__(self, home: Path, *words: str, first: str = "") -> None:
        """`first` is code that the program runs before `penstock`."""
        self._ours, theirs = pty.openpty()
        env = environment() | {"TERM": "dumb", "XDG_STATE_HOME": str(home), "INPUTRC": os.devnull, "COLUMNS": "200"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AT_A_TERMINAL + first + _MAIN, *words],
            **dict.fromkeys(["stdin", "stdout", "stderr"], theirs),
            env=env,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, end: str) -> str:
        """Wait until the output ends with `end`. Return the output since the last call."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.seen.endswith(end):
            ready, _, _ = select.select([self._ours], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{end!r} does not come: {self.seen!r}"
            self.seen += os.read(self._ours, 65_536).decode().replace("\r\n", "\n")
        seen, self.seen = self.seen, ""
        return seen

    def key(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C when the program waits. Python would handle an earlier one only after the next key."""
        status = Path(f"/proc/{self._process.pid}/status")
        wait_for(lambda: "State:\tS" in status.read_text())
        self.key("\x03")

    def close(self) -> int:
        """Close the window of the terminal. Return the exit code of the program."""
        os.close(self._ours)
        return self._process.wait(PATIENCE_S)

    def type(self, line: str, end: str) -> str:
        """Type a line and return the output up to the next prompt."""
        self.key(f"{line}\n")
        return self.until(end).removeprefix(f"{line}\n").removesuffix(end)

    def ended(self) -> int:
        """Wait until the program ends and return its exit code."""
        try:
            return self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._ours)


@contextmanager
def restarted(server: Server) -> Iterator[None]:
    """Restart a killed server on its port."""
    command = [*PENSTOCK, "serve", "--no-journal", "--port", str(server.port)]
    with subprocess.Popen(command, cwd=server.home, env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(server.answers)
            yield
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
