"""A server whose disk blocks while it loads its journal, until the test releases it."""

from __future__ import annotations

import socket
import subprocess
import sys

from .serving import PATIENCE_S, Server, environment, wait_for

_GATE = "may-load"

# The frames of the journal cannot be read before the gate is open.
_PROGRAM = f"""
import os, time
from penstock.journal.disk import RealFile
read = RealFile.read
def read_when_allowed(file, offset, length):
    while length > 4096 and not os.path.exists({_GATE!r}):
        time.sleep(0.01)
    return read(file, offset, length)
RealFile.read = read_when_allowed
from penstock.cli.main import main
main()
"""


class SlowLoading(Server):
    """A server that blocks while it loads its journal, at every start but the first."""

    def start_loading(self) -> None:
        """Start the server again, and return when it answers that it is loading."""
        (self.home / _GATE).unlink(missing_ok=True)
        self._said = self._next_files()
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            command = [sys.executable, "-c", _PROGRAM, "serve", *self._words]
            self.process = subprocess.Popen(command, cwd=self.home, env=environment(), stdout=out, stderr=err)
        wait_for(self._is_loading)

    def load(self) -> None:
        """Let it load the rest of its journal."""
        (self.home / _GATE).touch()
        wait_for(self.answers)

    def _is_loading(self) -> bool:
        assert self.is_running, self._said[1].read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(1024).startswith(b"-LOADING")
        except ConnectionError:
            return False
