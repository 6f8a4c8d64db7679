"""Reads job bodies that are on disk only, from the log or from a snapshot."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from penstock.core.errors import DamagedJournal, Exhausted
from penstock.core.job import BodyRef
from penstock.journal.disk import ReadableDisk, ReadableFile
from penstock.journal.frame import signed_crc
from penstock.journal.rows import BodySource
from penstock.journal.segment import segment_name, snapshot_name

# Number of files to keep open. Jobs that are taken in order of arrival need one file. Priorities may need several.
FILES_MAX: Final = 16

# Errors that say nothing about the file and may not occur on the next attempt.
_TRANSIENT_ERRNOS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Bodies(BodySource):
    """Reads bodies by file and offset. Any thread can use it."""

    def __init__(self, disk: ReadableDisk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._files: OrderedDict[int, ReadableFile] = OrderedDict()

    def read(self, ref: BodyRef) -> bytes:
        """Read a body and check its checksum.

        Raise Exhausted if it cannot be read now, DamagedJournal if it is damaged.
        """
        try:
            with self._lock:
                data = self._file(ref.file).read(ref.offset, ref.length)
        except OSError as error:
            if error.errno in _TRANSIENT_ERRNOS:
                raise Exhausted(f"{_file_name(ref.file)} cannot be read now: {error.strerror}; try again") from error
            raise DamagedJournal(f"{_file_name(ref.file)} cannot be read: {error.strerror}") from error
        if len(data) != ref.length:
            raise DamagedJournal(f"{_file_name(ref.file)} is truncated: the body at offset {ref.offset} is missing")
        if signed_crc(data, 0) != ref.crc:
            raise DamagedJournal(
                f"{_file_name(ref.file)} is damaged: the body at offset {ref.offset} has a wrong checksum"
            )
        return data

    def will_read(self, refs: Iterable[BodyRef]) -> None:
        """Ask the system to prefetch bodies. Errors are ignored here, because the later read reports them."""
        with self._lock, contextlib.suppress(OSError):
            for ref in refs:
                self._file(ref.file).will_read(ref.offset, ref.length)

    def close_file(self, file: int) -> None:
        """Close file number `file`, which is about to be removed or rewritten, so that the next read opens it again."""
        with self._lock:
            open_file = self._files.pop(file, None)
        if open_file is not None:
            open_file.close()

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()

    def _file(self, number: int) -> ReadableFile:
        found = self._files.get(number)
        if found is None:
            found = self._files[number] = self._disk.open_to_read(_file_name(number))
            if len(self._files) > FILES_MAX:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(number)
        return found


def _file_name(file: int) -> str:
    """Return the name of file number `file`: a segment, or a snapshot if the number is negative."""
    return segment_name(file) if file > 0 else snapshot_name(-file)
