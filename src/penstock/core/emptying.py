"""Removal of all jobs of a tube in slices.

It removes as many jobs as the tube had at the start. It does not run until the tube is empty, because producers may put
as fast as jobs are removed.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.tube import Tube


class Emptying:
    """A removal in progress."""

    removed: int  # Number of jobs that were removed, or that will be when the claims that hold them end.
    _engine: Engine
    _tube: Tube
    _left: int

    def __init__(self, engine: Engine, tube: Tube) -> None:
        self.removed = 0
        self._engine = engine
        self._tube = tube
        self._left = tube.total()

    def step(self, limit: int, now: i64) -> bool:
        """Remove up to `limit` further jobs. Return whether the removal is complete."""
        if self._left == 0 or self._tube.dropped:
            return True
        gone = self._engine.truncate(self._tube, now, min(self._left, limit))
        self.removed += gone
        self._left = self._left - gone if gone else 0
        return self._left == 0
