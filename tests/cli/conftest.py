"""Where the command line is tried: on a directory and on a server. What it prints is the same."""

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
    """A directory in memory, where there is such a thing: disks are slow."""
    return tempfile.mkdtemp(dir="/dev/shm") if os.path.isdir("/dev/shm") else None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that runs for all tests here."""
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
    """The URL of a server without a tube."""
    with penstock.connect(server) as queue:
        for name in queue.tubes():
            tube = queue.find_tube(name)
            tube.release_all()
            tube.drop()
    return server


@pytest.fixture(params=["directory", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    """One kind of place after the other."""
    return str(request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A place for a queue, which is empty."""
    if kind == "server":
        yield request.getfixturevalue("empty_server")
        return
    directory = in_memory() or tempfile.mkdtemp()
    penstock.open(f"{directory}/queue").close()
    yield f"{directory}/queue"
    shutil.rmtree(directory)


@pytest.fixture
def session(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Somebody at a prompt, with a queue and settings of their own."""
    return someone(place, tmp_path, monkeypatch)


def someone(place: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Somebody at a prompt."""
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
