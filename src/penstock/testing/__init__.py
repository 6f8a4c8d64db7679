"""Tools for testing what is built on Penstock, and Penstock itself.

`FakeClock` (clock.py) is a clock that a test turns by hand, `check` (invariants.py) finds what is inconsistent in an
engine, `digest` (digest.py) tells whether two engines are the same. None of them belongs in production code.
"""

from penstock.testing.clock import FakeClock
from penstock.testing.digest import describe, digest
from penstock.testing.invariants import check

__all__ = ["FakeClock", "check", "describe", "digest"]
