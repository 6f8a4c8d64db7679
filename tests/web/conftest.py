"""Fixtures: a node and an API that many tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Server

from .http_api import Api, serving


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node without users. Tests use their own tubes."""
    server = Server(tmp_path_factory.mktemp("web"), "--appendfsync", "everysec")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def api(node: Server) -> Iterator[Api]:
    with serving(node.port) as api:
        yield api


_USERS = """
[users.ada]
password = "ada's secret"
commands = ["read", "write", "admin"]

[users.reader]
password = "reading"
commands = ["read"]
tubes = ["mail*"]
"""


@pytest.fixture(scope="session")
def node_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node with the users `ada` (all tubes) and `reader` (reads tubes that begin with mail)."""
    home: Path = tmp_path_factory.mktemp("users")
    (home / "penstock.toml").write_text(_USERS)
    (home / "penstock.toml").chmod(0o600)
    server = Server(home, "penstock.toml", "--appendfsync", "everysec")
    yield server
    server.kill()


@pytest.fixture
def tube(api: Api, request: pytest.FixtureRequest) -> str:
    """The name of a new tube."""
    name = re.sub("[^a-z0-9_]+", "-", request.node.name)
    api.post("/tubes", {"name": name, "type": "fifottl"})
    return name
