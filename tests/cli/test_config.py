"""`penstock config show` shows the settings that a server would use, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.server.config.scrypt import read_hash
from penstock.server.config.settings import SETTINGS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def show(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["config", "show", *arguments], env=environment)


def test_every_setting_is_shown_once() -> None:
    lines = show().output.splitlines()
    assert [line.split()[0] for line in lines] == [setting.name for setting in SETTINGS]


def test_the_example_in_the_documentation_is_correct(here: Path) -> None:
    (here / "disque.conf").write_text("port 7712\n")
    arguments = ["disque.conf", "--maxclients", "500", "--origin", "--changed"]
    result = show(*arguments)
    page = (Path(__file__).parent.parent.parent / "docs" / "reference" / "configuration.md").read_text()
    assert f"$ penstock config show {' '.join(arguments)}\n{result.output}```" in page


def test_the_origin_of_each_value_is_shown(here: Path) -> None:
    (here / "p.toml").write_text("hz = 11\ntimeout = 5\n")
    result = show("--changed", "p.toml", "--origin", "--port", "7712", "--no-journal", PENSTOCK_TIMEOUT="6")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.output.splitlines()}
    assert rows == {
        "port": ["7712", "flag --port"],
        "timeout": ["6s", "environment PENSTOCK_TIMEOUT"],
        "journal": ["no", "flag --no-journal"],
        "hz": ["11", "p.toml line 1"],
    }


def test_json_has_all_settings() -> None:
    shown = json.loads(show("--json", "--changed", "--max-body", "1mb", "--fsync", "never").output)
    assert shown == {"max_body": 1 << 20, "fsync": "never"}
    shown = json.loads(show("--json", "--changed", "--origin", "--no-journal").output)
    assert shown == {"journal": {"value": False, "origin": "flag --no-journal"}}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_not_shown(here: Path, form: list[str]) -> None:
    (here / "d.conf").write_text("user alice password:s3cret\nrename-command DEBUG s3cret\nrequirepass s3cret\n")
    result = show("d.conf", "--changed", *form)
    assert result.exit_code == 0 and "s3cret" not in result.output
    assert "alice" in result.output and result.output.count("***") == 2


def test_control_characters_are_escaped(here: Path) -> None:
    (here / "d.conf").write_bytes(b'logfile "\\x1b[2J\xff\xc3\xa9"\n')
    assert show("d.conf", "--changed").output == "logfile  \\x1b[2J\\udcffé\n"


def test_a_usage_error_is_one_sentence() -> None:
    result = show("--maxclient", "5")
    assert result.exit_code == 2
    assert result.output == "penstock: there is no flag '--maxclient'; did you mean --maxclients?\n"


def test_a_hashed_password_is_read_from_standard_input_and_accepted_in_the_configuration() -> None:
    result = CliRunner().invoke(app, ["config", "hash-password"], input="two words\n")
    found = read_hash(result.output.strip())
    assert found is not None and found.matches(b"two words")
    shown = show("--changed", "--user", f"alice password_scrypt:{found}", "--json")
    assert json.loads(shown.output) == {"users": "alice"}
    assert json.loads(CliRunner().invoke(app, ["config", "hash-password", "--json"], input="x").output).keys() == {
        "password_scrypt"
    }


@pytest.mark.parametrize("given", ["", "\n", "x" * 513, "two\nlines\n"])
def test_no_password_and_several_lines_are_refused(given: str) -> None:
    result = CliRunner().invoke(app, ["config", "hash-password"], input=given)
    assert result.exit_code == 2 and "1 to 512 bytes" in result.output
