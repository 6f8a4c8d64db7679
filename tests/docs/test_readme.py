"""The README can be followed from top to bottom: every block runs, in order, in one directory, with one server.

Blocks run unchanged in a shell, in Python and in redis-cli, with two exceptions. A server is started in the background
on another port than 7711, because a server may be running there. `make` is skipped, because other tests build this
checkout. Outputs must equal those of the page, except for ids and durations.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import penstock
from tests.docs.test_examples import ROOT, SERVER_PORT, Block, a_server, blocks_of, commands_of, typed
from tests.short_spark import short_spark

# Ids and durations differ between runs, and so does the width of their columns.
CHANGING = re.compile(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}|\b\d+(\.\d+)? (ms|s)\b")

# The time limit of a step. Starting Spark takes longest.
STEP_S = 300


class Reader:
    """A new user with a directory, a server and several terminals."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.directory = directory / "home"
        self.directory.mkdir()
        self._server = directory / "server"
        self._running = running
        self._port = 0
        commands = directory / "bin"
        commands.mkdir()
        (commands / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
        (commands / "penstock").chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(penstock.__file__).parent.parent),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **short_spark(directory / "spark"),
        }
        self.served = 0

    def follow(self, block: Block) -> str:
        """Run a block and return its output."""
        if block.language in ("python", "py"):
            program = self.directory / f"line_{block.line}.py"
            program.write_text(self._here(block.code))
            return self._run([sys.executable, program.name])
        if block.language == "redis":
            return typed(block.code, self._port)
        return "".join(self._shell(line, block) for line in commands_of(block).splitlines())

    def _shell(self, line: str, block: Block) -> str:
        command = line.partition("  #")[0].strip()
        if command.startswith(("make ", "redis-cli ")):
            return ""  # The next block of the page is the session with redis-cli.
        if command == "penstock serve":
            self._port, _ = self._running.enter_context(a_server(self._server))
            self._environment["PENSTOCK_URL"] = f"penstock://127.0.0.1:{self._port}"
            self.served += 1
            return ""
        said = self._run(["bash", "-c", self._here(command)])
        return f"$ {line}\n{said}" if block.language == "console" else ""

    def _here(self, text: str) -> str:
        return text.replace(str(SERVER_PORT), str(self._port))

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def steady(output: str) -> list[list[str]]:
    """Return the words of an output by line, without the parts that differ between runs."""
    return [CHANGING.sub("…", line).split() for line in output.splitlines()]


def test_the_readme_can_be_followed_from_top_to_bottom(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("redis-cli"), "redis-cli is not installed (redis-tools)")
    needs(importlib.util.find_spec("pyspark"), "Spark is not installed")
    blocks = [block for block in blocks_of((ROOT / "README.md").read_text()) if block.language != "text"]
    assert {block.language for block in blocks} <= {"python", "py", "redis", "sh", "console"}
    with ExitStack() as running:
        reader = Reader(tmp_path, running)
        for block in blocks:
            shows = block.language in ("redis", "console")
            expected = block.code if shows else block.expected
            assert steady(reader.follow(block)) == steady(expected), f"README.md:{block.line}"
        assert reader.served == 1
