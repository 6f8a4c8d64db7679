"""DEBUG FLUSHALL and CLUSTER RESET: remove all jobs and queues, in slices."""

from __future__ import annotations

from penstock.core import claims
from penstock.core.errors import TubeAwaited, TubeTaken
from penstock.core.tube import Tube
from penstock.node.caller import SLICE, Caller, SlicedCommand, check_whole_server
from penstock.server.net.connection import Connection
from penstock.server.server import Server


def flush(server: Server, caller: Connection) -> None:
    """Remove all jobs and queues."""
    check_whole_server(caller)
    server.turn.start_long(caller, _Flush(server))


class _Flush(SlicedCommand):
    """Removes every job, and every queue that is not in use."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cursor = 0

    def step(self, caller: Caller, now: int) -> bool:
        engine = self._server.turn.engine
        if self._cursor == 0:
            # A tube cannot remove jobs that are claimed.
            for consumer in list(engine.consumers.values()):
                if consumer.claims:
                    claims.release_claims(engine, consumer.name, consumer.token, now)
        left = SLICE
        while left > 0:
            tubes, cursor = engine.scan_tubes(self._cursor, 1)
            for tube in tubes:
                self._end_waits(tube)
                left -= engine.truncate(tube, now, left)
                if left == 0:
                    return False
                self._drop(tube, now)
                left -= 1
            self._cursor = cursor
            if cursor == 0:
                caller.reply.ok()
                return True
        return False

    def _end_waits(self, tube: Tube) -> None:
        """End all waits for a queue as if they had timed out."""
        waiting = []
        for line in (tube.take_line, tube.put_line, *tube.key_lines.values()):
            link = line.head
            while link is not None:
                waiting.append(link.wait)
                link = link.after
        for wait in waiting:
            self._server.turn.end_wait(wait)

    def _drop(self, tube: Tube, now: int) -> None:
        try:
            self._server.turn.engine.drop(tube, now)
        except (TubeTaken, TubeAwaited):
            # A claim keeps its jobs until it ends, and a client whose wait ended may wait again.
            pass
