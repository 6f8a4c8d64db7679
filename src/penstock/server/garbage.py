"""Garbage that is in cycles, and when it is looked for: now and then, for a moment, and mostly among what is young.

Nothing that comes and goes with clients and links is part of a cycle once it is over, so most of it goes by itself.
What is old is not looked at while there is much of it: with a million jobs that takes 50 ms, though none of them is in
a cycle, because the pages that hold them are looked at.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from penstock.server.server import Server

# How often it is looked for not only among what came in the last second, but in the last seconds, and everywhere.
_LATELY_S: Final = 10
_EVERYWHERE_S: Final = 60

# How long it may take to look everywhere, seconds: by what it is thought to take, measured on a slow machine, and by
# what it took the last time.
_THOUGHT_S: Final = 0.002
_TOOK_S: Final = 0.005
_JOB_S: Final = 60e-9
_TUBE_S: Final = 3_500e-9
_CLIENT_S: Final = 1_500e-9


def leave_alone() -> None:
    """Collect what there is. The rest stays, so nobody need look at it again; when to look at more, `Garbage` says."""
    gc.collect()
    gc.freeze()
    gc.disable()


class Garbage:
    """What looks for garbage in a server."""

    def __init__(self, server: Server, thought_s: float = _THOUGHT_S) -> None:
        self._server = server
        self._thought_s = thought_s
        self._took_s = 0.0
        self._looks = 0

    def look(self) -> None:
        """Look for some. This is called every second."""
        self._looks += 1
        second = self._looks
        if second % _EVERYWHERE_S == 0 and self._is_short():
            began = time.perf_counter()
            gc.collect()
            self._took_s = time.perf_counter() - began
        else:
            gc.collect(1 if second % _LATELY_S == 0 else 0)

    def _is_short(self) -> bool:
        """Whether it would be short to look everywhere."""
        server = self._server
        jobs, tubes = server.membership.cluster.registered(), len(server.node.engine.tubes)
        thought_s = jobs * _JOB_S + tubes * _TUBE_S + len(server.clients) * _CLIENT_S
        return thought_s < self._thought_s and self._took_s < _TOOK_S
