"""The change of a job that subscribers receive, from a queue in this process or on a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a job."""

    id: str
    tube: str
    event: str
    before: str
    after: str
    time: float  # Seconds since 1970.
    number: int | None = None  # The number of the job in its tube, if the tube numbers its jobs.
