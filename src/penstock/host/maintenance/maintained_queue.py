"""The interface of a queue that maintenance uses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from penstock.core.engine import Engine
from penstock.core.errors import CommandError
from penstock.journal.disk import Disk
from penstock.journal.log import Log


class MaintainedQueue(Protocol):
    """A queue in a directory, as the maintenance services use it."""

    lock: threading.Lock
    engine: Engine
    disk: Disk
    log: Log
    now: Callable[[], int]  # Engine time, in ms.
    wall: Callable[[], int]  # Wall clock, in ms.

    def fail(self, error: CommandError) -> None: ...
    def retry_after_full_disk(self) -> None: ...
