"""Calls of tasks: which task, with which arguments, and how and when it is put."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, Unpack, cast

from penstock.core.policy import TubePolicy
from penstock.cron.schedule import CatchUp, Schedule
from penstock.options import EncodedBody, PutOptions
from penstock.tasks import message
from penstock.tasks.declaration import TaskDeclaration

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskCall(Generic[R]):
    """One call of a task that can be put: the task, its arguments by name, and options of the put."""

    task: TaskDeclaration[R]
    arguments: Mapping[str, Any]
    options: PutOptions

    def with_options(self, **options: Unpack[PutOptions]) -> TaskCall[R]:
        """Return this call with other options of the put, such as `delay` or `key`."""
        return replace(self, options=self.options | options)

    def with_headers(self, headers: Mapping[str, str]) -> TaskCall[R]:
        """Return this call with more headers."""
        options: PutOptions = {**self.options, "headers": {**headers, **self.options.get("headers", {})}}
        return replace(self, options=options)

    def prepared(self, policy: TubePolicy, codec: message.Codec) -> tuple[EncodedBody, PutOptions]:
        """Return the body of the job, and the options of its put into a tube with this policy."""
        task = self.task
        body = message.encode_value(task.signature.to_plain(dict(self.arguments)), codec)
        headers = message.task_headers(task.name, task.options.tags)
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


def _digest(body: EncodedBody) -> str:
    """Return a short value that is equal for equal arguments. A label of a job has a limited length."""
    return hashlib.sha256(body.raw).hexdigest()[:32]
