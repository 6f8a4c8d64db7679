"""Two nodes of a cluster that have different names for commands, for tests."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.bus_peers import SECRET
from tests.server.clustering import Node
from tests.server.serving import PATIENCE_S, Wire, wait_for


class ClosedNode(Node):
    """A node of a cluster that requires a password."""

    def ask(self, *words: bytes | str | int) -> object:
        with contextlib.closing(self.client("owner", "o")) as wire:
            return wire.call(*words)

    def client(self, user: str, password: str) -> Wire:
        wire = Wire(self.port)
        assert wire.ask("AUTH", user, password) == b"+OK\r\n"
        return wire


@contextmanager
def renamed_nodes(home: Path) -> Iterator[list[ClosedNode]]:
    """Start two nodes. The second has renamed TUBE, removed KICK, and gives the first's name of TUBE to JOB."""
    users = ["--no-journal", "--user", "tenant", "password:t", "tubes:mail.*"]
    users += ["--user", "owner", "password:o", "commands:read,write,admin,debug", "--cluster-secret", SECRET]
    first = ClosedNode(home / "n0", *users, "--rename-command", "tube", "pipe")
    renames = {"tube": "tunnel", "job": "pipe", "kick": ""}
    second = ClosedNode(home / "n1", *users, *(w for pair in renames.items() for w in ("--rename-command", *pair)))
    first.meet(second, second.bus_port)
    wait_for(lambda: all(node.reaches() == node.links() == 1 for node in (first, second)))
    yield [first, second]
    for node in (first, second):
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(PATIENCE_S) == 0
