"""A declared task: its function, its options and its signature. `Task` in task.py adds the methods that put jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final, Generic, TypeVar, cast

from penstock.core.limits import NEVER
from penstock.core.policy import TubePolicy
from penstock.options import Duration, PutOptions, Seconds, duration_ms
from penstock.tasks.failures import BadTask
from penstock.tasks.signature import TaskSignature
from penstock.tasks.values import Reader, reader_of

R = TypeVar("R")

# How long a result is kept.
RESULT_TTL_S: Final = 3_600


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of a task. None means: as the tube, or as the app."""

    tube: str = "tasks"  # The tube of its jobs.
    retry: str | None = None  # Retry policy, for example "5x exp(1s..10m) jitter then bury".
    ttr: Duration | None = None  # Time that an attempt has between two heartbeats.
    priority: int | None = None  # A job with a lower priority is taken first.
    key: Callable[..., str] | None = None  # Returns the key of a job from the arguments of its call.
    limit_per_key: int | None = None  # Maximum number of running jobs per key.
    unique: bool | Callable[..., str] = False  # At most one unfinished job per value, or per equal arguments if True.
    timeout: Seconds | None = None  # Time that an attempt may take, with or without heartbeats.
    result_ttl: Duration = RESULT_TTL_S  # How long a result is kept.
    tags: tuple[str, ...] = ()  # Words that tools can show and search.


class TaskDeclaration(Generic[R]):
    """A function that is a task."""

    def __init__(self, function: Callable[..., Any], name: str, options: TaskOptions) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.is_async = iscoroutinefunction(function)
        self.signature = TaskSignature(function, name)
        timeout = options.timeout
        self.timeout_s = None if timeout is None else duration_ms(timeout, "timeout") / 1_000
        self._result_reader: Reader | None = reader_of(self.signature.result_annotation)
        self._last_policy: tuple[TubePolicy, PutOptions] | None = None

    def __repr__(self) -> str:
        return f"<penstock task {self.name!r}>"

    @property
    def always_stores_result(self) -> bool:
        """Whether the result of each run is stored, also if it is None."""
        annotation = self.signature.result_annotation
        return annotation is not Any and not self.signature.returns_none

    def decode_result(self, stored: Any) -> R:
        """Return a stored result as the type that the function is annotated with."""
        read = self._result_reader
        return cast(R, stored if read is None or stored is None else read(stored))

    def put_options(self, policy: TubePolicy) -> PutOptions:
        """Return the options of this task that a tube of this policy does not have as its defaults."""
        if self._last_policy is None or self._last_policy[0] is not policy:
            self._last_policy = (policy, self._options_beyond(policy))
        return self._last_policy[1]

    def _options_beyond(self, policy: TubePolicy) -> PutOptions:
        mine = self.options
        options: PutOptions = {}
        if mine.retry is not None and mine.retry != policy.retry:
            options["retry"] = mine.retry
        if mine.ttr is not None and duration_ms(mine.ttr, "ttr") != policy.default_ttr_ms:
            options["ttr"] = mine.ttr
        if mine.priority is not None and mine.priority != policy.default_priority:
            options["priority"] = mine.priority
        return options

    def check_options(self) -> None:
        """Raise BadTask if options contradict each other."""
        if self.options.limit_per_key is not None and self.options.key is None:
            raise BadTask(f"task {self.name}: limit_per_key needs key, a function from the arguments to the key")
        if self.options.timeout is not None and duration_ms(self.options.timeout, "timeout") in (0, NEVER):
            raise BadTask(f"task {self.name}: timeout must be more than 0 seconds and not without limit")
