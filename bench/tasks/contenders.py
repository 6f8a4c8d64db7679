"""The systems that run tasks: how to start the broker and a worker of each, and how to measure it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.child import environment
from bench.server import processes
from bench.server.processes import Server

_PATIENCE_S = 300.0


@dataclass(frozen=True)
class System:
    """A system that runs tasks with one worker process."""

    name: str
    packages: tuple[str, ...]
    worker: tuple[str, ...]  # The arguments of Python that start a worker.

    def is_there(self) -> bool:
        """Return whether the packages are installed, and Redis if it is needed."""
        packages = all(importlib.util.find_spec(package) is not None for package in self.packages)
        return packages and (self.name == "penstock" or processes.is_there("redis-server"))


PENSTOCK = System("penstock", (), ("-m", "penstock", "worker", "bench.tasks.penstock_app:app"))
RIVALS = [
    # The fastest pool for short tasks.
    System(
        "celery",
        ("celery", "redis"),
        (
            "-m",
            "celery",
            "-A",
            "bench.tasks.celery_app",
            "worker",
            "-P",
            "solo",
            "--without-gossip",
            "--without-mingle",
        ),
    ),
    # RQ's usual worker starts a process for each job.
    System("rq", ("rq", "redis"), ("-m", "rq.cli", "worker", "-w", "rq.SimpleWorker", "-q")),
    System("dramatiq", ("dramatiq", "redis"), ("-m", "dramatiq", "bench.tasks.dramatiq_app", "-p", "1", "-t", "8")),
    System(
        "taskiq", ("taskiq", "taskiq_redis"), ("-m", "taskiq", "worker", "bench.tasks.taskiq_app:broker", "-w", "1")
    ),
]


class Run:
    """A broker and a directory for the figures of one measurement."""

    def __init__(self, system: System) -> None:
        self._system = system
        if system.name == "penstock":
            self._server: Server = processes.penstock("--fsync", "everysec")
            self.broker = f"penstock://127.0.0.1:{self._server.port}"
        else:
            self._server = processes.redis("--appendonly", "yes", "--appendfsync", "everysec")
            self.broker = f"redis://127.0.0.1:{self._server.port}"
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-bench-")
        self.figure = Path(self._directory.name) / "figure"
        self._environment = environment() | {"BROKER": self.broker, "FIGURE": str(self.figure)}

    def put(self, action: str, count: int) -> None:
        """Put jobs, and wait until all are put."""
        command = [sys.executable, "-m", "bench.tasks.producer", self._system.name, action, str(count)]
        subprocess.run(command, env=self._environment, check=True, cwd=self._directory.name)

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker in a process group of its own."""
        broker = ["--url", self._environment["BROKER"]] if self._system.name == "rq" else []
        return subprocess.Popen(
            [sys.executable, *self._system.worker, *broker, *options],
            env=self._environment,
            cwd=self._directory.name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for_figures(self) -> list[float]:
        """Return the figures that the last task writes."""
        until = time.monotonic() + _PATIENCE_S
        while not self.figure.exists():
            if time.monotonic() > until:
                raise RuntimeError(f"the tasks of {self._system.name} did not end in time")
            time.sleep(0.02)
        figures = [float(word) for word in self.figure.read_text().split()]
        self.figure.unlink()
        return figures

    @staticmethod
    def stop(worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker and its processes."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def rate(system: System, count: int) -> float:
    """Return how many tasks without work one worker process runs per second. All are put before it starts."""
    run = Run(system)
    run.put("fill", count)
    worker = run.start_worker()
    try:
        return run.wait_for_figures()[0]
    finally:
        run.stop(worker)


def latency_ms(system: System, count: int) -> list[float]:
    """Return the median and the 99th percentile of the time from a put to the start of its task."""
    run = Run(system)
    worker = run.start_worker()
    try:
        run.put("start", 20)  # The worker has started when these have run.
        run.wait_for_figures()
        run.stop(worker)
        worker = run.start_worker()
        time.sleep(3)
        run.put("start", count)
        return run.wait_for_figures()
    finally:
        run.stop(worker)
