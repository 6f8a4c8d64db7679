"""Tools for testing programs that use Penstock, and Penstock itself.

`FakeClock` (clock.py) is a clock that a test advances, `check` (invariants.py) checks the consistency of an engine, and
`digest` (digest.py) shows whether two engines are equal. None of them belongs in production code.
"""

from penstock.testing.clock import FakeClock
from penstock.testing.digest import describe, digest
from penstock.testing.invariants import check

__all__ = ["FakeClock", "check", "describe", "digest"]
