"""Servers that go into the background: `daemonize yes`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

from .serving import PATIENCE_S, PENSTOCK, Wire, environment, wait_for


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory with a configuration. Servers in it are stopped at the end."""
    ports = f"port {free_port()}\ncluster-port {free_port()}\n"
    (tmp_path / "node.conf").write_text(f"{ports}daemonize yes\npidfile node.pid\nlogfile node.log\ndir .\n")
    yield tmp_path
    for line in (tmp_path / "lock").read_text().split():
        if is_there(int(line)):
            os.kill(int(line), signal.SIGKILL)


def start(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*PENSTOCK, "serve", "node.conf", *words]
    return subprocess.run(
        command, check=False, cwd=home, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S
    )


def is_there(process: int) -> bool:
    """Return whether a process runs. A process that ended may still be a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_pidfile_survives_a_second_server_that_cannot_start(home: Path) -> None:
    assert start(home).returncode == 0
    process = int((home / "node.pid").read_text())
    refused = start(home)
    assert refused.returncode == 75 and "is open in another process" in refused.stderr
    assert "is open in another process" in (home / "node.log").read_text()
    assert int((home / "node.pid").read_text()) == process
    os.kill(process, signal.SIGTERM)
    wait_for(lambda: not is_there(process))
    assert not (home / "node.pid").exists()


def test_the_starting_process_returns_when_the_server_is_ready(home: Path) -> None:
    assert start(home).returncode == 0
    port = int((home / "node.conf").read_text().split()[1])
    wire = Wire(port)
    assert wire.ask("PING") == b"+PONG\r\n"
    wire.close()
    # It has no terminal, no inherited output, and its own session.
    process = int((home / "node.pid").read_text())
    assert {os.readlink(f"/proc/{process}/fd/{stream}") for stream in range(3)} == {os.devnull}
    assert os.getsid(process) == process


def test_the_starting_process_reports_a_failed_start(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in ((), ("--logfile", "")):
            ended = start(home, "--port", str(port), *words)
            assert ended.returncode == 1
            assert ended.stderr.count(f"port {port} is in use") == 1
    assert not (home / "node.pid").exists()
    assert f"port {port}" in (home / "node.log").read_text()


def test_it_serves_even_if_it_cannot_write_its_pidfile(home: Path) -> None:
    assert start(home, "--pidfile", "nowhere/node.pid").returncode == 0
    assert "nowhere/node.pid" in (home / "node.log").read_text()
    wire = Wire(int((home / "node.conf").read_text().split()[1]))
    assert wire.ask("PING") == b"+PONG\r\n"
    wire.close()


def test_an_unusable_log_file_is_reported_before_daemonizing(home: Path) -> None:
    (home / "lock").write_text("")
    ended = start(home, "--logfile", "nowhere/node.log")
    assert ended.returncode == 1 and "nowhere/node.log" in ended.stderr
