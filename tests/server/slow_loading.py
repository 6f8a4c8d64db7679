"""A server whose disk blocks while it loads its journal, until the test releases it."""

from __future__ import annotations

import socket

from .serving import PATIENCE_S, Server, wait_for

_GATE = "may-load"

# The frames of the journal cannot be read before the gate is open.
_PRELUDE = f"""
import os, time
from penstock.journal.real_disk import RealFile
read = RealFile.read
def read_when_allowed(file, offset, length):
    while length > 4096 and not os.path.exists({_GATE!r}):
        time.sleep(0.01)
    return read(file, offset, length)
RealFile.read = read_when_allowed
"""


class SlowLoading(Server):
    """A server that blocks while it loads its journal, at every start but the first."""

    def start_loading(self) -> None:
        """Start the server again, and return when it answers that it is loading."""
        (self.home / _GATE).unlink(missing_ok=True)
        self.process = self._spawn(self._words, _PRELUDE)
        self._wait_for_start(self._is_loading)

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
