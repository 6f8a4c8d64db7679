"""The fake clock stands still until it is told."""

from __future__ import annotations

import pytest

from penstock.testing import FakeClock


def test_time_passes_only_when_it_is_told_to() -> None:
    clock = FakeClock(5)
    assert clock.ms == clock.ms == 5
    assert clock.advance(10) == clock.ms == 15
    assert repr(clock) == "FakeClock(15)"


def test_time_never_goes_back() -> None:
    clock = FakeClock(5)
    with pytest.raises(AssertionError):
        clock.advance(-1)
    assert clock.advance_to(3) == 5
    assert clock.advance_to(8) == 8
