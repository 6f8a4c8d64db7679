"""Opens pages in a real browser: the system's Chromium, controlled by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# The pages do not depend on whether the core is compiled. `make test` runs these tests once.
collect_ignore_glob = ["test_*.py"] if os.environ.get("PENSTOCK_EXPECT") == "interpreted" else []


# Per module and not per session, because playwright runs an asyncio loop in this thread while it is open.
@pytest.fixture(scope="module")
def browser(needs: Callable[[object, str], None]) -> Iterator[Any]:
    """A headless Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    needs(chromium, "Chromium is not installed (chromium)")
    needs(find_spec("playwright"), "playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a sandbox, which needs rights that containers do not have. Only our own pages are opened.
        yield playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
