"""Jobs that are not here any more since a moment ago, by their ids.

Messages overtake each other: what was said of a job before it was acknowledged may arrive after everybody has
forgotten it, and must not bring it back; what is said to one who gave it away belongs to whoever has it. Two
generations, of which the older goes when the younger is full or old: nothing is looked at to be forgotten.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# A generation lasts so long, longer than a message is under way; and has so many ids, about 6 MB.
GENERATION_MS: Final = 10_000
GENERATION_IDS_MAX: Final = 50_000


class Lately:
    """What became of jobs lately: nothing, because they are over, or the node that has them."""

    _young: dict[bytes, bytes]
    _old: dict[bytes, bytes]
    _began: i64

    def __init__(self) -> None:
        self._young = {}
        self._old = {}
        self._began = 0

    def add(self, id: bytes, now: i64, heir: bytes = b"") -> None:
        """A job is over here."""
        if now - self._began > GENERATION_MS or len(self._young) >= GENERATION_IDS_MAX:
            self._old = self._young if now - self._began < 2 * GENERATION_MS else {}
            self._young = {}
            self._began = now
        self._young[id] = heir

    def has(self, id: bytes) -> bool:
        """Whether a job was over lately."""
        return id in self._young or id in self._old

    def heir_of(self, id: bytes) -> bytes | None:
        """Who has a job that was given away lately."""
        heir = self._young.get(id)
        return heir if heir is not None else self._old.get(id)
