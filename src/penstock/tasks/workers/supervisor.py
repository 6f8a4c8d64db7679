"""The supervisor of worker processes: `python -m penstock.tasks.workers.supervisor SETTINGS`.

It starts the processes and replaces those that die, answers health checks, and restarts the processes when a source
file changes. It imports neither the program of the user nor the client, so it stays small and cannot hang with them.
When a process has died, the process that replaces it gets the session of the dead one and the jobs that were running.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from penstock.tasks.workers.health import HealthServer
from penstock.tasks.workers.process_state import ProcessState

_log = logging.getLogger("penstock.tasks")

_MODULE: Final = "penstock.tasks.workers.worker_process"
_EXIT_USAGE: Final = 2
_EXIT_RECYCLE: Final = 98
# How often processes are checked. Their deaths and signals are noticed at once.
_CHECK_S: Final = 1.0
# A process that dies sooner than this after its start is replaced after a pause, which doubles each time.
_STABLE_S: Final = 10.0
_PAUSE_MAX_S: Final = 30.0
# How much longer than its drain time a process may take to stop.
_STOP_S: Final = 10.0
# A process that uses this many times its memory limit is killed.
_MEMORY_FACTOR: Final = 2
_IGNORED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "build", "dist"})


@dataclass
class SupervisorSettings:
    """The settings of a supervisor. Those of its processes are in `worker`."""

    worker: dict[str, Any]  # See worker_process.Settings.
    processes: int = 1
    reload: bool = False
    health_host: str = "127.0.0.1"
    health_port: int = -1  # -1: no health checks.

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class WorkerProcess:
    """One of the processes, and those that replace it."""

    def __init__(self, settings: SupervisorSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # It is open as long as the supervisor runs.
        self.state = ProcessState(self._file.fileno(), settings.worker["concurrency"])
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._killed_for = ""  # Why the supervisor has killed it.
        self._pause_s = 0.0
        self._start_at = 0.0  # When to start the next process.
        self.was_ready = False
        self.exit_code: int | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start a process. If its predecessor has died, it resumes the session of that one."""
        settings = dict(self._settings.worker, state_fd=self._file.fileno())
        if self.exit_code not in (None, 0, _EXIT_RECYCLE) and self.state.token:
            settings |= {"token": self.state.token, "failed": self.state.running, "reason": self._why()}
        self.state.set_ready(False)
        self.state.beat()  # It has the usual time to begin, plus the time to import the program.
        self._killed_for = ""
        self._started_at = time.monotonic()
        command = [sys.executable, "-m", _MODULE, json.dumps(settings)]
        # In a process group of its own: Ctrl-C in a terminal signals the whole group of the supervisor. The process
        # would get that signal and the one of the supervisor, and end at once.
        self._process = subprocess.Popen(command, pass_fds=[self._file.fileno()], process_group=0)

    def check(self, stopping: bool) -> None:
        """Start a process if there is none and one is due. Note the end of the present one, and limit its memory."""
        process = self._process
        if process is None:
            if not stopping and time.monotonic() >= self._start_at:
                self.start()
            return
        self.was_ready = self.was_ready or self.state.is_ready()
        code = process.poll()
        if code is None:
            self._limit_memory(process)
            return
        self._process, self.exit_code = None, code
        if code in (0, _EXIT_RECYCLE):
            self._pause_s = 0.0
            return
        if code != _EXIT_USAGE:  # After a usage error, the process has printed what is wrong.
            why, running = self._why(), len(self.state.running)
            _log.warning("worker died: process=%d reason=%r running=%d", process.pid, why, running)
        is_stable = time.monotonic() - self._started_at >= _STABLE_S
        self._pause_s = 0.0 if is_stable else min(_PAUSE_MAX_S, max(0.5, 2 * self._pause_s))
        self._start_at = time.monotonic() + (0 if self.was_ready and is_stable else self._pause_s)

    def _why(self) -> str:
        """Return the reason why the last process died."""
        if self._killed_for:
            return f"worker died: {self._killed_for}"
        code = self.exit_code or 0
        if code < 0:
            try:
                return f"worker died: {signal.Signals(-code).name}"
            except ValueError:
                return f"worker died: signal {-code}"
        return f"worker died: exit code {code}"

    def _limit_memory(self, process: subprocess.Popen[bytes]) -> None:
        limit = self._settings.worker["max_memory"]
        if not limit:
            return
        try:
            used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return  # There is no /proc, so the process only limits itself.
        if used > _MEMORY_FACTOR * limit and not self._killed_for:
            self._killed_for = f"it used {used >> 20} MB of memory, and --max-memory is {limit >> 20} MB"
            process.kill()

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def is_live(self) -> bool:
        """Return whether the process works, or is starting."""
        if not self.state.is_ready():
            return True
        return self.state.is_alive()


