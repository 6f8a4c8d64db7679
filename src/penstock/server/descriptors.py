"""How many clients the system lets us have: each is an open file, and the server has some of its own."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Those that the process needs beside the ones of its clients: the log, its readers, the doors, other nodes.
OWN_DESCRIPTORS: Final = 64


def clients_that_fit(wanted: int) -> int:
    """Ask the system for room for so many clients; tell how many of them there is room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OWN_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - OWN_DESCRIPTORS))
