"""The files in deploy/ work as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.server.config.configuration import Config, load
from penstock.server.config.settings import SETTINGS
from tests.server.serving import Server

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
EXAMPLES = ["disque.conf", "penstock.toml"]


def loaded(name: str, place: Path) -> Config:
    return load(str(DEPLOY / name), [], {}, place)


def test_a_server_starts_with_the_disque_conf_and_keeps_its_jobs(tmp_path: Path) -> None:
    server = Server(tmp_path, str(DEPLOY / "disque.conf"))
    try:
        wire = server.connect()
        wire.add("queue")
        assert wire.info("persistence")["aof_enabled"] == "1"
        assert (tmp_path / "penstock-data" / "node.json").exists()
    finally:
        server.stop()


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_example_says_is_what_comes_of_it(tmp_path: Path, name: str) -> None:
    config = loaded(name, tmp_path)
    said = {setting.name for setting in SETTINGS if name in config.origin(setting.name)}
    assert {"port", "bind", "dir", "fsync", "history"} <= said
    assert config.journal and config.fsync == "always" and config.bind == ("127.0.0.1",)


def test_what_is_commented_out_in_the_disque_conf_is_understood_too(tmp_path: Path) -> None:
    directives = {setting.directive for setting in SETTINGS} | {"include"}
    lines = re.findall(r"^# ([a-z-]+) \S.*$", (DEPLOY / "disque.conf").read_text(), re.MULTILINE)
    offered = [f"{line[2:]}\n" for line in (DEPLOY / "disque.conf").read_text().splitlines() if line.startswith("# ")]
    usable = [line for line in offered if line.split()[0] in directives - {"include"}]
    assert len(usable) >= 10 and {"requirepass", "user", "http-port"} <= set(lines)
    path = tmp_path / "all.conf"
    path.write_text("".join(usable))
    config = load(str(path), [], {}, tmp_path)
    assert config.http_port == 7712 and config.requirepass == "a long password"