class Supervisor:
    """Runs the processes until a signal stops it."""

    def __init__(self, settings: SupervisorSettings) -> None:
        self._settings = settings
        self._processes = [WorkerProcess(settings, number) for number in range(settings.processes)]
        self._signal: signal.Signals | None = None
        self._health: HealthServer | None = None
        if settings.health_port >= 0:
            self._health = HealthServer(settings.health_host, settings.health_port, self._is_live, self._is_ready)
            _log.info("health checks: url=http://%s:%d/livez", settings.health_host, self._health.port)
        self._files = dict(_source_files()) if settings.reload else {}

    def run(self) -> int:
        """Run until a signal stops it. Return the exit code."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # It only wakes the loop below.
        while self._signal is None:
            for process in self._processes:
                process.check(False)
            if (code := self._failed_start()) is not None:
                return self._stop(signal.SIGTERM) or code
            if self._settings.reload:
                self._reload_if_changed()
            _wait(wake_read, _CHECK_S)
        return self._stop(self._signal, wake_read)

    def _on_signal(self, number: int, _: object) -> None:
        if self._signal is not None:  # The second signal: do not wait.
            for process in self._processes:
                process.signal(signal.SIGKILL)
        self._signal = signal.Signals(number)

    def _failed_start(self) -> int | None:
        """Return the exit code if the program cannot run: a process has ended with a usage error."""
        for process in self._processes:
            if process.exit_code == _EXIT_USAGE and not process.was_ready and not self._settings.reload:
                return _EXIT_USAGE
        return None

    def _stop(self, number: signal.Signals, wake_read: int = -1) -> int:
        """Stop all processes. Return 0, or 1 if one had to be killed."""
        for process in self._processes:
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.worker["drain_s"] + _STOP_S
        killed = False
        while any(process.is_running for process in self._processes):
            if time.monotonic() >= deadline:
                killed = True
                for process in self._processes:
                    process.signal(signal.SIGKILL)
                deadline += _STOP_S
            if wake_read >= 0:
                _wait(wake_read, 0.2)
            else:
                time.sleep(0.05)
            for process in self._processes:
                process.check(True)
        return 1 if killed else 0

    def _reload_if_changed(self) -> None:
        files = dict(_source_files())
        if files != self._files:
            changed = sorted(str(path) for path, _ in set(files.items()) ^ set(self._files.items()))
            self._files = files
            _log.info("source changed: file=%s", changed[0])
            for process in self._processes:
                process.signal(signal.SIGTERM)

    def _is_live(self) -> bool:
        return all(process.is_live() for process in self._processes)

    def _is_ready(self) -> bool:
        if self._signal is not None:
            return False
        return all(process.state.is_ready() and process.state.is_alive() for process in self._processes)


def _wait(wake_read: int, seconds: float) -> None:
    if select.select([wake_read], [], [], seconds)[0]:
        os.read(wake_read, 4_096)


def _source_files() -> Iterator[tuple[Path, int]]:
    """Yield the Python files below the current directory, with the time of their last change."""
    for folder, folders, files in os.walk("."):
        folders[:] = [each for each in folders if each not in _IGNORED_FOLDERS and not each.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = Path(folder, name)
                try:
                    yield path, path.stat().st_mtime_ns
                except OSError:
                    continue  # It was removed meanwhile.


def main(arguments: list[str]) -> int:
    """Run a supervisor with settings in JSON."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s", stream=sys.stdout
    )
    settings = SupervisorSettings(**json.loads(arguments[0]))
    try:
        supervisor = Supervisor(settings)
    except OSError as error:
        print(f"penstock worker: --health-port {settings.health_port}: {error}", file=sys.stderr)
        return 1
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
