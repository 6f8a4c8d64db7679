"""A report of a running task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of a running task, as `handle.stream()` returns it."""

    done: float | None = None  # How much is done; None for a message of `ctx.log`.
    total: float | None = None
    message: str = ""
    partial: Any = None  # A partial result.
    number: int = 0  # The number of the report in its attempt, from 1 on.

    @property
    def fraction(self) -> float | None:
        """How much is done, from 0 to 1; None if this is unknown."""
        return self.done / self.total if self.done is not None and self.total else None
