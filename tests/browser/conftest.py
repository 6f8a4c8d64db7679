"""Pages are opened in a real browser: the system's Chromium, by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# What a browser shows does not depend on whether our core is compiled: once is enough for `make test`.
collect_ignore_glob = ["test_*.py"] if os.environ.get("PENSTOCK_EXPECT") == "interpreted" else []


# Of a module, not of the session: while playwright is there, a loop of asyncio runs in this thread.
@pytest.fixture(scope="module")
def browser(needs: Callable[[object, str], None]) -> Iterator[Any]:
    """A browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    needs(chromium, "Chromium is not installed (chromium)")
    needs(find_spec("playwright"), "playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # No sandbox: it needs rights that containers do not give, and only our own pages are opened.
        yield playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
