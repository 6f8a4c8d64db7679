"""The README's terminal session, typed in tmux, shows the output that the README shows.

The lines are read from the README: the server, the session with redis-cli and the session with the command line, all
with the same server.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.serving import environment, wait_for

from .terminal import PENSTOCK
from .transcript import Session

README = (Path(__file__).parent.parent.parent / "README.md").read_text()
PORT = "7711"  # The port in the README. The test uses another one, so that it does not disturb a running server.
PROMPT = "$ "


def block(language: str, words: str) -> str:
    """Return the code block of the README in this language that contains these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return next(text for text in blocks if words in text)


class Screens:
    """Terminals in tmux, each with a shell."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(home / "tmux"), "-f", "/dev/null"]
        self._home = home
        self._env = env

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], env=self._env, check=True, capture_output=True, text=True).stdout

    def open(self, name: str) -> None:
        """Open a terminal and wait for its shell."""
        size = ("-x", "120", "-y", "60")
        self._do("new-session", "-d", "-s", name, *size, "-c", str(self._home), "bash", "--norc")
        wait_for(lambda: self.lines(name) == [PROMPT.strip()])

    def lines(self, name: str) -> list[str]:
        """Return the text of a terminal."""
        return self._do("capture-pane", "-p", "-t", name).rstrip("\n").split("\n")

    def press(self, name: str, *keys: str) -> None:
        """Press keys, by their names."""
        self._do("send-keys", "-t", name, *keys)

    def type(self, name: str, line: str) -> None:
        """Type a line."""
        self._do("send-keys", "-t", name, "-l", line)
        self.press(name, "Enter")

    def record(self, name: str, lines: list[str], prompt: str) -> str:
        """Type lines, each after the answer to the previous one. Return the final text."""
        before = self.prompts(name, prompt)
        for number, line in enumerate(lines, before + 1):
            self.type(name, line)
            wait_for(lambda number=number: self.prompts(name, prompt) == number and self.is_idle(name, prompt))
        shown = self.lines(name)[:-1]
        first = shown.index(prompt + lines[0])
        return "".join(f"{line}\n" for line in shown[first:])

    def prompts(self, name: str, prompt: str) -> int:
        """Return the number of prompts on the terminal."""
        return sum(f"{line} ".startswith(prompt) for line in self.lines(name))

    def is_idle(self, name: str, prompt: str) -> bool:
        """Return whether a prompt waits for the next line."""
        return self.lines(name)[-1] == prompt.strip()

    def close(self) -> None:
        """Close all terminals."""
        self._do("kill-server")


@pytest.fixture
def port() -> str:
    """Return a free port."""
    return str(free_port())


@pytest.fixture
def screens(tmp_path: Path, port: str, needs: Callable[[object, str], None]) -> Iterator[Screens]:
    """Yield terminals with the PATH that the README sets."""
    for program, package in (("tmux", "tmux"), ("redis-cli", "redis-tools"), ("bash", "bash")):
        needs(shutil.which(program), f"{program} is not installed (Debian: apt-get install {package})")
    penstock = tmp_path / "bin" / "penstock"
    penstock.parent.mkdir()
    penstock.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{PENSTOCK[-1]}' \"$@\"\n")
    penstock.chmod(0o755)
    env = environment()
    env |= {"PATH": f"{penstock.parent}:{env['PATH']}", "HOME": str(tmp_path), "PS1": PROMPT, "TERM": "xterm"}
    env |= {"PENSTOCK_PORT": port, "PENSTOCK_URL": f"127.0.0.1:{port}", "LC_ALL": "C.UTF-8"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMUX"):
        env.pop(name, None)
    screens = Screens(tmp_path, env)
    try:
        yield screens
    finally:
        screens.close()


def test_the_session_in_the_readme_is_what_a_terminal_shows(screens: Screens, tmp_path: Path, port: str) -> None:
    serve, redis_cli = block("sh", "penstock serve").splitlines()
    screens.open("server")
    screens.type("server", serve)
    wait_for(lambda: f"ports=127.0.0.1:{port}" in " ".join(screens.lines("server")))

    # The page and the screen are masked by separate sessions, so that both count ids from 1.
    page, screen = Session(tmp_path, {}, {}), Session(tmp_path, {}, {})
    screens.open("client")
    screens.type("client", redis_cli.replace(PORT, port))
    prompt = f"127.0.0.1:{port}> "
    wait_for(lambda: screens.is_idle("client", prompt))
    redis = block("redis", "ADDJOB")
    typed = [line.removeprefix("> ") for line in redis.splitlines() if line.startswith("> ")]
    assert screen.mask(screens.record("client", typed, prompt).replace(prompt, "> ")) == page.mask(redis)

    screens.press("client", "C-d")
    wait_for(lambda: screens.is_idle("client", PROMPT))
    console = block("console", "penstock put")
    typed = [line.removeprefix(PROMPT) for line in console.splitlines() if line.startswith(PROMPT)]
    assert screen.mask(screens.record("client", typed, PROMPT)) == page.mask(console)

    screens.press("server", "C-c")
    wait_for(lambda: screens.is_idle("server", PROMPT))
