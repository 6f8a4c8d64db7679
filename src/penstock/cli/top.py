"""`penstock top`: a queue, live on the terminal."""

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
        float, typer.Option("--every", "-i", parser=duration, metavar="TIME", help="Look again every so often.")
    ] = 1.0,
    *,
    target: Target,
) -> None:
    """Watch tubes, jobs, consumers and what happens, live on the terminal; `?` shows the keys."""
    from penstock.cli.top_app import Top

    if not sys.stdout.isatty():
        fail("this needs a terminal; `penstock stats --watch 1s` goes anywhere", USAGE)
    place = target.place()
    watcher = watcher_of(place)
    # Whoever cannot be reached at all is told so at once, in a sentence.
    watcher.look("tubes", "")
    try:
        Top(watcher, place.shown(), every or 1.0).run()
    finally:
        watcher.close()


def watcher_of(place: Place) -> Watcher:
    """Who looks at a place."""
    import penstock
    from penstock.cli.speaker import Speaker, address_of
    from penstock.cli.watching import DirectorySide, ServerSide, Watcher

    directory, url = place.directory, place.url
    if directory is not None:
        return Watcher(lambda: open_directory(directory), DirectorySide(directory))
    # It looks for a lost server at every look, so one look need not wait for it.
    return Watcher(
        lambda: penstock.connect(url, retry_for=0, name="penstock-top"),
        ServerSide(Speaker(address_of(url))),
    )
