"""File descriptors: how many clients the system's limit allows, and how many descriptors are kept for everything else.

Everything that uses descriptors has a limit, and the reserve is the sum of these limits. So neither clients nor
unauthenticated connections to any port can use the descriptors that the journal needs.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

from penstock.journal.bodies import FILES_MAX as BODY_FILES_MAX
from penstock.server.bus import OPENING_MAX, STRANGERS_MAX
from penstock.server.http import CONNECTIONS_MAX as HTTP_MAX

# Standard streams, the log file, and those of the event loop.
_PROCESS: Final = 16
# Eight ports, each on two addresses.
_LISTENERS: Final = 16
# The lock, the segment that is written, the next one, a snapshot, the files that maintenance reads and writes, and
# those that two threads read for JOURNAL and HISTORY.
_JOURNAL: Final = 24
# Links of the cluster: two for each other node, and up to 64 attempts to reach nodes that are being met. A cluster of
# more than 32 nodes needs a higher limit.
_LINKS: Final = 64
# Connections that were accepted and are not counted yet, and those that were closed and still have a descriptor.
_IN_TRANSIT: Final = 40

RESERVE: Final = (
    _PROCESS + _LISTENERS + _JOURNAL + BODY_FILES_MAX + HTTP_MAX + OPENING_MAX + STRANGERS_MAX + _LINKS + _IN_TRANSIT
)


def clients_that_fit(wanted: int) -> int:
    """Raise the system's limit to what `wanted` clients need. Return how many clients the limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - RESERVE))
