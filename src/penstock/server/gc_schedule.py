"""The schedule of Python's garbage collector: often and briefly on young objects, rarely on all objects.

Reference counts free most objects, because closed clients and links are not part of a cycle, and neither are jobs. A
collection of all objects still visits the memory pages of all jobs, and takes 50 ms with a million jobs. So it is
skipped while there are many objects.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from penstock.server.server import Server

# Intervals of collections of the two younger generations, and of all. Generation 0 is collected every second.
_YOUNG_INTERVAL_S: Final = 10
_FULL_INTERVAL_S: Final = 60

# A full collection may take this long: by the estimate, measured on a slow machine, and by the last one's duration.
_ESTIMATE_S_MAX: Final = 0.002
_DURATION_S_MAX: Final = 0.005
_JOB_S: Final = 60e-9
_TUBE_S: Final = 3_500e-9
_CLIENT_S: Final = 1_500e-9


def freeze_loaded() -> None:
    """Collect garbage once, and exclude all present objects from later collections.

    `GarbageCollection` starts the later collections, instead of Python.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


class GarbageCollection:
    """Starts the garbage collections of a server."""

    def __init__(self, server: Server, thought_s: float = _ESTIMATE_S_MAX) -> None:
        self._server = server
        self._thought_s = thought_s
        self._took_s = 0.0
        self._looks = 0

    def collect(self) -> None:
        """Collect young objects, or all objects if that is due and short. This is called every second."""
        self._looks += 1
        second = self._looks
        if second % _FULL_INTERVAL_S == 0 and self._is_short():
            began = time.perf_counter()
            gc.collect()
            self._took_s = time.perf_counter() - began
        else:
            gc.collect(1 if second % _YOUNG_INTERVAL_S == 0 else 0)

    def _is_short(self) -> bool:
        server = self._server
        jobs, tubes = server.membership.cluster.registered(), len(server.turn.engine.tubes)
        thought_s = jobs * _JOB_S + tubes * _TUBE_S + len(server.clients) * _CLIENT_S
        return thought_s < self._thought_s and self._took_s < _DURATION_S_MAX
