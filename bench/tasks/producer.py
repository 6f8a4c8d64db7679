"""Puts the jobs of a system, in a process of its own: `python -m bench.tasks.producer SYSTEM fill|start COUNT`."""

from __future__ import annotations

import importlib
import sys
import time

# The pause between two puts when latencies are measured.
_PAUSE_S = 0.005

if __name__ == "__main__":
    system, action, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    app = importlib.import_module(f"bench.tasks.{system}_app")
    if action == "fill":
        app.fill(count)
    else:
        for _ in range(count):
            app.put_start(time.time_ns(), count)
            time.sleep(_PAUSE_S)
