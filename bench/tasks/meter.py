"""What the tasks of all systems do: nothing, or note when they start. It runs in the worker process of each system.

A figure is written to the file FIGURE by the last task, so no system's own counters are involved.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time

_count = itertools.count(1)
_begun = 0.0
_latencies: list[float] = []


def _write(*figures: float) -> None:
    partial = os.environ["FIGURE"] + ".part"
    with open(partial, "w") as file:
        file.write(" ".join(map(str, figures)))
    os.replace(partial, os.environ["FIGURE"])


def noop(total: int) -> None:
    """Count this run. The last one writes how many tasks ran per second since the first."""
    global _begun  # noqa: PLW0603  # The worker process has one meter.
    number = next(_count)
    if number == 1:
        _begun = time.perf_counter()
    elif number == total:
        _write((total - 1) / (time.perf_counter() - _begun))


def start(sent_ns: int, total: int) -> None:
    """Note the time since the put. The last run writes the median and the 99th percentile in ms."""
    _latencies.append((time.time_ns() - sent_ns) / 1e6)
    if len(_latencies) == total:
        parts = statistics.quantiles(_latencies, n=100)
        _write(parts[49], parts[98])


def spin(rounds: int, total: int) -> None:
    """Use the CPU. Each run appends a byte to a file, because several processes share the tasks."""
    sum(range(rounds))
    file = os.open(os.environ["FIGURE"] + ".ends", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b".")
    if os.fstat(file).st_size == total:
        _write(time.time())
    os.close(file)
