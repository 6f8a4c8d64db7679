"""`penstock top`: a live view of a queue on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import USAGE, fail
from penstock.cli.option_values import parse_duration
from penstock.cli.targets import QueueAddress, Target, open_directory

if TYPE_CHECKING:
    from penstock.cli.top.data import QueueReader


def top(
    every: Annotated[
        float, typer.Option("--every", "-i", parser=parse_duration, metavar="TIME", help="Refresh interval.")
    ] = 1.0,
    *,
    target: Target,
) -> None:
    """Show tubes, jobs, consumers and events live on the terminal. Press `?` for the keys."""
    from penstock.cli.top.screen import Top

    if not sys.stdout.isatty():
        fail("`penstock top` needs a terminal; use `penstock stats --watch 1s` instead", USAGE)
    place = target.address()
    watcher = open_reader(place)
    # If the server is unreachable, fail now with a message instead of opening the screen.
    watcher.read_view("tubes", "")
    try:
        Top(watcher, place.without_password(), every or 1.0).run()
    finally:
        watcher.close()


def open_reader(place: QueueAddress) -> QueueReader:
    """Return an object that reads the data of the screen from a queue."""
    import penstock
    from penstock.cli.top.data import DirectoryBackend, QueueReader, ServerBackend

    directory, url = place.directory, place.url
    if directory is not None:
        return QueueReader(lambda: open_directory(directory), DirectoryBackend(directory))
    # Every refresh reconnects to a lost server, so a single refresh does not retry.
    return QueueReader(lambda: penstock.connect(url, retry_for=0, name="penstock-top"), ServerBackend())
