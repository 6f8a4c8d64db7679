"""The output and the exit code of an audit, also for promises that it could not check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands.pipeline import audit as command
from penstock.cli.main import app
from penstock.cli.output import Output
from penstock.pipeline.audit import Verdict
from penstock.pipeline.judge.finding import Finding


@pytest.mark.parametrize(
    ("finding", "kept", "words"),
    [
        (Finding("lost", "Nothing is lost.", 0, []), True, "kept        Nothing is lost."),
        (Finding("lost", "Nothing is lost.", 2, []), False, "broken      Nothing is lost."),
        (Finding("keys", "One a key.", 0, [], "why", judged=False), None, "cannot tell One a key. (why)"),
        (Finding("keys", "One a key.", 0, [], "of some"), True, "kept        One a key. (of some)"),
    ],
)
def test_a_promise_is_kept_only_if_it_was_checked(
    finding: Finding, kept: bool | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Verdict(1, [finding])
    assert verdict.broken is (kept is False) and verdict.cannot_tell is (kept is None)
    command.show(verdict, Output(json=False))
    assert capsys.readouterr().out.startswith(words)
    command.show(verdict, Output(json=True))
    assert json.loads(capsys.readouterr().out)["kept"] is kept


def test_only_a_broken_promise_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    codes = {"file": 5, "nothing": 3}
    for name, code in codes.items():
        done = CliRunner().invoke(app, ["pipeline", "audit", "--lake", str(tmp_path / name)])
        assert (done.exit_code, done.output.count("\n")) == (code, 1), done.output
