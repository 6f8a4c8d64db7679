"""Runs redis-benchmark: fifty clients that repeat one command."""

from __future__ import annotations

import csv
import subprocess

from bench.server.processes import Server

CLIENTS = 50
_TIMEOUT_S = 120.0


def per_second(server: Server, count: int, pipeline: int, *words: str) -> float:
    """Return the commands per second of a server with the given pipeline depth."""
    target = ["-h", server.host, "-p", str(server.port)]
    load = ["-c", str(CLIENTS), "-n", str(count), "-P", str(pipeline)]
    arguments = ["redis-benchmark", *target, *load, "--csv", *words]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    *_, row = csv.reader(done.stdout.splitlines())
    return float(row[1])
