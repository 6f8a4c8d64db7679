"""Tells subscribers what happens to jobs."""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Callable

from penstock.changes import Change
from penstock.core import states as s
from penstock.core.ids import IdForms
from penstock.core.job import Job
from penstock.core.tube import Tube
from penstock.options import to_text


class Teller:
    """Tells subscribers what happens. They run in one thread of their own, so they may use the queue."""

    def __init__(self, ids: IdForms) -> None:
        self._ids = ids
        self._subscribers: dict[object, tuple[Callable[[Change], None], bytes | None]] = {}
        self._changes: queue.SimpleQueue[tuple[bytes, Change] | None] = queue.SimpleQueue()
        threading.Thread(target=self._tell, name="penstock-subscribers", daemon=True).start()

    def moved(self, job: Job, tube: Tube, rule: int, now: int) -> None:
        """Something happened to a job: pass it on."""
        event, before, after = s.TRANSITIONS[rule]
        change = Change(
            self._ids.long(job.id, job.ttl_minutes).decode(),
            to_text(tube.name),
            s.EVENT_NAMES[event],
            s.STATE_NAMES[before],
            s.STATE_NAMES[after],
            now / 1000,
            int(job.local) if job.local >= 0 else None,
        )
        self._changes.put((tube.name, change))

    def subscribe(self, callback: Callable[[Change], None], tube: bytes | None) -> Callable[[], None]:
        ticket = object()
        self._subscribers[ticket] = (callback, tube)

        def cancel() -> None:
            self._subscribers.pop(ticket, None)

        return cancel

    def stop(self) -> None:
        self._changes.put(None)

    def _tell(self) -> None:
        while (item := self._changes.get()) is not None:
            name, change = item
            for callback, tube in list(self._subscribers.values()):
                if tube is None or tube == name:
                    try:
                        callback(change)
                    except Exception as error:
                        # A subscriber that fails harms neither the queue nor the others, not even where warnings raise.
                        with contextlib.suppress(Warning):
                            warnings.warn(f"a subscriber of the queue raised {error!r}", RuntimeWarning, stacklevel=1)
