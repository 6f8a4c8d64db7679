from __future__ import annotations

import pytest

from .shop import CommandEngine


@pytest.fixture
def shop() -> CommandEngine:
    return CommandEngine()
