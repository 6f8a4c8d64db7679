"""What was handed out and may not have been seen: which delivery of each job it was, so that no later one is undone."""

from __future__ import annotations

from penstock.core.job import Job


class Handed:
    """Jobs that a call has taken, noted before anybody else could take them."""

    __slots__ = ("deliveries", "jobs")

    def __init__(self, jobs: list[Job], deliveries: list[int] | None = None) -> None:
        self.jobs = jobs
        self.deliveries = [job.deliveries for job in jobs] if deliveries is None else deliveries
