"""CPU time of a scrape of /metrics, with a million jobs in 200 tubes, all of which are shown."""

from __future__ import annotations

import socket
import urllib.request
from functools import partial

from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.filling import fill
from bench.trial import Sample, Trial

_TUBES = 200
_MS_MAX = 50.0

# The system counts CPU time in units of 10 ms, so a sample has several scrapes.
_SCRAPES = 20


def trials(scale: Scale) -> list[Trial]:
    """Return the trial."""
    jobs = scale.jobs(1_000_000, 200_000)
    what = f"CPU time of a scrape of /metrics, {jobs:,} jobs in {_TUBES} tubes"
    return [Trial((Spec("server/scrape", what, Unit.MS, goal=Goal(_MS_MAX)),), partial(_prepare, jobs), 3)]


def _prepare(jobs: int) -> Sample:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        http_port = unused.getsockname()[1]
    server = processes.penstock("--no-journal", "--http-port", str(http_port))
    for number in range(_TUBES):
        queue = f"tube{number}"
        fill(server, queue, max(jobs // _TUBES, 1_000))
        # One take and one ack, so that the tube has histograms.
        job = server.ask("GETJOB", "FROM", queue).split(b"\r\n")[5]
        server.ask("ACKJOB", job.decode())

    def sample() -> list[float]:
        before = server.cpu_s()
        for _ in range(_SCRAPES):
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics") as page:
                text = page.read()
            assert text.count(b"penstock_tube_run_seconds_count{") == _TUBES
        return [(server.cpu_s() - before) / _SCRAPES * 1_000]

    return sample
