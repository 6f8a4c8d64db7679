"""Progress bars on standard error. They are shown only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def count_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar that counts items. Yield its function `update(done, total)`. `total` can be None."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def bytes_bar(what: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar that counts bytes. Yield its function `update(done, total)`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def lines_bar(what: str, total_bytes: int | None) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for a file that is being read. Yield its function `update(bytes_read, lines_read)`."""
    columns = (
        TextColumn("{task.description} {task.fields[lines]:,} lines"),
        *(BarColumn(), DownloadColumn(), TimeRemainingColumn()),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total_bytes, lines=0)
        yield lambda done, lines: progress.update(task, completed=done, lines=lines)


@contextmanager
def stages_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each step of a command. Yield a function `update(step, done, total)`. `total` is 0 if unknown."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=None)
            progress.update(tasks[stage], completed=done, total=total or None)

        yield update
