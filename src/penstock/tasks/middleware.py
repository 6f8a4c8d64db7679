"""Middleware: functions of the user that run before and after each put, run and settlement of a task.

The hooks that run before an action are called in the order of the list, and those after it in the reverse order. They
are plain functions and must not block. `before_put` and `before_run` can raise, which ends the put, or the attempt as
the exception says. An exception of any other hook is logged.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.tasks.attempt import Attempt
from penstock.tasks.call import TaskCall
from penstock.tasks.context import Context

_log = logging.getLogger("penstock.tasks")


class Middleware:
    """The base class of middleware. Override the hooks that you need."""

    def before_put(self, call: TaskCall[Any], headers: dict[str, str | bytes]) -> None:
        """Called before a job is put. It can add headers, and raise an exception to refuse the put."""

    def after_put(self, call: TaskCall[Any], job_id: str) -> None:
        """Called after a job was put."""

    def before_run(self, context: Context) -> None:
        """Called before the function of a task, in its thread or asyncio task. It can raise, as the task can."""

    def after_run(self, context: Context, error: BaseException | None) -> None:
        """Called after the function of a task has returned, or has raised `error`."""

    def before_settle(self, attempt: Attempt) -> None:
        """Called in the event loop of the worker, before the end of an attempt is sent to the queue."""

    def after_settle(self, attempt: Attempt) -> None:
        """Called in the event loop of the worker, when the queue has recorded the end of an attempt."""


class Pipeline:
    """The hooks of a list of middleware. Hooks that no middleware overrides cost nothing."""

    def __init__(self, middleware: Iterable[Middleware] = ()) -> None:
        self._all = list(middleware)
        self._before_put = [each.before_put for each in self._all if _has(each, "before_put")]
        self._after_put = [each.after_put for each in reversed(self._all) if _has(each, "after_put")]
        self._before_run = [each.before_run for each in self._all if _has(each, "before_run")]
        self._after_run = [each.after_run for each in reversed(self._all) if _has(each, "after_run")]
        self._before_settle = [each.before_settle for each in self._all if _has(each, "before_settle")]
        self._after_settle = [each.after_settle for each in reversed(self._all) if _has(each, "after_settle")]
        self.runs = bool(self._before_run or self._after_run)
        self.settles = bool(self._before_settle or self._after_settle)

    def before_put(self, call: TaskCall[Any], headers: dict[str, str | bytes]) -> None:
        for hook in self._before_put:
            hook(call, headers)

    def after_put(self, call: TaskCall[Any], job_id: str) -> None:
        for hook in self._after_put:
            with _logged("after_put"):
                hook(call, job_id)

    @contextlib.contextmanager
    def running(self, context: Context) -> Iterator[None]:
        """Call the hooks around a run."""
        try:
            for hook in self._before_run:
                hook(context)
            yield
        except BaseException as error:
            self._ran(context, error)
            raise
        self._ran(context, None)

    def _ran(self, context: Context, error: BaseException | None) -> None:
        for hook in self._after_run:
            with _logged("after_run"):
                hook(context, error)

    def before_settle(self, attempt: Attempt) -> None:
        for hook in self._before_settle:
            with _logged("before_settle"):
                hook(attempt)

    def after_settle(self, attempt: Attempt) -> None:
        for hook in self._after_settle:
            with _logged("after_settle"):
                hook(attempt)


def _has(middleware: Middleware, hook: str) -> bool:
    return getattr(type(middleware), hook) is not getattr(Middleware, hook)


@contextlib.contextmanager
def _logged(hook: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        _log.exception("middleware failed: hook=%s", hook)
