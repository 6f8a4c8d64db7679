"""Fixtures that run the command line on a directory and on a server. The output must be the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.ports import free_port

from .transcript import Session


def in_memory() -> str | None:
    """Return a directory in memory if the machine has one, because disks are slow."""
    return tempfile.mkdtemp(dir="/dev/shm") if os.path.isdir("/dev/shm") else None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a server that all tests share."""
    directory = str(in_memory() or tmp_path_factory.mktemp("server"))
    port = free_port()
    settings = ["--port", str(port), "--dir", directory]
    command = [sys.executable, "-m", "penstock", "serve", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "server started: " in process.stdout.readline()
        yield f"penstock://127.0.0.1:{port}"
        process.terminate()
        assert process.wait(10) == 0
    shutil.rmtree(directory)


@pytest.fixture
def empty_server(server: str) -> str:
    """Return the URL of the server after dropping all tubes."""
    with penstock.connect(server) as queue:
        for name in queue.tubes():
            tube = queue.find_tube(name)
            tube.release_all()
            tube.drop()
    return server


@pytest.fixture(params=["directory", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    """Run the test with a directory and with a server."""
    return str(request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the address of an empty queue."""
    if kind == "server":
        yield request.getfixturevalue("empty_server")
        return
    directory = in_memory() or tempfile.mkdtemp()
    penstock.open(f"{directory}/queue").close()
    yield f"{directory}/queue"
    shutil.rmtree(directory)


@pytest.fixture
def session(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a shell session with its own queue and settings."""
    return someone(place, tmp_path, monkeypatch)


def someone(place: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a shell session in `home` that uses the queue at `place`."""
    monkeypatch.chdir(home)
    env: dict[str, str | None] = {
        "PENSTOCK_URL": place,
        "PENSTOCK_CONTEXT": None,
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    return Session(home, env, {place: "PLACE", str(home): "HERE"})
