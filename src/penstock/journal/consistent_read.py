"""Reads a directory without a lock. A node may use the directory, and remove or rewrite its files, at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.core.errors import CommandError, DamagedJournal
from penstock.journal.disk import ReadableDisk
from penstock.journal.segment import segment_names, snapshot_names

_ATTEMPTS_MAX: Final = 10

T = TypeVar("T")


def read_consistently(disk: ReadableDisk, look: Callable[[], T], is_wrong: Callable[[T], bool] = lambda _: False) -> T:
    """Call `look`, which reads the directory, and return its result.

    If `look` fails because files were removed or rewritten meanwhile, call it again. Also call it again if that
    happened and `is_wrong` returns True for the result. Raise CommandError after several attempts.
    """
    for _ in range(_ATTEMPTS_MAX):
        before = _log_files(disk)
        try:
            found = look()
        except FileNotFoundError:
            continue
        except DamagedJournal:
            if before <= _log_files(disk):
                raise
            continue
        if before <= _log_files(disk) or not is_wrong(found):
            return found
    raise CommandError("the files of the log change faster than they can be read; try again")


def _log_files(disk: ReadableDisk) -> set[tuple[str, int]]:
    """Return names and sizes. A file that is written has its full size from the start, and a rewritten file another."""
    found = set()
    for name in (*segment_names(disk), *snapshot_names(disk)):
        with contextlib.suppress(FileNotFoundError):
            found.add((name, disk.size(name)))
    return found
