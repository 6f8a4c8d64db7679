"""The condition of this node: the reasons for which it does not accept copies of jobs now.

A node announces its condition in every greeting, so operators and clients see it on all nodes. The condition is
computed from the state of the engine each time and therefore ends by itself. A node is out of disk or memory if it has
no room for a small job, or for the largest copy that it refused in the last seconds.

The condition does not decide where copies go, because it is up to a second old on other nodes. A node that refuses a
copy answers NOTHELD, and the sender of the copy records the refusal (refusals.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import NODE_NO_DISK, NODE_NO_MEMORY, NODE_PAUSED
from penstock.cluster.state import ClusterState
from penstock.core.copy_commands import is_shared
from penstock.core.errors import NoMemory, NoSpace
from penstock.core.tube import Tube

# A small job: its body, and a new queue for it.
_BODY_BYTES: Final = 8_192

# A node that is out of disk tries to free space this often.
_TRY_MS: Final = 500

# The size of a refused copy counts for this long.
_REFUSED_MS: Final = 5_000


class Condition:
    """Computes why this node does not accept copies."""

    paused: dict[bytes, None]  # Names of the shared queues that are paused for incoming jobs.
    _place: ClusterState
    _make_room: Callable[[int], None]
    _tried: i64  # When disk space was last requested.
    _body_bytes: i64  # The size of the largest refused copy.
    _refused: i64  # When a copy was last refused.

    def __init__(self, place: ClusterState, make_room: Callable[[int], None]) -> None:
        """Create the condition of a node. `make_room` tries to free the given number of bytes in the log."""
        self.paused = {}
        self._place = place
        self._make_room = make_room
        self._tried = 0
        self._body_bytes = _BODY_BYTES
        self._refused = 0
        for tube in place.engine.tubes.values():
            self.tube_paused(tube)

    def flags(self, now: i64) -> i64:
        """Return the condition as bits of a node's flags. 0 means that the node accepts copies of all jobs."""
        flags: i64 = NODE_PAUSED if self.paused else 0
        if self._place.is_short_of_memory():
            flags |= NODE_NO_MEMORY
        return flags | self._lacks_room(now)

    def _lacks_room(self, now: i64) -> i64:
        engine = self._place.engine
        if now >= self._refused + _REFUSED_MS:
            self._body_bytes = _BODY_BYTES
        if engine.room_bytes < self._body_bytes and now >= self._tried + _TRY_MS:
            self._tried = now
            self._make_room(self._body_bytes)
        try:
            engine.check_room(1, self._body_bytes)
        except NoSpace:
            return NODE_NO_DISK
        except NoMemory:
            return NODE_NO_MEMORY
        return 0

    def refused(self, body_bytes: i64, now: i64) -> None:
        """Record that a copy with a body of `body_bytes` was refused for lack of space."""
        self._body_bytes = max(self._body_bytes, body_bytes)
        self._refused = now

    def tube_paused(self, tube: Tube) -> None:
        if tube.paused_in and is_shared(tube):
            self.paused[tube.name] = None
        else:
            self.paused.pop(tube.name, None)

    def tube_dropped(self, tube: Tube) -> None:
        self.paused.pop(tube.name, None)
