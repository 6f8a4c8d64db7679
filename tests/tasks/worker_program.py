"""`penstock worker` as a process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

import penstock
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, wait_for

WORKBENCH = Path(__file__).parent.parent / "data" / "tasks"


class WorkerProgram:
    """A worker that runs the app of workbench.py, and its log."""

    def __init__(self, url: str, marks: Path, *options: str, app: str = "workbench:app") -> None:
        self.health_port = free_port()
        self.log_file = marks / f"worker-{self.health_port}.log"
        environment = os.environ | {
            "TASKS_URL": url,
            "MARKS": str(marks),
            "PYTHONPATH": f"{Path(penstock.__file__).parent.parent}:{WORKBENCH}",
        }
        command = [sys.executable, "-m", "penstock", "worker", app, "--health-port", str(self.health_port), *options]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=marks, env=environment, stdout=log, stderr=subprocess.STDOUT, process_group=0
            )

    def wait_until_ready(self) -> Self:
        wait_for(lambda: self.health("readyz") == 200 or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()
        return self

    def health(self, path: str) -> int:
        """Return the status of a health check; 0 if there is no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/{path}", timeout=PATIENCE_S) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def children(self) -> list[int]:
        """Return the ids of the worker processes."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def log(self) -> str:
        return self.log_file.read_text()

    def stop(self) -> int:
        """Stop the worker, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            children = self.children()
            self.process.kill()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
