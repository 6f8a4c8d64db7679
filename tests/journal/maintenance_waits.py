"""Helpers to wait for maintenance, so that only the test itself accesses the files of a queue."""

from __future__ import annotations

import time
from collections.abc import Callable

import penstock


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition is true, or fail with a message."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def wait_for_rest(queue: penstock.Queue) -> None:
    """Wait until maintenance has completed its first turn.

    Until then it creates, writes and syncs files at moments that a test cannot predict.
    """
    journal = queue._host.require_journal()
    wait_for(lambda: journal._maintenance._seen and "ballast" in journal.disk.names(), "maintenance does not rest")
