"""Many commands in one round trip, for threads. (Tasks of asyncio need no such thing: what they send in one turn of the
loop goes out together by itself.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, Unpack

from penstock.client import commands
from penstock.client.commands import Call
from penstock.client.session import Session
from penstock.core.errors import Leaving, PenstockError
from penstock.options import Body, Duration, PutOptions, Seconds


class Tube(Protocol):
    """A tube of the client."""

    _raw: bytes


class Job(Protocol):
    """A job of the client."""

    _finished: bool

    @property
    def id(self) -> str:
        """Its id."""

    def _hold(self) -> int: ...


class Answer:
    """What one command of a pipeline will have answered."""

    __slots__ = ("_outcome", "_sent", "_shown")

    def __init__(self, shown: Callable[[Any], Any]) -> None:
        self._shown = shown  # What is told of it.
        self._sent = False
        self._outcome: Any = None

    @property
    def value(self) -> Any:
        """What the call would have given; it raises what the call would have raised."""
        if not self._sent:
            raise PenstockError("the pipeline was not sent yet; leave its block, or call send()")
        if isinstance(self._outcome, PenstockError):
            raise self._outcome
        return self._outcome

    def settle(self, outcome: Any) -> None:
        """It was answered, or refused."""
        self._outcome = outcome if isinstance(outcome, PenstockError) else self._shown(outcome)
        self._sent = True


class Pipeline:
    """Commands that wait to be sent together. Each is done or refused by itself: this is no transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls: list[Call[Any]] = []
        self._answers: list[Answer] = []

    def put(self, tube: Tube, body: Body, **options: Unpack[PutOptions]) -> Answer:
        """Add a job; the answer is its id."""
        return self._add(commands.put(tube._raw, body, 0, options), lambda facts: facts.id)

    def ack(self, job: Job) -> Answer:
        """A job is done."""
        return self._finish(job, commands.ack(job.id))

    def release(self, job: Job, delay: Seconds = 0) -> Answer:
        """Give a job back."""
        return self._finish(job, commands.release(job.id, delay, hold=job._hold()))

    def nack(self, job: Job, reason: str = "") -> Answer:
        """Give a job back because it failed."""
        return self._finish(job, commands.nack(job.id, reason, job._hold()))

    def bury(self, job: Job, reason: str = "") -> Answer:
        """Put a job aside."""
        return self._finish(job, commands.bury(job.id, reason, job._hold()))

    def delete(self, job: Job) -> Answer:
        """Remove a job."""
        return self._finish(job, commands.delete(job.id))

    def touch(self, job: Job, seconds: Seconds | None = None) -> Answer:
        """Ask for more time."""
        return self._add(commands.touch(job.id, seconds))

    def meta(self, job: Job) -> Answer:
        """Everything the server knows about a job."""
        return self._add(commands.job_meta(job.id))

    def kick(self, tube: Tube, count: int = 1, *, delay: Seconds = 0, ttl: Duration | None = None) -> Answer:
        """Dig buried jobs up."""
        return self._add(commands.kick(tube._raw, count, delay, ttl))

    def send(self) -> list[Answer]:
        """Send everything that was added since the last time, and give the answers. What was refused raises when its
        `value` is asked for."""
        calls, self._calls = self._calls, []
        answers, self._answers = self._answers, []
        waiting = list(zip(calls, answers, strict=True))
        while waiting:
            waiting = self._send_all(waiting)
        return answers

    def _send_all(self, waiting: list[tuple[Call[Any], Answer]]) -> list[tuple[Call[Any], Answer]]:
        """Send all of these; give those that are to be sent to another node, since this one leaves its cluster."""
        refused: list[tuple[Call[Any], Answer]] = []
        outcomes = self._session.call_all([call for call, _ in waiting])
        for (call, answer), outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, Leaving):
                refused.append((call, answer))
            else:
                answer.settle(outcome)
        if not refused:
            return []
        # All that was finished here counts by now: if nothing is held any more, the first of them changes the node.
        call, answer = refused.pop(0)
        outcome = self._session.call_elsewhere(call)
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

    def _finish(self, job: Job, call: Call[None]) -> Answer:
        def finished(_: None) -> None:
            job._finished = True
            self._session.belongings.remove(job.id, call.hold())

        return self._add(call, finished)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Send what was added, unless the block raised; then raise the first refusal, if there was one."""
        if kind is None:
            for answer in self.send():
                _ = answer.value
