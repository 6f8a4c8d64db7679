"""A plugin for pytest: the fixture `penstock_tasks` is a function that begins a test of an app.

def test_signup(penstock_tasks):
    tasks = penstock_tasks(app)
    signup("ann")
    tasks.drain()
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from penstock.tasks.app import App
from penstock.tasks.testing import TestQueue


@pytest.fixture
def penstock_tasks() -> Iterator[Callable[..., TestQueue]]:
    """Return a function that replaces the queue of an app until the end of the test, as `app.testing` does."""
    with contextlib.ExitStack() as stack:

        def begin(app: App, *, inline: bool = False) -> TestQueue:
            return stack.enter_context(app.testing(inline=inline))

        yield begin
