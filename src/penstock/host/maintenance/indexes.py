"""Indexes: creates the index of each full segment. It contains digests, and makes lookups of a job's history fast."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

from penstock.core.errors import DamagedJournal
from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import WORK_S, Pacing
from penstock.journal.disk import Disk
from penstock.journal.history.index import SegmentIndex
from penstock.journal.history.index import check as check_index
from penstock.journal.segment import FrameFile, index_name, number_of, segment_names

_log = logging.getLogger("penstock")

# Bytes of a segment to process at a time: about a millisecond of work.
_PIECE_BYTES: Final = 256 * 1024


class IndexService:
    """Keeps an index for every full segment."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._indexed: set[str] = set()  # Segments whose index is valid, or that cannot have one.

    def run_once(self, queue: MaintainedQueue, segment: int) -> None:
        """Create missing indexes of the segments before `segment`, and replace damaged ones. Check each index once."""
        disk = queue.disk
        there = set(disk.names())
        for name in segment_names(disk):
            number = number_of(name)
            if number < segment and not (name in self._indexed and index_name(number) in there):
                try:
                    self._index(disk, name, index_name(number) in there)
                except DamagedJournal as error:
                    if name not in self._indexed:
                        _log.warning("index not created, history lookups are slow: segment=%s error=%s", name, error)
                self._indexed.add(name)

    def _index(self, disk: Disk, name: str, there: bool) -> None:
        index = index_name(number_of(name))
        if there:
            with contextlib.suppress(DamagedJournal):
                check_index(index, disk.read(index))
                self._pacing.pause(WORK_S)
                return
        with FrameFile(disk, name) as file:
            made = SegmentIndex(file.header)
            began = time.thread_time()
            for piece in file.pieces(piece_bytes=_PIECE_BYTES):
                made.add(piece)
                self._pacing.pause(time.thread_time() - began)
                began = time.thread_time()
        disk.replace(index, made.encode(lambda: self._pacing.pause(WORK_S)))
