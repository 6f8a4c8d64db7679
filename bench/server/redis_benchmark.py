"""redis-benchmark: fifty clients that send one command over and over."""

from __future__ import annotations

import csv
import subprocess

from bench.server.processes import Server

CLIENTS = 50
_TIMEOUT_S = 120.0


def per_second(server: Server, count: int, pipeline: int, *words: str) -> float:
    """How many commands a second a server runs, of which each client sends so many at a time."""
    target = ["-h", server.host, "-p", str(server.port)]
    load = ["-c", str(CLIENTS), "-n", str(count), "-P", str(pipeline)]
    arguments = ["redis-benchmark", *target, *load, "--csv", *words]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    *_, row = csv.reader(done.stdout.splitlines())
    return float(row[1])
