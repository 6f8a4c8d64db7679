"""The tutorials and how-to guides, followed from top to bottom: every block runs, in order, in one empty directory.

- Python blocks of a page share one namespace. A text block right below one is its exact output.
- Console blocks show commands after "$ ", and their output. Ids and durations may differ.
- Shell blocks run, and their output is not compared. A line that begins with `penstock serve` or `penstock api` starts
  a server in the background, on free ports instead of the ports of the page.
- A TOML or Python block that begins with a comment "# NAME.toml" or "# NAME.py" is saved as that file.
- A line that begins with `penstock worker` starts a worker in the background.
- A session with redis-cli runs on the server of port 7711.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.docs.test_examples import GUIDES, ROOT, Block, blocks_of, name_of, typed
from tests.docs.test_moving_guides import PAGES as MOVING_GUIDES
from tests.docs.test_readme import STEP_S, steady
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, wait_for
from tests.short_spark import short_spark

# The ports of servers in the pages. The port of a cluster bus is 10,000 higher.
PORT = re.compile(r"\b1?(77\d\d|3301)\b")
BUS_OFFSET = 10_000


class Guide:
    """A reader who follows a page in an empty directory."""

    def __init__(self, directory: Path, running: contextlib.ExitStack) -> None:
        self._home = directory / "home"
        self._home.mkdir()
        self._running = running
        self._ports: dict[int, int] = {}
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        programs = directory / "bin"
        programs.mkdir()
        for program, module in (("penstock", "-m penstock"), ("python", "")):
            (programs / program).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (programs / program).chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(penstock.__file__).parent.parent),
            "HOME": str(directory),
            "PENSTOCK_IPROTO_PORT": str(free_port()),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **short_spark(directory / "spark"),
        }
        self._environment.pop("PENSTOCK_URL", None)

    def follow(self, block: Block) -> str:
        """Run a block and return its output, with the ports of the page."""
        if block.language == "toml" or re.match(r"# \w+\.py\n", block.code):
            return self._save(block)
        if block.language == "python":
            output = self._python(block)
        elif block.language == "redis":
            output = typed(block.code, self._port(7711))
        elif block.language == "console":
            commands = [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]
            output = "".join(f"$ {command}\n{self._shell(command)}" for command in commands)
        else:
            assert block.language == "sh", f"line {block.line}: a guide has no {block.language} blocks"
            for line in block.code.splitlines():
                self._shell(line)
            return ""
        return self._as_documented(output)

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + self._here(block.code), "guide", "exec")
        with contextlib.chdir(self._home), contextlib.redirect_stdout(printed):
            exec(code, self._namespace)
        return printed.getvalue()

    def _save(self, block: Block) -> str:
        name = re.match(r"# (\w[\w.-]*\.(?:toml|py))\n", block.code)
        if name:
            (self._home / name[1]).write_text(self._here(block.code))
        return ""

    def _shell(self, line: str) -> str:
        command = line.partition("  #")[0].strip()
        if command.startswith(("penstock serve", "penstock api")):
            self._serve(command)
            return ""
        if command.startswith("penstock worker"):
            self._work(command)
            return ""
        environment = dict(self._environment)
        if self._ports:
            environment["PENSTOCK_URL"] = f"penstock://127.0.0.1:{self._port(7711)}"
        done = subprocess.run(
            ["bash", "-c", self._here(command)],
            cwd=self._home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, command: str) -> None:
        environment = dict(self._environment)
        if command == "penstock api":
            command = f"penstock api --port 7780 --url 127.0.0.1:{self._port(7711)}"
        elif "--port" not in command:
            environment["PENSTOCK_PORT"] = str(self._port(7711))
        log = self._running.enter_context((self._home.parent / f"log-{free_port()}").open("w+"))
        words = ["bash", "-c", f"exec {self._here(command)}"]
        process = subprocess.Popen(words, cwd=self._home, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self._running.callback(self._stop, process)
        path = Path(log.name)
        started = re.compile("(server|api) started: ")
        wait_for(lambda: started.search(path.read_text()) or process.poll() is not None)
        assert process.poll() is None, path.read_text()

    def _work(self, command: str) -> None:
        log = self._running.enter_context((self._home.parent / f"log-{free_port()}").open("w+"))
        words = ["bash", "-c", f"exec {self._here(command)}"]
        process = subprocess.Popen(words, cwd=self._home, env=self._environment, stdout=log, stderr=subprocess.STDOUT)
        self._running.callback(self._stop, process)
        path = Path(log.name)
        wait_for(lambda: "worker started: " in path.read_text() or process.poll() is not None)
        assert process.poll() is None, path.read_text()

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0

    def _port(self, documented: int) -> int:
        if documented not in self._ports:
            self._ports[documented] = free_port()
        return self._ports[documented]

    def _here(self, text: str) -> str:
        """Replace the ports of the page by free ones."""

        def replace(found: re.Match[str]) -> str:
            offset = BUS_OFFSET if len(found[0]) > len(found[1]) else 0
            return str(self._port(int(found[1])) + offset)

        return PORT.sub(replace, text)

    def _as_documented(self, text: str) -> str:
        for documented, port in self._ports.items():
            text = text.replace(str(port + BUS_OFFSET), str(documented + BUS_OFFSET)).replace(
                str(port), str(documented)
            )
        return text.replace(str(self._home), "/home/ann")


@pytest.fixture
def running() -> Iterator[contextlib.ExitStack]:
    """Servers that end with the test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "path", [path for path in GUIDES if path.name not in MOVING_GUIDES], ids=lambda path: name_of(path, 1)
)
def test_a_guide_can_be_followed_from_top_to_bottom(
    path: Path, tmp_path: Path, running: contextlib.ExitStack, needs: Callable[[object, str], None]
) -> None:
    text = path.read_text()
    for program, package in (("redis-cli", "redis-tools"), ("openssl", "openssl"), ("curl", "curl")):
        if program in text:
            needs(shutil.which(program), f"{program} is not installed ({package})")
    if "penstock pipeline" in text:
        needs(importlib.util.find_spec("pyspark"), "Spark is not installed")
    guide = Guide(tmp_path, running)
    blocks = [block for block in blocks_of(text) if block.language != "text"]
    assert blocks
    for block in blocks:
        shows = block.language in ("redis", "console")
        expected = block.code if shows else block.expected
        if shows or block.language == "python":
            assert steady(guide.follow(block)) == steady(expected), f"{path.relative_to(ROOT)}:{block.line}"
        else:
            guide.follow(block)
