"""Tombstones of jobs that ended or left this node in the last 10 to 20 seconds.

Messages can arrive out of order. A message about a job may arrive after the job was acknowledged everywhere. It must
not bring the job back. If the job was handed over to another node, the sender is referred to that node.

Tombstones are kept in two generations. When the young generation is full or 10 seconds old, it replaces the old
generation, which is dropped. Expiry therefore needs no scan.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# A generation lasts longer than a message can be delayed in the network. The number of ids limits it to about 6 MB.
GENERATION_MS: Final = 10_000
GENERATION_IDS_MAX: Final = 50_000


class RecentJobs:
    """Ids of jobs that recently ended or left this node. Each has the node that the job moved to, if it moved."""

    def __init__(self) -> None:
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}
        self._began: i64 = 0

    def add(self, id: bytes, now: i64, heir: bytes = b"") -> None:
        """Record that the job `id` ended on this node, or moved to the node `heir`."""
        if now - self._began > GENERATION_MS or len(self._young) >= GENERATION_IDS_MAX:
            self._old = self._young if now - self._began < 2 * GENERATION_MS else {}
            self._young = {}
            self._began = now
        self._young[id] = heir

    def contains(self, id: bytes) -> bool:
        return id in self._young or id in self._old

    def new_holder(self, id: bytes) -> bytes | None:
        """Return the node that the job moved to, b"" if the job ended, or None if there is no tombstone of the job."""
        heir = self._young.get(id)
        return heir if heir is not None else self._old.get(id)
