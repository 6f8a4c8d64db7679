"""Items of an import. An item is either a job to be put, or it is skipped for a reason.

A file always gives the same items in the same order, so the number of finished items is the progress of an import.
A live server may change between two runs. Its items therefore have cursors: positions at which a later run continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from penstock.cli.imports import disque_aof
from penstock.cli.imports.json_lines import BadLine, line_label, numbered_lines, read_line, scan_lines
from penstock.core.policy import DISQUE, TubePolicy
from penstock.options import policy_of, to_text

Progress = Callable[[int, int], None]

BAD_LINES: Final = "lines that are no jobs"

_ENDS_BYTES: Final = 64 * 1024

# Options that the default type of tube lacks, and a type that has them.
_NEEDS: Final = {"key": "utubettl", "once": "disque"}


@dataclass(frozen=True, slots=True)
class ImportItem:
    """A job to be put."""

    label: str  # The name of the job in messages.
    tube: bytes | str
    body: Any
    options: dict[str, Any]
    old_id: Any = None  # The old id, for the id map if the job gets a new id.
    cursor: Any = None  # The position of the source after this item, if items have no fixed numbers.


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """An item that is not put. Skipped items are counted by `reason`. `wrong` is an error message to print, or ""."""

    reason: str
    label: str = ""
    wrong: str = ""
    cursor: Any = None


class Source(Protocol):
    """A file or a server that provides items."""

    fingerprint: str  # Identifies the file or server.
    total: int | None  # Number of items, or None if it is not known in advance.
    passed: dict[str, int]  # Counts of jobs that were passed over when the source was opened, by reason.
    notes: list[str]  # Messages for the user.

    def items(self, start: int, cursor: Any, now_ms: Callable[[], int]) -> Iterator[ImportItem | SkippedItem]:
        """Yield the items, starting at item number `start` or after `cursor`."""

    def new_tube(self, arrival: ImportItem) -> TubePolicy:
        """Return the policy with which the tube of a job is created if it does not exist."""


class AofSource:
    """The jobs that remain in an append-only file of Disque, oldest first."""

    def __init__(self, file: BinaryIO, once: bool, progress: Progress) -> None:
        self._file = file
        self._size = _size(file)
        self._once = once
        self.fingerprint = fingerprint(file)
        found = disque_aof.contents(file, self._size, progress)
        self._offsets = found.offsets
        self.total: int | None = len(found.offsets)
        self.passed = {"acked, deleted or expired before the file ended": found.gone} if found.gone else {}
        torn = f"the last {found.torn_bytes:,} bytes of the file are an incomplete command and are ignored"
        self.notes = [torn] if found.torn_bytes else []

    def items(self, start: int, cursor: Any, now_ms: Callable[[], int]) -> Iterator[ImportItem | SkippedItem]:
        for offset in self._offsets[start:]:
            yield self._item(disque_aof.job_at(self._file, offset, self._size), now_ms())

    def new_tube(self, arrival: ImportItem) -> TubePolicy:
        return DISQUE

    def _item(self, job: disque_aof.AofJob, now: int) -> ImportItem | SkippedItem:
        ttl_ms, delay_ms = job.expires_ms - now, job.delay_left_ms(now)
        if ttl_ms <= 0:
            return SkippedItem("expired since")
        if delay_ms >= ttl_ms:
            return SkippedItem("expiring before their delay ends")
        # A job that may be delivered at most once, and may have been taken, must not be delivered a second time.
        if job.is_once and (job.was_delivered or (delay_ms == 0 and not self._once)):
            return SkippedItem("to be delivered once at most, and perhaps were (see --once)")
        id = job.id.decode("ascii", "backslashreplace")
        options: dict[str, Any] = {"ttl": ttl_ms / 1_000, "delay": delay_ms / 1_000, "nacks": job.nacks}
        options |= {"once": True} if job.is_once else {"ttr": job.retry_s}
        # The name prevents a second put of an unfinished job at any later time. The dedup id also covers finished jobs.
        return ImportItem(f"job {id}", job.queue, job.body, {**options, "name": job.id, "dedup": job.id})


class JsonLinesSource:
    """The jobs in the lines of a JSON lines file."""

    def __init__(self, file: BinaryIO, tube: str | None, type: str | None, progress: Progress) -> None:
        self._file = file
        self._tube = tube
        self._type = type
        self._fitting: dict[str, str] = {}  # By tube: the type that its lines need, if it is not the default.
        self.fingerprint = fingerprint(file)
        self._lines = self._read_all(progress)
        self.total: int | None = self._lines
        self.passed: dict[str, int] = {}
        self.notes: list[str] = []

    def items(self, start: int, cursor: Any, now_ms: Callable[[], int]) -> Iterator[ImportItem | SkippedItem]:
        self._file.seek(0)
        for number, _, raw in islice(numbered_lines(self._file), start, self._lines):
            yield self._item(raw, number)

    def new_tube(self, arrival: ImportItem) -> TubePolicy:
        name = to_text(arrival.tube) if isinstance(arrival.tube, bytes) else arrival.tube
        return policy_of(self._type or self._fitting.get(name))

    def _read_all(self, progress: Progress) -> int:
        """Count the lines. Find tubes whose jobs have a key or are `once`, which the default type does not support."""
        count = 0
        for _, _, raw in scan_lines(self._file, progress):
            count += 1
            for word, type in _NEEDS.items():
                if b'"%s"' % word.encode() in raw:
                    self._note_need(raw, word, type)
        return count

    def _note_need(self, raw: bytes, option: str, type: str) -> None:
        with contextlib.suppress(BadLine):
            line = read_line(raw, self._tube)
            if line.options.get(option):
                self._fitting.setdefault(line.tube, type)

    def _item(self, raw: bytes, number: int) -> ImportItem | SkippedItem:
        if not raw.strip():
            return SkippedItem("empty lines")
        try:
            line = read_line(raw, self._tube)
        except BadLine as error:
            return SkippedItem(BAD_LINES, line_label(number), str(error))
        # The dedup options of the line itself take precedence.
        same = f"import {self.fingerprint} {number}"
        return ImportItem(line_label(number), line.tube, line.body, {"dedup": same, "unique": same, **line.options})


def fingerprint(file: BinaryIO) -> str:
    """Return a hash of a file's length, beginning and end, by which the file is recognised."""
    size = _size(file)
    file.seek(0)
    digest = hashlib.sha256(str(size).encode() + file.read(_ENDS_BYTES))
    file.seek(max(0, size - _ENDS_BYTES))
    digest.update(file.read(_ENDS_BYTES))
    return digest.hexdigest()[:32]


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def default_state_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.penstock-import")
