"""Calls of tasks: which task, with which arguments, how and when it is put, and which calls follow it.

resize.call("a.png").then(notify.call("ann"))     a chain: notify is put when resize has succeeded
resize.call("a.png").pipe(upload, bucket="x")     upload gets the result of resize as its first argument
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast

from penstock.core.errors import OutOfRange
from penstock.core.policy import TubePolicy
from penstock.cron.schedule import CatchUp, Schedule
from penstock.options import EncodedBody, PutOptions
from penstock.tasks import message
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import BadTask
from penstock.tasks.values import plain

R = TypeVar("R")
T = TypeVar("T")
A_contra = TypeVar("A_contra", contravariant=True)
Q = ParamSpec("Q")

# The number of steps of a chain. The body of each job contains all steps that follow it.
STEPS_MAX: Final = 100
# Options that can make a put return an existing job, which would cut the chain; and the name, by which handles find it.
_NOT_LATER: Final = ("dedup", "name", "new", "number", "state", "unique")


class Result:
    """Stands for the result of the previous step among the arguments of a call."""


RESULT: Final = Result()


class TakesArgument(Protocol[A_contra, Q, T]):
    """A task, as `pipe` sees it: its first parameter, the other ones, and its result."""

    def call(self, first: A_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[T]:
        """Return a call of the task."""


@dataclass(frozen=True, slots=True)
class TaskCall(Generic[R]):
    """One call of a task that can be put: the task, its arguments by name, and options of the put.

    If other calls follow, it is a chain. R is the type of the result of the last step.
    """

    task: TaskDeclaration[Any]
    arguments: Mapping[str, Any]
    options: PutOptions
    later: tuple[Mapping[str, Any], ...] = ()  # The steps that follow, as they are stored: see chain.py.

    def then(self, call: TaskCall[T]) -> TaskCall[T]:
        """Return a chain: this call, and another one, whose job is put when this one succeeds.

        The queue acks the job of a step and puts the next one in one commit, so a crash neither loses nor repeats a
        step. A step that fails for good ends the chain.
        """
        if not isinstance(call, TaskCall):
            raise BadTask(f"then takes a call, such as send.call(…), not {type(call).__name__}; see also pipe")
        later = (*self.later, call._step(), *call.later)
        if len(later) >= STEPS_MAX:
            raise OutOfRange(f"a chain has at most {STEPS_MAX} steps; put further ones from a task, with ctx.put")
        return TaskCall(self.task, self.arguments, self.options, later)

    def pipe(self, task: TakesArgument[R, Q, T], *args: Q.args, **kwargs: Q.kwargs) -> TaskCall[T]:
        """Return a chain: this call, and one of `task` whose first argument is the result of this one.

        The other arguments follow: `resize.call("a.png").pipe(upload, bucket="x")`.
        """
        if not hasattr(task, "call"):
            raise BadTask(f"pipe takes a task and its other arguments, not {type(task).__name__}")
        return self.then(task.call(cast(R, RESULT), *args, **kwargs))

    def _step(self) -> dict[str, Any]:
        """Return this call as a later step is stored."""
        wrong = [name for name in _NOT_LATER if name in self.options]
        if wrong or self.task.options.unique is not False:
            refused = wrong[0] if wrong else "unique"
            raise BadTask(f"task {self.task.name}: a later step of a chain cannot have the option {refused}")
        given = dict(self.arguments)
        found = [name for name, value in given.items() if value is RESULT]
        for name in found:
            del given[name]
        step = {"task": self.task.name, "arguments": self.task.signature.to_plain(given)}
        options = {name: _plain_option(value) for name, value in self.options.items()}
        return step | ({"options": options} if options else {}) | ({"result": found[0]} if found else {})

    def with_options(self, **options: Unpack[PutOptions]) -> TaskCall[R]:
        """Return this call with other options of the put, such as `delay` or `key`.

        They are those of the first step of a chain. Only `batch` is for all steps.
        """
        later = self.later
        if "batch" in options:
            shared = {"batch": options["batch"]}
            later = tuple({**step, "options": {**step.get("options", {}), **shared}} for step in later)
        return replace(self, options=self.options | options, later=later)

    def with_headers(self, headers: Mapping[str, str]) -> TaskCall[R]:
        """Return this call with more headers."""
        options: PutOptions = {**self.options, "headers": {**headers, **self.options.get("headers", {})}}
        return replace(self, options=options)

    def prepared(self, policy: TubePolicy, codec: message.Codec) -> tuple[EncodedBody, PutOptions]:
        """Return the body of the job, and the options of its put into a tube with this policy."""
        task = self.task
        body = message.encode_value(self._plain_body(), codec)
        headers = message.task_headers(task.name, task.options.tags)
        if self.later:
            headers[message.STEP] = f"1/{len(self.later) + 1}"
            headers[message.NEXT] = message.next_header([step["task"] for step in self.later])
        options: PutOptions = {**task.put_options(policy), **self.options}
        if "headers" in options:
            headers.update(options["headers"])
        options["headers"] = headers
        if task.options.key is not None and "key" not in options:
            options["key"] = task.options.key(**self.arguments)
        unique = task.options.unique
        if unique is not False and "unique" not in options:
            options["unique"] = f"{task.name} {_digest(body) if unique is True else unique(**self.arguments)}"
        return body, options

    def _plain_body(self) -> Any:
        arguments = self.task.signature.to_plain(dict(self.arguments))
        return [arguments, list(self.later)] if self.later else arguments


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A call of a task, and when it is put."""

    name: str
    expression: str
    zone: str
    catch_up: CatchUp
    call: TaskCall[Any]

    def check(self) -> None:
        """Raise OutOfRange if the expression, the time zone or the catch-up policy is invalid."""
        Schedule(
            self.name, self.expression, self.call.task.options.tube, EncodedBody(b"", 0), self.zone, self.catch_up
        ).check()

    def schedule(self, policy: TubePolicy, codec: message.Codec) -> Schedule:
        """Return the schedule. `policy` is that of the task's tube."""
        body, options = self.call.prepared(policy, codec)
        others = cast("dict[str, Any]", dict(options))
        headers = cast("dict[str, str]", dict(others.pop("headers")))
        # The process that declares the schedule is not the one that puts the jobs.
        headers.pop(message.PRODUCER, None)
        return Schedule(
            self.name,
            self.expression,
            self.call.task.options.tube,
            body,
            self.zone,
            self.catch_up,
            headers,
            others,
        )


def _plain_option(value: Any) -> Any:
    if isinstance(value, datetime):
        value = value.astimezone()  # A time without a zone is a local time of this process.
    return plain(value)


def _digest(body: EncodedBody) -> str:
    """Return a short value that is equal for equal arguments. A label of a job has a limited length."""
    return hashlib.sha256(body.raw).hexdigest()[:32]
