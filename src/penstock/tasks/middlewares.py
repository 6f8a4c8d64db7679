"""Ready-made middleware: logs, metrics, traces and error reports.

app = penstock.App(url, middleware=[LogRuns(), CountRuns(), ReportErrors(sentry_sdk.capture_exception)])
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from penstock.tasks.context import Context
from penstock.tasks.failures import Bury, Discard, Retry
from penstock.tasks.middleware import Middleware

# Exceptions by which a task decides how it ends. They are no errors of the program.
_DECISIONS = (Retry, Bury, Discard)


class _Timed(Middleware):
    """Measures how long each run takes."""

    def __init__(self) -> None:
        self._begun: dict[Context, float] = {}

    def before_run(self, context: Context) -> None:
        self._begun[context] = time.monotonic()

    def seconds(self, context: Context) -> float:
        """Return the duration of a run that has ended."""
        begun = self._begun.pop(context, None)
        return 0.0 if begun is None else time.monotonic() - begun


class LogRuns(_Timed):
    """Logs each run of a task that succeeds, with its duration. Workers log failures themselves."""

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        super().__init__()
        self._log = logger or logging.getLogger("penstock.tasks")
        self._level = level

    def after_run(self, context: Context, error: BaseException | None) -> None:
        job, seconds = context.job, self.seconds(context)  # Also for a failure: it forgets the run.
        if error is None:
            self._log.log(self._level, "task done: task=%s job=%s seconds=%.3f", job.task, job.id, seconds)


class CountRuns(_Timed):
    """Counts and measures runs for Prometheus. It needs the package prometheus-client."""

    def __init__(self, registry: Any = None) -> None:
        super().__init__()
        import prometheus_client as prometheus

        registry = prometheus.REGISTRY if registry is None else registry
        labels = ["task", "outcome"]
        self._runs = prometheus.Counter("penstock_task_runs", "Runs of tasks.", labels, registry=registry)
        self._time = prometheus.Histogram(
            "penstock_task_run_seconds", "Duration of runs of tasks.", ["task"], registry=registry
        )

    def after_run(self, context: Context, error: BaseException | None) -> None:
        task = context.job.task
        self._runs.labels(task, "succeeded" if error is None else type(error).__name__.lower()).inc()
        self._time.labels(task).observe(self.seconds(context))


class TraceRuns(Middleware):
    """Continues the trace of the producer in each run, as `penstock.telemetry` does. It needs opentelemetry-api.

    Call `penstock.telemetry.instrument()` in each process as well. Then puts add the trace to their jobs.
    """

    def __init__(self) -> None:
        self._spans: dict[Context, AbstractContextManager[Any]] = {}

    def before_run(self, context: Context) -> None:
        from penstock import telemetry

        span = telemetry.process(context.job)
        span.__enter__()
        self._spans[context] = span

    def after_run(self, context: Context, error: BaseException | None) -> None:
        span = self._spans.pop(context, None)
        if span is not None:
            if error is None:
                span.__exit__(None, None, None)
            else:
                try:
                    span.__exit__(type(error), error, error.__traceback__)
                except BaseException as raised:
                    if raised is not error:
                        raise


class ReportErrors(Middleware):
    """Calls a function with each exception of a task, for example `sentry_sdk.capture_exception`."""

    def __init__(self, report: Callable[[BaseException], object]) -> None:
        self._report = report

    def after_run(self, context: Context, error: BaseException | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, _DECISIONS):
            self._report(error)
