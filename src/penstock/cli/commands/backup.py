"""`penstock backup` and `penstock restore`: copies of a queue directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import naming_directory
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.journal.real_disk import RealDisk


def backup(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Queue directory. It may be in use.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="New or empty directory for the copy.")],
) -> None:
    """Copy a queue directory with its jobs and history. The queue can be in use."""
    _copy("copying", directory, target, None)


def restore(
    copy: Annotated[str, typer.Argument(metavar="COPY", help="Backup, or queue directory.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="New or empty directory for the queue.")],
    to_position: Annotated[
        int | None,
        typer.Option(
            "--to-position", min=0, help="Restore the state after this position of the log. Default: the end."
        ),
    ] = None,
) -> None:
    """Create a queue directory from a backup, with the state at the end of its journal or after an earlier position.

    `penstock journal tail` and `export` show positions. A commit is restored completely or not at all. Do not run the
    restored queue together with the original, because both have the same node id.
    """
    _copy("restoring", copy, target, to_position)


def _copy(what: str, source: str, target: str, to_position: int | None) -> None:
    from penstock.cli.progress import bytes_bar
    from penstock.journal.identity import identity
    from penstock.journal.maintenance.backup import copy_log
    from penstock.journal.real_disk import ReadOnlyDisk

    with naming_directory(source), bytes_bar(what) as progress:
        disk = ReadOnlyDisk(source)
        identity(disk)  # Fails before anything is created.
        with _made(target) as made:
            copied = copy_log(disk, made, to_position, progress)
    typer.echo(f"{target}: {copied.files:,} files, {copied.bytes:,} bytes, the state after position {copied.last:,}")


@contextmanager
def _made(path: str) -> Iterator[RealDisk]:
    """Create a directory for the block. Remove it if the block fails."""
    from penstock.journal.real_disk import RealDisk

    whole = Path(path).absolute()
    missing = [place for place in (whole, *whole.parents) if not place.exists()]
    try:
        disk = RealDisk(path)
        if any(whole.iterdir()):
            raise CommandError(f"the target {path} is not empty; name a new directory")
        yield disk
    except BaseException:
        for place in missing:
            # rmdir removes only empty directories.
            with suppress(OSError):
                place.rmdir()
        raise
