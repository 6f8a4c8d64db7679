"""The jobs that the callers of a session have received and not finished.

If the reply to a take is lost, the session holds jobs that no caller works on. The server lists all jobs that the
session holds. Jobs in that list that are not recorded here go back to their tubes.

A thread or task can release a job, and another one of the same session can receive it before the reply to the release
arrives. That reply must not remove the new delivery from this record. So each job is recorded with the number of its
delivery; 0 if it is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

# Jobs that a caller never finishes stay in the record. From this number on, the server is asked which are still held.
_ASK_FROM: Final = 10_000


class HeldJobs:
    """The ids of the jobs that callers have received, with the number of the delivery."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all jobs, because the session ended or belongs to the parent process."""
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._ask_at = _ASK_FROM

    def add(self, holds: dict[str, int]) -> None:
        with self._lock:
            self._ids.update(holds)

    def remove(self, id: str, hold: int) -> None:
        """Remove a finished job. Keep it if a caller has received a later delivery than `hold`.

        If `hold` is 0, always remove the job.
        """
        with self._lock:
            if not hold or self._ids.get(id, 0) <= hold:
                self._ids.pop(id, None)

    def remove_all(self, ids: Iterable[str]) -> None:
        """Remove jobs that were recorded, but did not reach their caller."""
        with self._lock:
            for id in ids:
                self._ids.pop(id, None)

    def is_empty(self) -> bool:
        return not self._ids

    def not_received(self, held: Iterable[str]) -> list[str]:
        """Return the ids in `held` that no caller has received."""
        with self._lock:
            return [id for id in held if id not in self._ids]

    def ids_to_verify(self) -> set[str] | None:
        """Return all recorded ids, to be checked with `retain`, or None if there are too few to be worth a check."""
        if len(self._ids) < self._ask_at:
            return None
        with self._lock:
            return set(self._ids)

    def retain(self, asked: set[str], held: Iterable[str]) -> None:
        """Remove the ids that are in `asked`, but not in `held`. Jobs that were added meanwhile stay."""
        with self._lock:
            for id in asked.difference(held):
                self._ids.pop(id, None)
            self._ask_at = max(_ASK_FROM, 2 * len(self._ids))
