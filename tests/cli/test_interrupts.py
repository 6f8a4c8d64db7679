"""Ctrl-C ends every command without a traceback, also before the command runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.serving import PATIENCE_S, environment

# Runs a command and sends SIGINT while a module is imported.
_PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from penstock.__main__ import main
main()
"""


def run(home: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(module=module), *words],
        cwd=home,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "words", "code"),
    [
        ("typer", ["--help"], -signal.SIGINT),
        ("penstock.cli.commands.top", ["--help"], -signal.SIGINT),
        ("penstock.client.session", ["tube", "ls"], 130),
        ("penstock.server.main", ["serve", "--port", "{port}"], 130),
        ("uvloop", ["serve", "--port", "{port}"], 130),
        ("penstock.cli.demos.crawl_demo", ["demo"], 130),
    ],
)
def test_ctrl_c_during_an_import_prints_nothing(tmp_path: Path, module: str, words: list[str], code: int) -> None:
    done = run(tmp_path, module, *(word.format(port=free_port()) for word in words))
    assert (done.returncode, done.stderr) == (code, "")


def test_a_command_started_with_sigint_ignored_ignores_it(tmp_path: Path) -> None:
    """A shell without job control starts background commands with SIGINT ignored."""
    ignoring = _PROGRAM.format(module="penstock.cli.commands.top").replace(
        "sys.meta_path", "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsys.meta_path", 1
    )
    done = subprocess.run(
        [sys.executable, "-c", ignoring, "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith("penstock ")
