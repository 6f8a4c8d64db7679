"""The way into the command line: one small function a subcommand, each importing what it needs when it runs.

Late imports keep `penstock --help` quick and let a light installation run every command it has the packages for.
"""

import platform
from typing import Annotated

import typer

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.cli import config, console, copies, importing, job, journal, serve

app = typer.Typer(name="penstock", no_args_is_help=True)
app.add_typer(config.app, name="config")
app.add_typer(importing.app, name="import")
app.add_typer(job.app, name="job")
app.add_typer(journal.app, name="journal")
app.command()(copies.backup)
app.command()(copies.restore)
app.command(context_settings={"ignore_unknown_options": True})(serve.serve)
# What follows the command's name is its own, dashes or not.
app.command(context_settings={"allow_interspersed_args": False})(console.cli)


def version_line() -> str:
    """The version, and how fast to expect it to be."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if is_compiled():
        return f"penstock {__version__} (compiled, {python})"
    return (
        f"penstock {__version__} (interpreted, {python}: installed without a C compiler, or run from source; "
        "expect a tenth of the speed)"
    )


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and how it was built."),
    ] = False,
) -> None:
    """A job queue that speaks the languages of the queues people already use."""


@app.command()
def demo() -> None:
    """Crawl made-up pages with a dozen workers, and show that no domain is visited twice at a time."""
    from penstock.cli.demo import run

    raise typer.Exit(run())


def main() -> None:
    """The console script."""
    app()
