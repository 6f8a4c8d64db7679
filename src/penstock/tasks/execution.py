"""Runs the function of a task for one attempt: decodes the arguments, calls it, and decides how the job ends.

A thread calls `run` for a plain function, and an asyncio task awaits `run_async` for an async one. Neither raises:
every failure of user code becomes an ending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import BadAnswer
from penstock.tasks import message
from penstock.tasks.attempt import Attempt, Ending
from penstock.tasks.chain import BadStep, next_step
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import BadArguments, Bury, Discard, Retry, reason_of
from penstock.tasks.middleware import Pipeline
from penstock.tasks.values import plain


class Execution:
    """Runs attempts of the tasks of an app."""

    def __init__(self, tasks: Mapping[str, TaskDeclaration[Any]], middleware: Pipeline, codec: message.Codec) -> None:
        self._tasks = tasks
        self._middleware = middleware
        self._codec: message.Codec = codec

    def run(self, attempt: Attempt) -> None:
        """Call the plain function of a task. The end of the attempt is in its `ending`."""
        task = attempt.task
        if attempt.ending != Ending.NONE:
            return  # It was cancelled before it started.
        try:
            args, given = _arguments(attempt)
            if self._middleware.runs:
                with self._middleware.running(attempt.make_context()):
                    result = task.function(*args, **given)
            else:
                result = task.function(*args, **given)
        except BaseException as error:
            _fail(attempt, error)
        else:
            self._succeed(attempt, result)

    async def run_async(self, attempt: Attempt) -> None:
        """Await the async function of a task. The end of the attempt is in its `ending`."""
        task = attempt.task
        if attempt.ending != Ending.NONE:
            return  # It was cancelled before it started.
        try:
            args, given = _arguments(attempt)
            if task.timeout_s is None and not self._middleware.runs:
                result = await task.function(*args, **given)
            else:
                result = await self._run_limited(attempt, args, given)
        except BaseException as error:
            _fail(attempt, error)
        else:
            self._succeed(attempt, result)

    async def _run_limited(self, attempt: Attempt, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        task = attempt.task
        limit = asyncio.timeout(task.timeout_s)
        try:
            with self._middleware.running(attempt.make_context()):
                async with limit:
                    return await task.function(*args, **given)
        except TimeoutError:
            if limit.expired():
                time_out(attempt)
            raise

    def _succeed(self, attempt: Attempt, result: Any) -> None:
        if attempt.ending != Ending.NONE:
            return  # It timed out or was lost meanwhile.
        headers = attempt.job.headers
        # The job of a step is kept with its result, also if it has none, so that handles can follow the chain.
        if result is None and not attempt.task.always_stores_result and message.STEP not in headers:
            attempt.ending = Ending.ACK
            return
        try:
            kept = plain(result)
            attempt.result = message.encode_value(kept, self._codec)
            if message.NEXT in headers:
                attempt.next_step = next_step(attempt.job, attempt.later, kept, self._tasks)
            attempt.ending = Ending.RESULT
        except BadStep as error:
            attempt.ending, attempt.reason = Ending.BURY, str(error)
        except Exception as error:
            # Another attempt would end in the same way.
            attempt.ending, attempt.reason = Ending.BURY, f"its result cannot be stored: {error}"


def time_out(attempt: Attempt) -> None:
    """End an attempt, because it took longer than the timeout of its task."""
    if attempt.ending == Ending.NONE:
        attempt.ending, attempt.reason = Ending.NACK, f"timed out: it ran for {attempt.task.timeout_s:g} s"


def _arguments(attempt: Attempt) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the call. End the attempt if the body of the job does not match the parameters."""
    signature = attempt.task.signature
    try:
        stored, attempt.later = message.split_body(attempt.job.body, attempt.job.headers)
        given = signature.from_plain(stored)
    except (BadArguments, BadAnswer) as error:
        # Another attempt would end in the same way.
        attempt.ending, attempt.reason = Ending.BURY, f"bad arguments: {error}"
        raise
    return ((attempt.make_context(),) if signature.takes_context else ()), given


def _fail(attempt: Attempt, error: BaseException) -> None:
    attempt.error = error
    if attempt.ending != Ending.NONE:
        return
    if isinstance(error, asyncio.CancelledError):
        # The worker cancels a task when it stops, or after it has set `ending`.
        attempt.ending = Ending.RELEASE
    elif isinstance(error, Discard):
        attempt.ending = Ending.DISCARD
    elif isinstance(error, Retry):
        attempt.delay, attempt.reason = error.delay, str(error)
        attempt.ending = Ending.NACK if error.delay is None else Ending.RETRY
    elif isinstance(error, Bury):
        attempt.ending, attempt.reason = Ending.BURY, str(error)
    else:
        attempt.ending, attempt.reason = Ending.NACK, reason_of(error)
