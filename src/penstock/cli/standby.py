"""`penstock standby`: follow the journal of a node, so that somebody can become it when it is lost."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import USAGE, complain, fail
from penstock.cli.output import Output, told
from penstock.cli.spans import span
from penstock.cli.target import place_of, silence_client_log
from penstock.core.errors import Unreachable

if TYPE_CHECKING:
    from penstock.client.standby import Lag, Standby
    from penstock.client.url import Target
    from penstock.journal.mirror import Mirror

# How long to wait at the end of the log before one looks around.
_WAIT_MS: Final = 1_000

# How often it is told how far it is, seconds, if that has changed.
_TELL_S: Final = 10.0


@bundled
def standby(
    *,
    of: Annotated[str, typer.Option("--of", metavar="URL", help="The node to follow: a server with a journal.")],
    directory: Annotated[
        str, typer.Option("--dir", "-d", metavar="DIR", help="Where to keep what it has: new, empty, or used before.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Have what it has now, and end.")] = False,
    out: Output,
) -> None:
    """Follow the journal of a node in a directory of its own, until you stop it.

    When the node is lost, `penstock cluster rehome` lets the directory be that node: the same jobs under the same ids.
    It can be stopped and started at any time, and so can the node; it goes on where it was. The user that the URL names
    has to be one who may administer the node and use every queue.
    """
    from penstock.client.url import target
    from penstock.journal.disk import RealDisk
    from penstock.journal.mirror import Mirror

    place = place_of(of)
    if place.directory is not None:
        fail("a standby follows a server; `penstock backup` copies a directory", USAGE)
    silence_client_log()
    where = target(place.url, name="standby", retry_for=0)
    with told(directory):
        mirror = Mirror(RealDisk(directory))
        try:
            if once:
                _once(where, mirror, directory, out)
            else:
                _follow(where, mirror, directory, out)
        finally:
            mirror.close()


def _once(where: Target, mirror: Mirror, directory: str, out: Output) -> None:
    standby = _connected(where, mirror)
    try:
        _catch_up(standby)
        _tell(standby.lag, directory, out)
    finally:
        standby.close()


def _follow(where: Target, mirror: Mirror, directory: str, out: Output) -> None:
    from penstock.client.backoff import Backoff

    search: Backoff | None = None
    while True:
        try:
            standby = _connected(where, mirror)
            try:
                _catch_up(standby)
                search = None
                _tell(standby.lag, directory, out)
                _go_on(standby, directory, out)
            finally:
                standby.close()
        except Unreachable as error:
            if search is None:
                complain(f"{error}; trying again until it is there")
                search = Backoff(None)
            time.sleep(search.pause() or 0.0)


def _go_on(standby: Standby, directory: str, out: Output) -> None:
    """Follow the log as it grows."""
    shown, at = standby.lag.position, time.monotonic()
    while True:
        standby.go_on(_WAIT_MS)
        lag = standby.lag
        if lag.position != shown and time.monotonic() - at >= _TELL_S:
            shown, at = lag.position, time.monotonic()
            _tell(lag, directory, out)


def _connected(where: Target, mirror: Mirror) -> Standby:
    from penstock.client.standby import Standby

    return Standby(where, mirror)


def _catch_up(standby: Standby) -> None:
    from penstock.cli.progress import bytes_bar

    with bytes_bar("fetching the snapshot") as progress:
        standby.tell = progress
        standby.catch_up()


def _tell(lag: Lag, directory: str, out: Output) -> None:
    """Say how far it is."""
    words = f"{directory} has everything up to position {lag.position:,}"
    if lag.rows:
        behind = span(round(lag.seconds * 1000))
        words += f", and is {lag.rows:,} events, {lag.bytes:,} bytes and {behind} behind"
    out.done(words, position=lag.position, rows=lag.rows, bytes=lag.bytes, seconds=round(lag.seconds, 3))
    sys.stdout.flush()
