"""The files for containers are valid, and their commands are commands of `penstock`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.server.config.configuration import load
from tests.server.serving import Server
from tests.test_packaging import ROOT, run

Needs = Callable[[object, str], None]

CONTAINER = ROOT / "deploy" / "container"
FILE = (CONTAINER / "Containerfile").read_text()
COMPOSE = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
COMMANDS = set(get_command(app).commands)  # type: ignore[attr-defined]


def test_hadolint_accepts_the_container_file(needs: Needs) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    needs(hadolint, "hadolint is not installed")
    done = run(hadolint, CONTAINER / "Containerfile", cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_the_compose_file_follows_the_specification(tmp_path: Path) -> None:
    words = ("check_jsonschema", "--builtin-schema", "vendor.compose-spec", CONTAINER / "compose.yaml")
    done = run(sys.executable, "-m", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_container_starts_a_server_as_configured(tmp_path: Path) -> None:
    (words,) = (json.loads(found) for found in re.findall(r"^CMD (\[.*\])$", FILE, re.MULTILINE))
    assert words[0] == "serve"
    config = load(None, words[1:], {"PENSTOCK_LOG_FORMAT": "json"}, tmp_path)
    assert str(config.dir) == "/data" and config.bind == ("0.0.0.0",) and config.log_format == "json"
    assert {config.port, config.iproto_port, config.http_port} <= set(
        map(int, re.findall(r"^EXPOSE (.*)$", FILE, re.MULTILINE)[0].split())
    )
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*)$", FILE, re.MULTILINE) for word in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)


def test_every_service_of_penstock_runs_a_command_that_exists() -> None:
    ours = {name: each for name, each in COMPOSE["services"].items() if each["image"] == "penstock"}
    assert set(ours) == {"node1", "node2", "node3", "meet", "dashboard"}
    for service in ours.values():
        assert service["command"][0] in COMMANDS or service["entrypoint"][0] == "/bin/sh"
        settings = {name: str(value) for name, value in service["environment"].items() if not name.endswith("_FILE")}
        assert load(None, [], settings, ROOT).http_port == 7712


def test_the_check_of_the_container_says_whether_a_node_is_ready(tmp_path: Path) -> None:
    (words,) = (json.loads(found) for found in re.findall(r"^ +CMD (\[.*\])$", FILE, re.MULTILINE))
    assert words[0] == "penstock"

    def check(port: int) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*words[1:], "--http-url", f"http://127.0.0.1:{port}"])
        return result.exit_code, result.output

    server = Server(tmp_path, "--requirepass", "s3cret", "--http-port", "0", password="s3cret")
    server.stop()
    code, said = check(server.port)
    assert code == 2 and said.startswith("CRITICAL: ready http://127.0.0.1:")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:7712"])
def test_the_check_of_a_node_accepts_web_addresses_only(url: str) -> None:
    result = CliRunner().invoke(app, ["check", "ready", "--http-url", url])
    assert result.exit_code == 3 and "is not an address of a web page" in result.output
