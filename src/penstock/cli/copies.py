"""`penstock backup` and `penstock restore`: copies of a queue's directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import told
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.journal.disk import RealDisk


def backup(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory of the queue, which may be in use.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where to copy it: a new or an empty directory.")],
) -> None:
    """Copy a queue's directory while the queue is in use: its state, and the history that is kept."""
    _copy("copying", directory, target, None)


def restore(
    copy: Annotated[str, typer.Argument(metavar="COPY", help="A backup, or the directory of a queue.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where to restore it: a new or an empty directory.")],
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
    from penstock.cli.progress import bytes_bar
    from penstock.journal.copies import copy_log
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.identity import identity

    with told(source), bytes_bar(what) as progress:
        disk = ReadOnlyDisk(source)
        identity(disk)  # Before anything is made.
        with _made(target) as made:
            copied = copy_log(disk, made, to_position, progress)
    typer.echo(f"{target}: {copied.files:,} files, {copied.bytes:,} bytes, the state after position {copied.last:,}")


@contextmanager
def _made(path: str) -> Iterator[RealDisk]:
    """A directory that is gone again if nothing comes of it."""
    from penstock.journal.disk import RealDisk

    whole = Path(path).absolute()
    missing = [place for place in (whole, *whole.parents) if not place.exists()]
    try:
        disk = RealDisk(path)
        if any(whole.iterdir()):
            raise CommandError("the target is not empty; name a new directory")
        yield disk
    except BaseException:
        for place in missing:
            # Only what is empty goes.
            with suppress(OSError):
                place.rmdir()
        raise
