"""Leases of running tasks: renews them when a task sends a heartbeat, and reports those that are lost.

A task that sends no heartbeat is not renewed, so that a task that hangs is delivered again after its ttr.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.core.errors import ConnectionLost, NotOwner, NotTaken, PenstockError, UnknownJob
from penstock.tasks import message
from penstock.tasks.attempt import Attempt
from penstock.tasks.progress import Progress
from penstock.tasks.values import BadValue

_log = logging.getLogger("penstock.tasks")

# A lease is renewed at most this often within its ttr, however many heartbeats a task sends.
_RENEWALS_PER_TTR: Final = 4


class Leases:
    """Renews the leases of the attempts of a worker. `lost` is called for an attempt whose job was lost."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ttr_s: Callable[[Attempt], float | None],
        lost: Callable[[Attempt, str], None],
    ) -> None:
        self._loop = loop
        self._ttr_s = ttr_s  # Returns the ttr of a job; None: it has none.
        self._lost = lost
        self._renewals: set[asyncio.Task[None]] = set()

    def link(self, attempt: Attempt) -> Link:
        """Return the link of the context of an attempt."""
        ttr_s = self._ttr_s(attempt)
        return Link(self, attempt, None if ttr_s is None else ttr_s / _RENEWALS_PER_TTR)

    def renew_soon(self, attempt: Attempt) -> None:
        """Renew the lease of an attempt. Called from any thread."""
        self._loop.call_soon_threadsafe(self._start_renewal, attempt)

    def report_soon(self, attempt: Attempt, progress: Progress) -> None:
        """Send a report of an attempt. Called from any thread."""
        attempt.reports.append(progress)
        self._loop.call_soon_threadsafe(self._start_reporter, attempt)

    def _start_renewal(self, attempt: Attempt) -> None:
        renewing = asyncio.ensure_future(self._renew(attempt))
        self._renewals.add(renewing)
        renewing.add_done_callback(self._renewals.discard)

    def _start_reporter(self, attempt: Attempt) -> None:
        if attempt.reporter is None:
            attempt.reporter = asyncio.ensure_future(self._report(attempt))

    async def _renew(self, attempt: Attempt) -> None:
        try:
            await attempt.job.touch()
        except (NotTaken, NotOwner, UnknownJob):
            self._lost(attempt, "its ttr has passed")
        except PenstockError as error:
            _log.warning("lease not renewed: job=%s error=%r", attempt.job.id, str(error))

    async def _report(self, attempt: Attempt) -> None:
        """Send the reports of an attempt, one after the other, so that they keep their order."""
        try:
            while attempt.reports:
                value = message.encode_report(attempt.job.deliveries, attempt.reports.popleft())
                while True:
                    try:
                        await attempt.job.report(value)
                        break
                    except ConnectionLost:
                        pass  # It may have arrived. Handles ignore a report that they have seen.
        except (NotTaken, NotOwner, UnknownJob):
            self._lost(attempt, "the session does not hold the job")
        except (PenstockError, BadValue) as error:
            _log.warning("report not sent: job=%s error=%r", attempt.job.id, str(error))
        finally:
            attempt.reporter = None


class Link:
    """The link between the context of an attempt and its worker. Its methods can be called from any thread."""

    __slots__ = ("_attempt", "_due", "_interval_s", "_leases")

    def __init__(self, leases: Leases, attempt: Attempt, interval_s: float | None) -> None:
        self._leases = leases
        self._attempt = attempt
        self._interval_s = interval_s  # None: the lease has no end.
        self._due = 0.0 if interval_s is None else time.monotonic() + interval_s

    def heartbeat(self) -> None:
        """Renew the lease, unless it was renewed a short time ago."""
        if self._interval_s is not None:
            now = time.monotonic()
            if now >= self._due:
                self._due = now + self._interval_s
                self._leases.renew_soon(self._attempt)

    def report(self, progress: Progress) -> None:
        """Send a report to the handles of the job."""
        self._leases.report_soon(self._attempt, progress)
