"""`penstock top`: a live view of a queue on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import USAGE, fail
from penstock.cli.target import Place, Target, open_directory
from penstock.cli.values import duration

if TYPE_CHECKING:
    from penstock.cli.watching import Watcher


@bundled
def top(
    every: Annotated[
        float, typer.Option("--every", "-i", parser=duration, metavar="TIME", help="Refresh interval.")
    ] = 1.0,
    *,
    target: Target,
) -> None:
    """Show tubes, jobs, consumers and events live on the terminal. Press `?` for the keys."""
    from penstock.cli.top_app import Top

    if not sys.stdout.isatty():
        fail("`penstock top` needs a terminal; use `penstock stats --watch 1s` instead", USAGE)
    place = target.place()
    watcher = watcher_of(place)
    # If the server is unreachable, fail now with a message instead of opening the screen.
    watcher.look("tubes", "")
    try:
        Top(watcher, place.shown(), every or 1.0).run()
    finally:
        watcher.close()


def watcher_of(place: Place) -> Watcher:
    """Return the watcher of a queue."""
    import penstock
    from penstock.cli.speaker import Speaker, address_of
    from penstock.cli.watching import DirectorySide, ServerSide, Watcher

    directory, url = place.directory, place.url
    if directory is not None:
        return Watcher(lambda: open_directory(directory), DirectorySide(directory))
    # Every refresh reconnects to a lost server, so a single refresh does not retry.
    return Watcher(
        lambda: penstock.connect(url, retry_for=0, name="penstock-top"),
        ServerSide(Speaker(address_of(url))),
    )
