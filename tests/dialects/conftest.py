from __future__ import annotations

import pytest

from .shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()
