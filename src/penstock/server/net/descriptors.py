"""File descriptors: how many clients the system's limit allows, and how many descriptors are kept for everything else.

Everything that uses descriptors has a limit, and the reserve is the sum of these limits. So neither clients nor
unauthenticated connections to any port can use the descriptors that the journal needs.

If the system allows fewer than twice the reserve, half of the descriptors are reserved, and the limits are lower in
proportion.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

from penstock.journal.bodies import FILES_MAX as BODY_FILES_MAX
from penstock.server.net.http import CONNECTIONS_MAX as HTTP_MAX
from penstock.server.peers.bus import OPENING_MAX, STRANGERS_MAX

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

# Enough for a server without a cluster that is attacked on all ports, if the system allows few descriptors.
_RESERVE_MIN: Final = 64


def clients_that_fit(wanted: int) -> int:
    """Raise the system's limit of file descriptors for `wanted` clients. Return how many clients it allows."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(wanted, RESERVE) + RESERVE
    if limit != resource.RLIM_INFINITY and limit < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            limit = most
    if limit == resource.RLIM_INFINITY:
        return wanted
    reserve = min(RESERVE, max(_RESERVE_MIN, limit // 2))
    return max(1, min(wanted, limit - reserve))


def share(most: int) -> int:
    """Return how many reserved connections are allowed: `most`, or fewer if the system allows few descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= 2 * RESERVE:
        return most
    return max(2, most * limit // (2 * RESERVE))
