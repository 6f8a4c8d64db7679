"""When Python's garbage collector runs: often and briefly on young objects, rarely on all of them.

No object that belongs to a client or a link is part of a cycle once it is closed, so reference counts free most of
them. A collection of all objects is skipped while there are many: with a million jobs it takes 50 ms. No job is part of
a cycle, but the collector still visits the pages that hold them.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from penstock.server.server import Server

# Intervals of collections of the two younger generations, and of all. Generation 0 is collected every second.
_LATELY_S: Final = 10
_EVERYWHERE_S: Final = 60

# A full collection may take this long: by the estimate, measured on a slow machine, and by the last one's duration.
_THOUGHT_S: Final = 0.002
_TOOK_S: Final = 0.005
_JOB_S: Final = 60e-9
_TUBE_S: Final = 3_500e-9
_CLIENT_S: Final = 1_500e-9


def leave_alone() -> None:
    """Collect once, exclude all present objects from later collections, and let `Garbage` decide when those run."""
    gc.collect()
    gc.freeze()
    gc.disable()


class Garbage:
    """Runs the garbage collector of a server."""

    def __init__(self, server: Server, thought_s: float = _THOUGHT_S) -> None:
        self._server = server
        self._thought_s = thought_s
        self._took_s = 0.0
        self._looks = 0

    def look(self) -> None:
        """Collect some garbage. Called every second."""
        self._looks += 1
        second = self._looks
        if second % _EVERYWHERE_S == 0 and self._is_short():
            began = time.perf_counter()
            gc.collect()
            self._took_s = time.perf_counter() - began
        else:
            gc.collect(1 if second % _LATELY_S == 0 else 0)

    def _is_short(self) -> bool:
        """Return whether a full collection would be short."""
        server = self._server
        jobs, tubes = server.membership.cluster.registered(), len(server.node.engine.tubes)
        thought_s = jobs * _JOB_S + tubes * _TUBE_S + len(server.clients) * _CLIENT_S
        return thought_s < self._thought_s and self._took_s < _TOOK_S
