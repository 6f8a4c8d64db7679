"""Removing everything, in slices: DEBUG FLUSHALL and CLUSTER RESET."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import TubeTaken
from penstock.dialects.command import Caller, Long
from penstock.server.server import Server

_SLICE: Final = 1_000


class Flush(Long):
    """Removes every job, and every queue that nobody needs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cursor = 0

    def step(self, caller: Caller, now: int) -> bool:
        """Remove a slice of what there is."""
        engine = self._server.node.engine
        tubes, cursor = engine.scan_tubes(self._cursor, 1)
        if not tubes:
            caller.reply.ok()
            return True
        tube = tubes[0]
        for connection in self._server.clients:
            # Those who wait are answered as if their time were over.
            self._server.node.end_wait(connection)
        if engine.truncate(tube, now, _SLICE) == _SLICE:
            return False
        try:
            engine.drop(tube, now)
        except TubeTaken:
            # A claim keeps its jobs until it ends.
            pass
        self._cursor = cursor
        if cursor == 0:
            caller.reply.ok()
            return True
        return False
