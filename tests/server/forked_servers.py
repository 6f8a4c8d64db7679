"""Servers that start fast, because they are forked from a process that has imported everything.

They are real processes. A cluster has many of them, and most of the second that a start takes is imports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
# pytest is preloaded, too, because a forked process runs the main module of this process again, which imports it.
_FORKS.set_forkserver_preload(
    ["pytest", "uvloop", "penstock.cli.main", "penstock.cli.commands.serve", "penstock.server.main"]
)


class Forked:
    """The part of the interface of `subprocess.Popen` that is used here."""

    def __init__(self, words: list[str], home: Path, out: Path, err: Path) -> None:
        """Run `penstock` with these arguments."""
        self._process = _FORKS.Process(target=_run, args=(words, str(home), str(out), str(err)))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("penstock", timeout)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            assert self.pid is not None
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(words: list[str], home: str, out: str, err: str) -> None:
    os.chdir(home)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        del os.environ[name]
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    from penstock.cli.main import main

    sys.argv = ["penstock", *words]
    main()
