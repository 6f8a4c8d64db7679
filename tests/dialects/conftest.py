from __future__ import annotations

import pytest

from .command_engine import CommandEngine


@pytest.fixture
def shop() -> CommandEngine:
    return CommandEngine()
