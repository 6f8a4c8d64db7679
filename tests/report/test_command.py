"""`penstock pipeline report` prints the tables of the page, writes the page, and refuses invalid options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.commands.pipeline import report as pipeline_report
from penstock.cli.main import app
from penstock.report.source import AuditResult, Finding

from .memory_source import DAY, MemorySource, minute
from .sample import bucket_of

COMMAND = ["pipeline", "report", "--lake"]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake with two minutes of a tube."""
    gold = {
        "rates": [{"tube": "emails", "minute": minute(at), "puts": 1_234, "takes": 1} for at in range(2)],
        "durations": [
            {"tube": "emails", "minute": DAY, "kind": "wait", "bucket": bucket_of(ms), "count": 1}
            for ms in (20, 61_000)
        ],
    }
    verdict = AuditResult([Finding("Nothing is lost.", "kept")], DAY, 3)
    source = MemorySource(gold, verdict=verdict)
    monkeypatch.setattr(pipeline_report, "open_source", lambda lake, since, until, urls: source)
    return str(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*COMMAND, *arguments])


def test_the_terminal_shows_the_sections_of_the_page(lake: str) -> None:
    shown = run(lake, "--target", "p50=1m", "--target", "p99=1s")
    assert shown.exit_code == 0, shown.output
    assert (
        "Audit: Was every promise kept, according to the history?\n1 promise kept. Audited at 2026-11-16"
        in shown.output
    )
    assert "Lag: How far is the lake behind the nodes?\nThe lag is not known. No node was asked.\n" in shown.output
    assert "emails  2468" in shown.output and "1 min 1 s" in shown.output
    assert "emails  p50 ≤ 1 min  met " in shown.output and "emails  p99 ≤ 1 s    missed " in shown.output
    page = Path(lake, "report.html")
    assert f"The report is {page} (" in shown.output and shown.output.endswith(" KB)\n")
    assert "2,468" in page.read_text() and not list(Path(lake).glob("*.part"))


def test_json_has_one_line_per_row_with_plain_numbers(lake: str) -> None:
    result = run(lake, "--json", "--no-page", "--target", "p95=2s")
    lines = [json.loads(line) for line in result.output.splitlines()]
    by_section = {line.pop("section"): line for line in lines}
    assert list(by_section) == ["audit", "targets", "rates", "waits"]
    assert by_section["audit"] == {"promise": "Nothing is lost.", "verdict": "kept", "times broken": 0, "note": ""}
    counts = {"tube": "emails", "put": 2468, "taken": 2, "acked": 0, "failed": 0}
    assert by_section["rates"] == {**counts, "put in the busiest minute": 1234}
    waits = by_section["waits"]
    assert (waits["p50, ms"], waits["takes"]) == (20, 2) and 61_000 <= waits["p95, ms"] <= 62_220
    assert by_section["targets"]["budget used, %"] == 1000.0
    assert not Path(lake, "report.html").exists()


def test_the_page_has_a_place_of_its_own(lake: str, tmp_path: Path) -> None:
    told = run(lake, "--json", "--to", str(tmp_path / "other.html")).output.splitlines()
    path = tmp_path / "other.html"
    assert json.loads(told[-1]) == {"report": str(path), "bytes": path.stat().st_size}


def test_an_unknown_tube_is_refused(lake: str) -> None:
    wrong = run(lake, "--tube", "emials")
    assert wrong.exit_code == 1 and "the lake has no tube 'emials'; its tubes are emails" in wrong.output


def test_an_invalid_target_is_refused(lake: str) -> None:
    wrong = run(lake, "--target", "fast")
    assert wrong.exit_code == 2 and "'fast' is not a target; write a percentile of the wait times" in wrong.output
    assert wrong.output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--lake", "nowhere"], 3, "nowhere holds no lake; create one with"),
        (["--lake", "nowhere", "--since", "yesterday"], 2, "'yesterday' is not a day; write it as 2026-11-16"),
        ([], 2, "missing option '--lake'"),
    ],
)
def test_invalid_arguments_are_refused_with_one_sentence(arguments: list[str], code: int, words: str) -> None:
    for command in ("report", "whatif"):
        result = CliRunner().invoke(app, ["pipeline", command, *arguments])
        assert result.exit_code == code and words in result.output and result.output.count("\n") == 1
