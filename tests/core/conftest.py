"""Fixtures for the tests of the engine."""

from __future__ import annotations

import pytest

from .engine_harness import EngineHarness


@pytest.fixture
def desk() -> EngineHarness:
    """An engine with a clock and one client."""
    return EngineHarness()
