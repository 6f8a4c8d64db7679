"""What subscribers of a queue are told, wherever the queue is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a job, as subscribers are told."""

    id: str
    tube: str
    event: str
    before: str
    after: str
    time: float  # Seconds since 1970.
    number: int | None = None  # Its integer within its tube, where the tube numbers its jobs.
