"""A queue in memory whose time a test advances.

The engine gets its time from a `FakeClock`, so a test can pass three days of retries in milliseconds. Waits with a
timeout do not end by themselves: the test advances the clock to the next deadline.
"""

from __future__ import annotations

from penstock import embedded, embedded_async
from penstock.core.limits import NEVER
from penstock.testing.clock import FakeClock


class ClockedQueue:
    """A queue in memory, for synchronous code and for asyncio, and its clock."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.queue = embedded.open(":memory:")
        self.async_queue = embedded_async.wrap(self.queue)
        self._host = self.queue._host
        # The engine was created with the time of the machine. Its time must not go back.
        self.clock.advance_to(self._host.now())
        self._host.now = self._host.wall = lambda: self.clock.ms

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next deadline of a job or session; None if there is none."""
        due = self._host.engine.deadlines.next_due
        return None if due == NEVER else int(due)

    def advance_to(self, ms: int) -> None:
        """Set the clock, and run everything that is due by then."""
        self.clock.advance_to(ms)
        with self._host.lock, self._host:
            self._host.advance()
