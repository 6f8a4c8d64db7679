"""A pipeline of the blocking client: many commands in one round trip.

Asyncio tasks need no pipeline: all commands that they send in one turn of the event loop go out in one write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, Unpack

from penstock import api
from penstock.client import commands
from penstock.client.commands import Call
from penstock.client.facts import KnownJob, KnownTube
from penstock.client.session import Session
from penstock.core.errors import Leaving, PenstockError, WrongType
from penstock.keywords import Interface, check_keywords
from penstock.options import PUT_KEYWORDS, Body, Duration, PutOptions, Seconds

T = TypeVar("T")


class Answer:
    """The result of one command of a pipeline."""

    __slots__ = ("_convert", "_outcome", "_sent")

    def __init__(self, shown: Callable[[Any], Any]) -> None:
        self._convert = shown  # Turns the outcome into the value.
        self._sent = False
        self._outcome: Any = None

    @property
    def value(self) -> Any:
        """The result of the call. If the call failed, this raises its error."""
        if not self._sent:
            raise PenstockError("the pipeline was not sent yet; leave its block, or call send()")
        if isinstance(self._outcome, PenstockError):
            raise self._outcome
        return self._outcome

    def settle(self, outcome: Any) -> None:
        self._outcome = outcome if isinstance(outcome, PenstockError) else self._convert(outcome)
        self._sent = True


class Pipeline(Interface):
    """Commands that are sent together. Each succeeds or fails by itself: a pipeline is not a transaction.

    The methods are those of queues, tubes and jobs. Each returns an `Answer`, whose `value` is the result.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls: list[Call[Any]] = []
        self._answers: list[Answer] = []

    def put(self, tube: api.Tube, body: Body, **options: Unpack[PutOptions]) -> Answer:
        """Put a job. The `value` of the returned answer is the id of the job."""
        check_keywords("put", options, PUT_KEYWORDS, "tube", "body")
        return self._add(commands.put(_of(KnownTube, tube)._raw, body, 0, options), lambda facts: facts.id)

    def ack(self, job: api.Job) -> Answer:
        """Finish a job successfully."""
        return self._finish(job, commands.ack(job.id))

    def release(self, job: api.Job, delay: Seconds = 0) -> Answer:
        """Return a job to its tube, after `delay` seconds."""
        return self._finish(job, commands.release(job.id, delay, hold=_of(KnownJob, job)._hold()))

    def nack(self, job: api.Job, reason: str = "") -> Answer:
        """Report that the work on a job failed. The retry policy decides what happens next."""
        return self._finish(job, commands.nack(job.id, reason, _of(KnownJob, job)._hold()))

    def bury(self, job: api.Job, reason: str = "") -> Answer:
        """Set a job aside until it is kicked."""
        return self._finish(job, commands.bury(job.id, reason, _of(KnownJob, job)._hold()))

    def delete(self, job: api.Job) -> Answer:
        """Remove a job."""
        return self._finish(job, commands.delete(job.id))

    def touch(self, job: api.Job, seconds: Seconds | None = None) -> Answer:
        """Extend the time for a job by `seconds`; None restarts its whole `ttr`."""
        return self._add(commands.touch(job.id, seconds))

    def meta(self, job: api.Job) -> Answer:
        """Ask for all properties of a job."""
        return self._add(commands.job_meta(job.id))

    def kick(self, tube: api.Tube, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> Answer:
        """Return up to `count` buried jobs to their tube. The `value` of the returned answer is their number."""
        return self._add(commands.kick(_of(KnownTube, tube)._raw, count, delay, ttl))

    def send(self) -> list[Answer]:
        """Send all commands that were added since the last `send`, and return their answers.

        The error of a command is raised by the `value` of its answer.
        """
        calls, self._calls = self._calls, []
        answers, self._answers = self._answers, []
        waiting = list(zip(calls, answers, strict=True))
        while waiting:
            waiting = self._send_all(waiting)
        return answers

    def _send_all(self, waiting: list[tuple[Call[Any], Answer]]) -> list[tuple[Call[Any], Answer]]:
        """Send commands. Return those that have to be sent to another node, because this node leaves its cluster."""
        refused: list[tuple[Call[Any], Answer]] = []
        outcomes = self._session.call_all([call for call, _ in waiting])
        for (call, answer), outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, Leaving):
                refused.append((call, answer))
            else:
                answer.settle(outcome)
        if not refused:
            return []
        # The jobs that these commands finish are recorded by now. If the session holds no job, the next call moves it.
        call, answer = refused.pop(0)
        outcome = self._session.outcome_of(call)
        answer.settle(outcome)
        if isinstance(outcome, Leaving):
            for _, answer in refused:
                answer.settle(outcome)
            return []
        return refused

    def _add(self, call: Call[Any], shown: Callable[[Any], Any] = lambda value: value) -> Answer:
        self._calls.append(call)
        self._answers.append(Answer(shown))
        return self._answers[-1]

    def _finish(self, job: api.Job, call: Call[None]) -> Answer:
        handle = _of(KnownJob, job)

        def finished(_: None) -> None:
            handle._finished = True
            self._session.held_jobs.remove(handle.id, call.hold())

        return self._add(call, finished)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Send all commands, unless the block raised. Then raise the first error of a command, if there is one."""
        if kind is None:
            for answer in self.send():
                _ = answer.value


def _of(kind: type[T], given: object) -> T:
    """Return a job or tube if it belongs to this client. Raise WrongType otherwise."""
    if not isinstance(given, kind):
        raise WrongType(f"a pipeline takes jobs and tubes of a queue on a server, not {type(given).__name__}")
    return given
