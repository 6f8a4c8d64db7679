"""`penstock backup` and `penstock restore`: copies of a queue's directory."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.output import fail
from penstock.cli.progress import bytes_bar
from penstock.core.errors import CommandError
from penstock.journal.copies import copy_log
from penstock.journal.disk import ReadOnlyDisk, RealDisk
from penstock.journal.identity import identity


def backup(
    directory: Annotated[str, typer.Argument(help="The directory of the queue; the queue may be in use.")],
    target: Annotated[str, typer.Argument(help="Where to copy it to: a new or an empty directory.")],
) -> None:
    """Copy a queue's directory while the queue is in use: its state, and the history that is kept."""
    _copy("copying", directory, target, None)


def restore(
    copy: Annotated[str, typer.Argument(help="A backup, or the directory of a queue.")],
    target: Annotated[str, typer.Argument(help="Where to restore it to: a new or an empty directory.")],
    to_position: Annotated[
        int | None,
        typer.Option("--to-position", min=0, help="The state after this position of the log. Default: the newest."),
    ] = None,
) -> None:
    """Make a queue's directory from a copy, as the queue was at its end or after an earlier position.

    `penstock journal tail` and `export` show positions. What one commit wrote is restored whole, or not at all. Do not
    run the restored queue beside the original: they are the same node.
    """
    _copy("restoring", copy, target, to_position)


def _copy(what: str, source: str, target: str, to_position: int | None) -> None:
    try:
        disk = ReadOnlyDisk(source)
        identity(disk)  # Before anything is made.
        with bytes_bar(what) as progress:
            copied = copy_log(disk, RealDisk(target), to_position, progress)
    except (CommandError, OSError) as error:
        fail(f"{source}: {error}")
    typer.echo(f"{target}: {copied.files:,} files, {copied.bytes:,} bytes, the state after position {copied.last:,}")
