"""The entry point of the command line."""

import subprocess
import sys
from itertools import pairwise

from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.main import app


def run(*args: str) -> str:
    return CliRunner().invoke(app, args).output


def test_the_version_says_whether_the_core_is_compiled(compiled: bool) -> None:
    line = run("--version")
    assert line.startswith(f"penstock {__version__} ({'compiled' if compiled else 'interpreted'}, CPython 3.")
    assert ("about ten times slower" in line) == (not compiled)


def test_without_arguments_it_lists_the_commands() -> None:
    assert "demo" in run()


def test_help_is_wrapped_at_the_width_of_the_terminal() -> None:
    shown = CliRunner().invoke(app, ["take", "--help"], env={"COLUMNS": "90"}).output
    lines = [line.strip() for line in shown.splitlines()]
    start = next(at for at, line in enumerate(lines) if line.startswith("The next commands"))
    paragraph = lines[start : lines.index("", start)]
    assert len(paragraph) > 2
    for line, following in pairwise(paragraph):
        assert len(f"{line} {following.split()[0]}") > 88, "the line ends before it is full"


def test_help_is_shown_before_an_engine_is_imported() -> None:
    seen = (
        "import sys\nfrom penstock.cli.main import app\ntry:\n    app(['--help'])\nfinally:\n"
        "    print(sys.modules.keys() & {'penstock.core.engine', 'penstock.client.url', 'ssl', 'asyncio'})"
    )
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert "Jobs" in done.stdout and done.stdout.endswith("set()\n")


def test_help_shows_the_default_that_stands_in_brackets() -> None:
    shown = CliRunner().invoke(app, ["tube", "create", "--help"], env={"COLUMNS": "160"}).output
    assert "[default: fifottl]" in shown and "[env: PENSTOCK_CONTEXT]" in shown


def test_usage_shows_arguments_in_one_pair_of_brackets() -> None:
    assert "Usage: penstock put [OPTIONS] TUBE [BODY]..." in run("put", "--help")
    assert "Usage: penstock serve [OPTIONS] [FILE] [--SETTING VALUE]..." in run("serve", "--help")


def test_help_shows_no_type_for_a_flag() -> None:
    line = next(line for line in run("take", "--help").splitlines() if "--ack" in line)
    assert "bool" not in line.lower()
