"""Servers that start fast, because they are forked from a process that has imported everything.

They are real processes. The tests start hundreds of them, and most of the time that a start takes is imports.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
# pytest is preloaded, too, because a forked process runs the main module of this process again, which imports it.
_FORKS.set_forkserver_preload(
    ["pytest", "uvloop", "penstock.cli.main", "penstock.cli.commands.serve", "penstock.server.main"]
)


class Forked:
    """The part of the interface of `subprocess.Popen` that is used here."""

    def __init__(
        self,
        words: list[str],
        home: Path,
        out: Path,
        err: Path,
        prelude: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run `penstock` with these arguments. `prelude` is Python code that the process runs first.

        Without `environment`, the process gets the environment of the tests without settings of Penstock.
        """
        if environment is None:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        arguments = (words, str(home), str(out), str(err), prelude, dict(environment))
        # A daemon is killed when the tests end, even if its test has not stopped it.
        self._process = _FORKS.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("penstock", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            assert self.pid is not None
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(words: list[str], home: str, out: str, err: str, prelude: str, environment: dict[str, str]) -> None:
    os.chdir(home)
    sys.path.insert(0, "")  # As `python -c` does. Drivers are imported from the directory.
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    exec(prelude, {})
    from penstock.cli.main import main

    sys.argv = ["penstock", *words]
    try:
        main()
    finally:
        # Print the warnings about objects that were not closed. A forked process ends without destroying its objects.
        gc.collect()
