"""Transcripts of every command, as text and as JSON, on a directory and on a server. See transcript.py.

A transcript whose name ends with -directory or -server runs only there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command

from penstock.cli.main import app

from .transcript import Session, commands, replay

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
KINDS = ("directory", "server")
CASES = [
    pytest.param(path, kind, id=f"{path.stem} on a {kind}")
    for path in GOLDEN
    for kind in KINDS
    if path.stem.rpartition("-")[2] not in KINDS or path.stem.endswith(kind)
]
# Commands that other tests cover.
ELSEWHERE = {
    *(
        "serve",
        "config show",
        "config hash-password",
        "token create",
        "backup",
        "restore",
        "demo",
        "cli",
        "top",
        "completion",
        "sim",
    ),
    *("journal check", "journal repair", "journal stat", "journal export", "journal digest"),
    *("pipeline once", "pipeline run", "pipeline backfill", "pipeline compact", "pipeline report", "pipeline audit"),
    *("pipeline replay", "pipeline whatif", "pipeline forget", "pipeline vacuum", "pipeline convert", "pipeline init"),
    *("import disque-aof", "import jsonl", "import tarantool"),
    *("bench put", "bench take", "bench mixed"),
    *("sim", "standby", "cluster meet", "cluster leave", "cluster forget", "cluster check", "cluster demo"),
    *("cluster homes", "cluster rehome", "cluster gather"),
    *("config hash-password", "token create", "api", "dashboard", "worker", "doctor", "check ready", "mcp"),
}


@pytest.mark.parametrize(("path", "kind"), CASES, indirect=["kind"])
def test_a_transcript_matches_the_output(path: Path, session: Session, pytestconfig: pytest.Config) -> None:
    text = path.read_text()
    now = replay(text, session.type)
    if pytestconfig.getoption("--update"):
        path.write_text(now)
    else:
        assert now == text


def names(group: object, before: str = "") -> set[str]:
    """Return the names of all commands, including their groups."""
    found: set[str] = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        found |= names(command, f"{before}{name} ") if hasattr(command, "commands") else {f"{before}{name}"}
    return found


def test_every_command_is_in_a_transcript_for_people_and_for_programs() -> None:
    typed = [line.split(" | ")[-1] for path in GOLDEN for line in commands(path.read_text())]
    for name in names(get_command(app)) - ELSEWHERE:
        lines = [line for line in typed if f"{line} ".startswith(f"penstock {name} ")]
        in_json = [line for line in lines if "--format json" in line or "--json" in line]
        assert in_json, f"no transcript has `penstock {name}` with JSON"
        assert len(lines) > len(in_json), f"no transcript has `penstock {name}` without JSON"
