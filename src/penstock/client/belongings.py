"""Which jobs a client was given and has not finished, so that those it was never given can be told apart.

When the answer to a take is lost, the session holds jobs that nobody works on. The server knows what the session holds,
and this what its client knows of; the difference goes back to its tubes.

A job that is given back may come to another thread or task of the client before the one that gave it back hears that it
did. So what is known is which delivery of a job the client has, where that is known; 0 where it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

# Jobs that were taken and then left to themselves stay here. From so many on it is worth asking which are still held.
_ASK_FROM: Final = 10_000


class Belongings:
    """The ids of jobs that were given to this client's user."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is held any more: the session ended, or is the parent's."""
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._ask_at = _ASK_FROM

    def add(self, holds: dict[str, int]) -> None:
        """These deliveries of jobs are handed to the user."""
        with self._lock:
            self._ids.update(holds)

    def remove(self, id: str, hold: int) -> None:
        """This one was finished; if a delivery is named, unless a later one was handed to the user meanwhile."""
        with self._lock:
            if not hold or self._ids.get(id, 0) <= hold:
                self._ids.pop(id, None)

    def remove_all(self, ids: Iterable[str]) -> None:
        """These were not handed to the user after all."""
        with self._lock:
            for id in ids:
                self._ids.pop(id, None)

    def is_empty(self) -> bool:
        """Whether the user has finished everything."""
        return not self._ids

    def unknown(self, held: Iterable[str]) -> list[str]:
        """Of what the session holds, what its user was never given."""
        with self._lock:
            return [id for id in held if id not in self._ids]

    def to_check(self) -> set[str] | None:
        """What to ask about, if there is so much that it is time to; `keep` is to be told the answer."""
        if len(self._ids) < self._ask_at:
            return None
        with self._lock:
            return set(self._ids)

    def keep(self, asked: set[str], held: Iterable[str]) -> None:
        """Of those that were asked about, only these are held. What was added meanwhile stays."""
        with self._lock:
            for id in asked.difference(held):
                self._ids.pop(id, None)
            self._ask_at = max(_ASK_FROM, 2 * len(self._ids))
