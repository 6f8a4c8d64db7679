"""Fixtures for the tests of the engine."""

from __future__ import annotations

import pytest

from .desk import Desk


@pytest.fixture
def desk() -> Desk:
    """An engine with a clock and one client."""
    return Desk()
