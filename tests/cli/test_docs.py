"""The console sessions in docs/reference/cli.md match the output, on a directory and on a server."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from penstock.cli.main import app

from .transcript import Session, replay

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
CONSOLE = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def test_the_sessions_in_the_page_match_the_output(session: Session) -> None:
    written = "".join(CONSOLE.findall(PAGE))
    # Another session masks the ids in the page, so that both count ids from 1.
    reader = Session(session.directory, {}, {})
    assert replay(reader.mask(written), session.type) == reader.mask(written)


def test_every_command_and_every_option_is_in_the_page() -> None:
    todo = [("penstock", get_command(app))]
    for path, command in todo:
        if hasattr(command, "commands"):
            todo += [(f"{path} {name}", each) for name, each in command.commands.items()]
            continue
        section = PAGE.partition(f"### {path}\n")[2].partition("\n### ")[0]
        assert section, f"docs/reference/cli.md has no `{path}`"
        for parameter in command.params:
            assert parameter.help, f"{path} says nothing about {parameter.name}"
            if parameter.param_type_name == "option" and parameter.name not in ("url", "directory", "context", "help"):
                assert parameter.opts[0] in section or parameter.name == "json", f"{path} {parameter.opts[0]}"
