"""Emptying a tube: as many jobs as it has when that begins go, a slice at a time.

Not until it is empty: others may put as fast as this removes.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.tube import Tube


class Emptying:
    """The jobs of one tube, on their way out."""

    removed: int  # How many have gone, or will when the claims that hold them end.
    _engine: Engine
    _tube: Tube
    _left: int

    def __init__(self, engine: Engine, tube: Tube) -> None:
        self.removed = 0
        self._engine = engine
        self._tube = tube
        self._left = tube.total()

    def step(self, limit: int, now: i64) -> bool:
        """Remove up to `limit` more; tell whether that was all."""
        if self._left == 0 or self._tube.dropped:
            return True
        gone = self._engine.truncate(self._tube, now, min(self._left, limit))
        self.removed += gone
        self._left = self._left - gone if gone else 0
        return self._left == 0
