"""redis-cli, as people type into it."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ..serving import PATIENCE_S, Server, Wire

# The session in the set-up section of Disque's README.
TRANSCRIPT = """\
127.0.0.1:7711> ADDJOB queue body 0
D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1
127.0.0.1:7711> GETJOB FROM queue
1) 1) "queue"
   2) "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
   3) "body"
"""


@pytest.fixture(scope="session")
def redis_cli(needs: Callable[[object, str], None]) -> str:
    found = shutil.which("redis-cli")
    needs(found, "redis-cli is not installed (Debian: apt-get install redis-tools)")
    return str(found)


class Terminal:
    """redis-cli in a dumb terminal, which shows only the typed and printed text."""

    def __init__(self, redis_cli: str, port: int) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "dumb", "REDISCLI_HISTFILE": os.devnull, "REDISCLI_RCFILE": os.devnull}
        self._process = subprocess.Popen(
            [redis_cli, "-p", str(port)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        self._prompt = f"127.0.0.1:{port}> "
        self.seen = ""
        self._until_prompt()

    def type(self, line: str) -> str:
        """Type a line, and return the output until the next prompt."""
        begin = len(self.seen) + len(line) + 1
        os.write(self._ours, line.encode() + b"\n")
        self._until_prompt()
        return self.seen[begin : -len(self._prompt)]

    def _until_prompt(self) -> None:
        while True:
            self.seen += os.read(self._ours, 4096).decode().replace("\r\n", "\n")
            if self.seen.endswith(self._prompt):
                return

    def close(self) -> None:
        os.write(self._ours, b"quit\n")
        assert self._process.wait(PATIENCE_S) == 0
        os.close(self._ours)


@pytest.fixture
def terminal(redis_cli: str, server: Server) -> Iterator[Terminal]:
    terminal = Terminal(redis_cli, server.port)
    yield terminal
    terminal.close()


def test_the_session_of_disques_readme_is_displayed_the_same(terminal: Terminal, server: Server, wire: Wire) -> None:
    wire.call("DEBUG", "FLUSHALL")
    terminal.type("ADDJOB queue body 0")
    terminal.type("GETJOB FROM queue")
    seen = terminal.seen.removesuffix(f"127.0.0.1:{server.port}> ")
    id = re.findall(r"D-\S{8}-\S{24}-05a1", seen)[0]
    assert seen.replace(str(server.port), "7711").replace(id, "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1") == TRANSCRIPT


def test_replies_and_errors_are_displayed_correctly(terminal: Terminal) -> None:
    assert terminal.type("PAUSE typed state") == "none\n"
    assert terminal.type("QLEN typed") == "(integer) 0\n"
    assert terminal.type("QSTAT typed") == "(nil)\n"
    assert terminal.type("GETJOB NOHANG FROM typed") == "(nil)\n"
    assert terminal.type("QPEEK typed 5") == "(empty array)\n"
    assert terminal.type("ACKJOB nonsense") == "(error) BADID Invalid Job ID format.\n"
    assert terminal.type("ADDJOB typed") == "(error) ERR wrong number of arguments for 'addjob' command\n"
    assert terminal.type('ADDJOB typed "two words" 0')[:2] == "D-"
    assert '3) "two words"' in terminal.type("GETJOB FROM typed")


def test_help_shows_the_grammar_of_a_command(terminal: Terminal) -> None:
    told = re.sub(r"\x1b\[[0-9;]*m", "", terminal.type("help qpeek"))
    assert "QPEEK queue count" in told
    assert "Show the first jobs of a queue, or the last." in told


@pytest.mark.parametrize("version", ["-2", "-3"])
def test_one_command_from_a_shell(redis_cli: str, server: Server, version: str) -> None:
    def run(*words: str) -> str:
        command = [redis_cli, version, "-p", str(server.port), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    id = run("addjob", "shell" + version, "body", "0").strip()
    assert run("getjob", "from", "shell" + version) == f"shell{version}\n{id}\nbody\n"
    assert run("ackjob", id) == "1\n"
    assert run("getjob", "nohang", "from", "shell" + version) == "\n"
    assert "registered_jobs:" in run("info", "jobs")
    assert run("-r", "3", "ping") == "PONG\n" * 3


def test_many_commands_from_a_file(redis_cli: str, server: Server, wire: Wire, queue: bytes) -> None:
    lines = "".join(f"ADDJOB {queue.decode()} {number} 0\n" for number in range(100))
    command = [redis_cli, "-p", str(server.port)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert len(set(done.stdout.split())) == 100
    assert wire.call("QLEN", queue) == 100
