"""Deliveries that a call made but has not returned yet.

Each has its delivery number. Undoing a delivery therefore never undoes a later delivery of the same job.
"""

from __future__ import annotations

from penstock.core.job import Job


class PendingDelivery:
    """Jobs that a call has taken but not yet returned, with their delivery numbers."""

    __slots__ = ("deliveries", "jobs")

    def __init__(self, jobs: list[Job], deliveries: list[int] | None = None) -> None:
        self.jobs = jobs
        self.deliveries = [job.deliveries for job in jobs] if deliveries is None else deliveries
