"""A queue whose steward rests: nobody but its callers touches its files."""

from __future__ import annotations

import penstock
from tests.server.serving import wait_for


def wait_for_rest(queue: penstock.Queue) -> None:
    """Wait until the steward has put in order what it finds at first.

    Until then it makes files, writes and syncs whenever it comes to it: nobody can say before which of our own steps.
    """
    journal = queue._host.has_journal()
    wait_for(lambda: journal._steward._seen and "ballast" in journal.disk.names())
