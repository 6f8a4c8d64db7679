"""A process that puts more jobs than its memory limit allows, and takes them again.

Run as a module with a number of jobs and a limit in MB (0: none), it prints MB/s put, MB/s taken and acked, and its
maximum growth in MB. It fails if a job is out of order or damaged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import penstock
from bench.clock import clock, server_gc
from bench.journal.directory import fresh
from bench.journal.spill import BODY_BYTES, MB
from penstock.embedded import Tube


def _run(jobs: int, limit_mb: int) -> list[float]:
    directory = fresh()
    limit = limit_mb * MB or None
    with penstock.open(directory.name, fsync="never", memory_limit=limit) as queue, server_gc():
        tube = queue.tube("bench", "fifo")
        _fill(tube, 100)
        _drain(tube, 100)
        # One-time allocations by the first jobs (code, caches, free lists) are not counted.
        before = _most_resident_mb()
        began = clock()
        _fill(tube, jobs)
        filled = clock()
        _drain(tube, jobs)
        drained = clock()
    total = jobs * BODY_BYTES / MB
    return [total / (filled - began) * 1e9, total / (drained - filled) * 1e9, _most_resident_mb() - before]


def _fill(tube: Tube, jobs: int) -> None:
    filling = bytes(BODY_BYTES - 8)
    for number in range(jobs):
        tube.put(number.to_bytes(8, "big") + filling)


def _drain(tube: Tube, jobs: int) -> None:
    for number in range(jobs):
        job = tube.take()
        assert job is not None, f"job {number} is missing"
        body: bytes = job.body
        assert int.from_bytes(body[:8], "big") == number, f"another job was taken instead of {number}"
        assert len(body) == BODY_BYTES, f"the body of job {number} is cut"
        job.ack()


def _most_resident_mb() -> float:
    """Return the peak resident memory in MB. Linux only.

    The maximum that getrusage returns is not used, because it starts with the memory of the parent process.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) / 1024


if __name__ == "__main__":
    print(*_run(int(sys.argv[1]), int(sys.argv[2])))
