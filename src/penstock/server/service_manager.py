"""Messages to the service manager that started the server (systemd, `Type=notify`): ready, loading, stopping.

The service manager names a datagram socket in NOTIFY_SOCKET. Without it, or if it cannot be reached, there is no
effect, because a server must not depend on who started it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

# The service manager waits at least this much longer after each message of a server that loads its journal.
_MORE_US: Final = 60_000_000


def _send(message: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.setblocking(False)
        # An address that begins with @ is in the abstract namespace, where it begins with a zero byte.
        to.sendto(message.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def report_loading(progress: str) -> None:
    """Report the progress of loading the journal, and ask for more time to start."""
    _send(f"STATUS=loading its journal: {progress}\nEXTEND_TIMEOUT_USEC={_MORE_US}")


def report_ready(ports: str) -> None:
    """Report that the server accepts clients."""
    _send(f"READY=1\nSTATUS=listening on {ports}\nMAINPID={os.getpid()}")


def report_stopping() -> None:
    """Report that the server has begun to stop."""
    _send("STOPPING=1\nSTATUS=stopping")
