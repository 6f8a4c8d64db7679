"""Reports the ends of attempts to the queue: acks of many jobs with one command, and other ends with one each.

All ends that occur in one turn of the event loop are sent together. While their replies are pending, the next ones
are collected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock import api_async
from penstock.core.errors import Closed, CommandError, NotOwner, NotTaken, PenstockError, UnknownJob
from penstock.options import NewJob
from penstock.tasks import logs, message
from penstock.tasks.attempt import Attempt, Ending
from penstock.tasks.failures import BadArguments
from penstock.tasks.middleware import Pipeline
from penstock.tasks.task import Producer

_log = logging.getLogger("penstock.tasks")

# A command names this many jobs at most, so that the server does not need several turns for it.
_ACKS_MAX: Final = 1_000


class Settler:
    """Sends the ends of attempts. `settled` is called for each attempt when the queue has recorded its end."""

    def __init__(
        self,
        queue: api_async.AsyncQueue,
        middleware: Pipeline,
        producer: Producer,
        settled: Callable[[list[Attempt]], None],
    ) -> None:
        self._queue = queue
        self._producer = producer
        self._middleware = middleware
        self._settled = settled
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, attempts: list[Attempt]) -> None:
        """Send the ends of these attempts."""
        if self._middleware.settles:
            for attempt in attempts:
                self._middleware.before_settle(attempt)
        acks = [attempt for attempt in attempts if _is_plain_ack(attempt)]
        for start in range(0, len(acks), _ACKS_MAX):
            self._start(acks[start : start + _ACKS_MAX])
        if len(acks) < len(attempts):
            for attempt in attempts:
                if not _is_plain_ack(attempt):
                    self._start([attempt])

    def _start(self, attempts: list[Attempt]) -> None:
        sending = asyncio.ensure_future(self._send(attempts))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def flush(self) -> None:
        """Wait until all ends that were passed to `send` are recorded."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def _send(self, attempts: list[Attempt]) -> None:
        try:
            if _is_plain_ack(attempts[0]):
                acked = await self._queue.ack([attempt.job for attempt in attempts])
                if acked == len(attempts):
                    self._producer.acked(attempt.job.id for attempt in attempts)
                else:
                    _log.warning("leases lost before the ack: jobs=%d", len(attempts) - acked)
            else:
                await self._settle_or_fail(attempts[0])
                if attempts[0].ending in (Ending.ACK, Ending.RESULT):
                    self._producer.acked([attempts[0].job.id])
        except (NotTaken, NotOwner, UnknownJob):
            attempt = attempts[0]
            _log.warning("lease lost before the end of the task: task=%s job=%s", attempt.task.name, attempt.job.id)
        except PenstockError as error:
            # The jobs return to their tubes when the session has ended or their ttr has passed.
            _log.error("end of task not recorded: jobs=%d error=%r", len(attempts), str(error))
        except Exception:
            _log.exception("end of task not recorded: jobs=%d", len(attempts))
        finally:
            if self._middleware.settles:
                for attempt in attempts:
                    self._middleware.after_settle(attempt)
            self._settled(attempts)

    async def _settle_or_fail(self, attempt: Attempt) -> None:
        """Record the end of one attempt. If the queue refuses its result or its jobs, the attempt fails instead."""
        try:
            await self._settle(attempt)
        except (NotTaken, NotOwner, UnknownJob, Closed):
            raise
        except (CommandError, BadArguments) as error:
            if attempt.puts:
                attempt.ending, attempt.reason = Ending.NACK, f"the jobs that it puts are refused: {error}"
            elif attempt.ending == Ending.RESULT:
                # Another attempt would end in the same way.
                attempt.ending, attempt.reason = Ending.BURY, f"its result cannot be stored: {error}"
            else:
                raise
            await self._settle(attempt)

    async def _settle(self, attempt: Attempt) -> None:
        """Record the end of one attempt."""
        job, ending = attempt.job, attempt.ending
        if ending in (Ending.NACK, Ending.RETRY, Ending.BURY):
            logs.attempt_failed(attempt)
        if attempt.reporter is not None:
            await attempt.reporter  # The queue refuses reports about a job that has ended.
        if ending == Ending.ACK:
            await job.ack(then=await self._follow_ups(attempt))
        elif ending == Ending.RESULT:
            assert attempt.result is not None
            then = await self._follow_ups(attempt)
            await job.done(attempt.result, ttl=attempt.task.options.result_ttl, then=then)
        elif ending in (Ending.NACK, Ending.RETRY):
            await job.nack(attempt.reason, delay=attempt.delay)
        elif ending == Ending.BURY:
            await job.bury(attempt.reason)
        elif ending == Ending.DISCARD:
            await job.delete()
        elif ending in (Ending.RELEASE, Ending.CANCELLED):
            # The queue removes a job that was cancelled when it is released.
            await job.release()
        # A job that was LOST is not held by this session any more.

    async def _follow_ups(self, attempt: Attempt) -> list[tuple[str, NewJob]]:
        """Return the jobs that the task asked to put when it succeeds."""
        headers = message.child_headers(attempt.job.id, attempt.job.deliveries)
        return [await self._producer.follow_up(call, headers) for call in attempt.puts]


def _is_plain_ack(attempt: Attempt) -> bool:
    """Return whether the end of an attempt can be sent together with others."""
    return attempt.ending == Ending.ACK and attempt.reporter is None and not attempt.puts
