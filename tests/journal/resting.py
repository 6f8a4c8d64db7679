"""A queue whose maintenance rests: nobody but its callers touches its files; and waiting for what maintenance does."""

from __future__ import annotations

import time
from collections.abc import Callable

import penstock


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so, or fail with what is wrong if it never is."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def wait_for_rest(queue: penstock.Queue) -> None:
    """Wait until maintenance has put in order what it finds at first.

    Until then it makes files, writes and syncs whenever it comes to it: nobody can say before which of our own steps.
    """
    journal = queue._host.has_journal()
    wait_for(lambda: journal._maintenance._seen and "ballast" in journal.disk.names(), "maintenance does not rest")
