"""`penstock standby`: copy the journal of a node continuously, to replace the node when it is lost."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.errors import USAGE, fail, print_error
from penstock.cli.output import Output, naming_directory
from penstock.cli.targets import parse_address, silence_client_log
from penstock.core.errors import Unreachable
from penstock.report.units import duration_text

if TYPE_CHECKING:
    from penstock.client.standby import Lag, Standby
    from penstock.client.url import Target
    from penstock.journal.maintenance.mirror import Mirror

# Maximum time to wait for new rows at the end of the log.
_WAIT_MS: Final = 1_000

# Seconds between two progress lines. A line is printed only if the position has changed.
_PRINT_INTERVAL_S: Final = 10.0


def standby(
    *,
    of: Annotated[str, typer.Option("--of", metavar="URL", help="Node to follow: a server with a journal.")],
    directory: Annotated[
        str,
        typer.Option(
            "--dir", "-d", metavar="DIR", help="Directory of the standby: new, empty, or from an earlier run."
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Copy the current state, and exit.")] = False,
    out: Output,
) -> None:
    """Copy the journal of a server (a node) into a directory continuously, until you stop the command.

    When the node is lost, `penstock cluster rehome` replaces it by a node on this directory, with the same jobs and
    ids. The standby and the node can be stopped and started at any time. The standby continues where it stopped. The
    user in the URL must be allowed to administer the node and to use every queue.
    """
    from penstock.client.url import target
    from penstock.journal.maintenance.mirror import Mirror
    from penstock.journal.real_disk import RealDisk

    place = parse_address(of)
    if place.directory is not None:
        fail("--of must name a server; use `penstock backup` to copy a directory", USAGE)
    silence_client_log()
    where = target(place.url, name="standby", retry_for=0)
    with naming_directory(directory), closing(Mirror(RealDisk(directory))) as mirror:
        _follow(where, mirror, directory, once, out)


def _follow(where: Target, mirror: Mirror, directory: str, once: bool, out: Output) -> None:
    """Copy the log forever, and reconnect to a lost server. With `once`, return when the copy is complete."""
    from penstock.client.backoff import Backoff
    from penstock.client.standby import Standby

    search: Backoff | None = None
    while True:
        try:
            with closing(Standby(where, mirror)) as standby:
                _catch_up(standby)
                search = None
                _print_lag(standby.lag, directory, out)
                if once:
                    return
                _follow_log(standby, directory, out)
        except Unreachable as error:
            if once:
                raise
            if search is None:
                print_error(f"{error}; retrying until it answers")
                search = Backoff(None)
            time.sleep(search.pause() or 0.0)


def _follow_log(standby: Standby, directory: str, out: Output) -> None:
    shown, at = standby.lag.position, time.monotonic()
    while True:
        standby.fetch_next(_WAIT_MS)
        lag = standby.lag
        if lag.position != shown and time.monotonic() - at >= _PRINT_INTERVAL_S:
            shown, at = lag.position, time.monotonic()
            _print_lag(lag, directory, out)


def _catch_up(standby: Standby) -> None:
    from penstock.cli.progress import bytes_bar

    with bytes_bar("fetching the snapshot") as progress:
        standby.on_progress = progress
        standby.catch_up()


def _print_lag(lag: Lag, directory: str, out: Output) -> None:
    words = f"{directory} has everything up to position {lag.position:,}"
    if lag.rows:
        behind = duration_text(round(lag.seconds * 1000))
        words += f"; lag: {lag.rows:,} events, {lag.bytes:,} bytes, {behind}"
    out.report_done(words, position=lag.position, rows=lag.rows, bytes=lag.bytes, seconds=round(lag.seconds, 3))
    sys.stdout.flush()
