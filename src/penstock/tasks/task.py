"""Tasks: functions whose calls can be put as jobs.

    send.put(to="ann@example.org")                   now
    send.after(60).put(to="ann@example.org")         in a minute
    send.put_many(send.call(to=each) for each in addresses)

The parameters of `put` and `call` are those of the function, so type checkers reject a wrong argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast

from penstock.options import NewJob, PutOptions, Seconds
from penstock.tasks.call import TaskCall
from penstock.tasks.context import Context
from penstock.tasks.declaration import TaskDeclaration, TaskOptions
from penstock.tasks.handle import AsyncHandle, Handle

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Producer(Protocol):
    """Puts the jobs of calls: an app, as its tasks see it."""

    def put(self, call: TaskCall[T]) -> Handle[T]:
        """Put the job of a call."""

    async def aput(self, call: TaskCall[T]) -> AsyncHandle[T]:
        """Put the job of a call, for asyncio."""

    def put_many(self, calls: Iterable[TaskCall[T]]) -> list[Handle[T]]:
        """Put a job for each call."""

    async def aput_many(self, calls: Iterable[TaskCall[T]]) -> list[AsyncHandle[T]]:
        """Put a job for each call, for asyncio."""

    async def follow_up(self, call: TaskCall[Any], headers: Mapping[str, str]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put when a task succeeds, with more headers."""

    def acked(self, ids: Iterable[str]) -> None:
        """Record that jobs were acked, for handles in this process."""

    def direct_context(self, task: TaskDeclaration[Any]) -> Context:
        """Return the context of a task that is called directly."""


class TaskPuts(Generic[P, R]):
    """Puts calls of a task, with options: what `task.at(…)`, `task.after(…)` and `task.with_options(…)` return."""

    def __init__(self, task: BaseTask[P, R], options: PutOptions) -> None:
        self._task = task
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R]:
        """Return a call of the task with these arguments. It is not put yet."""
        return TaskCall(self._task, self._task.signature.bind(args, kwargs), self._options)

    def put(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Put a job that calls the task with these arguments. Return its handle."""
        return self._task.app.put(self.call(*args, **kwargs))

    async def aput(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """Put a job that calls the task with these arguments, for asyncio. Return its handle."""
        return await self._task.app.aput(self.call(*args, **kwargs))

    def put_many(self, calls: Iterable[TaskCall[R]]) -> list[Handle[R]]:
        """Put a job for each call, or none at all: `send.put_many(send.call(to=each) for each in addresses)`."""
        return self._task.app.put_many([self._merged(call) for call in calls])

    async def aput_many(self, calls: Iterable[TaskCall[R]]) -> list[AsyncHandle[R]]:
        """Put a job for each call, or none at all, for asyncio."""
        return await self._task.app.aput_many([self._merged(call) for call in calls])

    def _merged(self, call: TaskCall[R]) -> TaskCall[R]:
        return replace(call, options=cast(PutOptions, {**self._options, **call.options})) if self._options else call

    def at(self, when: datetime) -> TaskPuts[P, R]:
        """Put a job that waits until `when`: `task.at(when).put(…)`. Without a time zone, it is local time."""
        return self.with_options(at=when)

    def after(self, delay: Seconds) -> TaskPuts[P, R]:
        """Put later: `task.after(60).put(…)`. The job can be taken after this many seconds, or after a timedelta."""
        return self.with_options(delay=delay)

    def with_options(self, **options: Unpack[PutOptions]) -> TaskPuts[P, R]:
        """Put with other options, such as `key`, `priority` or `dedup`: `task.with_options(priority=1).put(…)`."""
        return TaskPuts(self._task, self._options | options)


class BaseTask(TaskPuts[P, R], TaskDeclaration[R]):
    """A registered task. `Task` and `AsyncTask` add how it is called directly."""

    def __init__(self, app: Producer, function: Callable[..., Any], name: str, options: TaskOptions) -> None:
        TaskDeclaration.__init__(self, function, name, options)
        TaskPuts.__init__(self, self, {})
        self.app = app
        functools.update_wrapper(cast(Any, self), function)

    def _own_context(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a direct call, with a context if the function needs one and got none."""
        if self.signature.takes_context and not (args and isinstance(args[0], Context)):
            return (self.app.direct_context(self), *args)
        return args


class Task(BaseTask[P, R]):
    """A task with a plain function. Calling it calls the function, without a job."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*self._own_context(args), **kwargs))


class AsyncTask(BaseTask[P, R]):
    """A task with an async function. Calling it calls the function, without a job."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast(Coroutine[Any, Any, R], self.function(*self._own_context(args), **kwargs))
