"""Ports for servers under test: nobody has them, and nobody else is given them while a server starts.

A server that starts is asked again and again whether it is there. Were its port one of those that the system hands out,
whoever was handed it meanwhile would be asked instead: Spark, for one, takes a port for each answer, and hangs up on
the first who says the wrong thing. So these lie below the system's, and a file counts them for all processes that run
tests side by side.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Linux hands out those from 32,768 on, other systems higher ones. Where nodes talk is 10,000 above.
PORTS = range(12_000, 22_000)

_COUNTER = Path(tempfile.gettempdir()) / f"penstock-test-ports-{os.getuid()}"


def free_port() -> int:
    """A port that nobody listens on, and nobody else has been given lately."""
    while not _can_listen(port := PORTS[_count() % len(PORTS)]):
        pass
    return port


def _count() -> int:
    """How often this was called before, in all processes."""
    with _COUNTER.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0)
        file.truncate(0)
        file.write(str(count + 1))
        return count


def _can_listen(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
