"""The fake clock changes only when a test advances it."""

from __future__ import annotations

import pytest

from penstock.testing import FakeClock


def test_time_changes_only_when_a_test_advances_it() -> None:
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
