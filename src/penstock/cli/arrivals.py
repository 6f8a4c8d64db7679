"""What is imported, wherever it comes from: a row of items, each a job to be put, or passed over with a reason.

The same file gives the same items in the same order however often it is read, so their number says how far an import
has come.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from penstock.cli import disque_aof
from penstock.cli.json_lines import LINE_BYTES_MAX, BadLine, read_line

Progress = Callable[[int, int], None]

BAD_LINES: Final = "lines that are no jobs"

_ENDS_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job to be put."""

    label: str  # What to call it when it is refused.
    tube: bytes | str
    body: Any
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passed:
    """An item that is no job to be put, and why: kinds of reasons are counted, what is `wrong` is told one by one."""

    reason: str
    label: str = ""
    wrong: str = ""


class Source(Protocol):
    """A file of items."""

    fingerprint: str  # The same for the same file.
    tube_type: str | None  # Which type of tube to make where there is none; None for the usual one.
    total: int
    passed: dict[str, int]  # What was passed over before there were items.
    notes: list[str]  # What else is to be said.

    def items(self, start: int, now_ms: Callable[[], int]) -> Iterator[Arrival | Passed]:
        """The items from a number on."""


class AofSource:
    """The jobs that an append-only file of Disque comes to, oldest first."""

    tube_type: str | None = "disque"

    def __init__(self, file: BinaryIO, once: bool, progress: Progress) -> None:
        self._file = file
        self._size = _size(file)
        self._once = once
        self.fingerprint = fingerprint(file)
        found = disque_aof.contents(file, self._size, progress)
        self._offsets = found.offsets
        self.total = len(found.offsets)
        self.passed = {"acked, deleted or expired before the file ended": found.gone} if found.gone else {}
        torn = f"the last {found.torn_bytes:,} bytes of the file are half a command; they say nothing"
        self.notes = [torn] if found.torn_bytes else []

    def items(self, start: int, now_ms: Callable[[], int]) -> Iterator[Arrival | Passed]:
        for offset in self._offsets[start:]:
            yield self._item(disque_aof.job_at(self._file, offset, self._size), now_ms())

    def _item(self, job: disque_aof.AofJob, now: int) -> Arrival | Passed:
        ttl_ms, delay_ms = job.expires_ms - now, job.delay_left_ms(now)
        if ttl_ms <= 0:
            return Passed("expired since")
        if delay_ms >= ttl_ms:
            return Passed("expiring before their delay ends")
        # What may be delivered once at most, and could have been taken, is given to nobody a second time.
        if job.is_once and (job.was_delivered or (delay_ms == 0 and not self._once)):
            return Passed("to be delivered once at most, and perhaps were (see --once)")
        id = job.id.decode("ascii", "backslashreplace")
        options: dict[str, Any] = {"ttl": ttl_ms / 1_000, "delay": delay_ms / 1_000, "nacks": job.nacks}
        options |= {"once": True} if job.is_once else {"ttr": job.retry_s}
        # The name makes a second put of an unfinished job impossible, however much later; the dedup id that of any.
        return Arrival(f"job {id}", job.queue, job.body, {**options, "name": job.id, "dedup": job.id})


class JsonLinesSource:
    """The lines of a file of JSON."""

    tube_type: str | None = None

    def __init__(self, file: BinaryIO, tube: str | None, progress: Progress) -> None:
        self._file = file
        self._tube = tube
        self.fingerprint = fingerprint(file)
        self.total = _count_lines(file, progress)
        self.passed: dict[str, int] = {}
        self.notes: list[str] = []

    def items(self, start: int, now_ms: Callable[[], int]) -> Iterator[Arrival | Passed]:
        self._file.seek(0)
        for number in range(1, self.total + 1):
            raw = self._file.readline(LINE_BYTES_MAX)
            if number > start:
                yield self._item(raw, number)

    def _item(self, raw: bytes, number: int) -> Arrival | Passed:
        if not raw.strip():
            return Passed("empty lines")
        try:
            line = read_line(raw, self._tube)
        except BadLine as error:
            return Passed(BAD_LINES, f"line {number}", str(error))
        # Those of the line itself go before: it knows better what makes two puts one.
        same = f"import {self.fingerprint} {number}"
        return Arrival(f"line {number}", line.tube, line.body, {"dedup": same, "unique": same, **line.options})


def fingerprint(file: BinaryIO) -> str:
    """What tells a file from another: its length, and how it begins and ends."""
    size = _size(file)
    file.seek(0)
    digest = hashlib.sha256(str(size).encode() + file.read(_ENDS_BYTES))
    file.seek(max(0, size - _ENDS_BYTES))
    digest.update(file.read(_ENDS_BYTES))
    return digest.hexdigest()[:32]


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _count_lines(file: BinaryIO, progress: Progress) -> int:
    size, count, last = _size(file), 0, b"\n"
    file.seek(0)
    while piece := file.read(1 << 20):
        count += piece.count(b"\n")
        last = piece[-1:]
        progress(file.tell(), size)
    return count + (last != b"\n")


def beside(file: Path) -> Path:
    """Where an import of a file remembers how far it has come, unless it is told otherwise."""
    return file.with_name(f"{file.name}.penstock-import")
