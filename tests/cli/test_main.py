"""The command line's way in."""

from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.main import app


def run(*args: str) -> str:
    return CliRunner().invoke(app, args).output


def test_the_version_says_whether_the_core_is_compiled(compiled: bool) -> None:
    line = run("--version")
    assert line.startswith(f"penstock {__version__} ({'compiled' if compiled else 'interpreted'}, CPython 3.")
    assert ("a tenth of the speed" in line) == (not compiled)


def test_without_arguments_it_lists_the_commands() -> None:
    assert "demo" in run()
