"""How a task ends without a result: the exceptions that it can raise, and the reason that is stored with its job."""

from __future__ import annotations

import traceback
from typing import Final

from penstock.core.errors import PenstockError
from penstock.core.limits import REASON_BYTES_MAX
from penstock.options import JobOutcome, Seconds

# The frames of a traceback that a reason contains, and the length of the reason in characters.
_FRAMES_MAX: Final = 5
_REASON_CHARS_MAX: Final = min(2_000, REASON_BYTES_MAX // 4)


class Retry(Exception):
    """Raised in a task: end this attempt as failed and try again after `delay`, or as the retry policy says."""

    def __init__(self, delay: Seconds | None = None, reason: str = "") -> None:
        super().__init__(reason or "the task asked to be retried")
        self.delay = delay
        self.reason = reason


class Bury(Exception):
    """Raised in a task: bury the job now, without further attempts."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task asked to be buried")
        self.reason = reason


class Discard(Exception):
    """Raised in a task: remove the job without a result. It counts as deleted."""


class BadArguments(PenstockError, TypeError):
    """The arguments of a task do not match the parameters of its function."""


class BadTask(PenstockError, TypeError):
    """A function cannot be a task, or a task is declared with options that contradict each other."""


class TaskFailed(PenstockError):
    """The job of a task ended without a result. `outcome` says how."""

    def __init__(self, outcome: JobOutcome) -> None:
        super().__init__(f"the task was {outcome.outcome}" + (f": {outcome.reason}" if outcome.reason else ""))
        self.outcome = outcome


class ResultExpired(PenstockError):
    """The task has succeeded, but its result is no longer stored; raise `result_ttl` to keep results for longer."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


def reason_of(error: BaseException) -> str:
    """Return the reason for a failure: the class of the exception, its message and the last frames of its traceback."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    head = f"{type(error).__name__}: {message}" if message else type(error).__name__
    # The lines of the source are not needed, and reading them would be slow.
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    # The frames of the worker are the same for every task.
    own = [frame for frame in frames if "penstock/tasks/" not in frame.filename.replace("\\", "/")]
    lines = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in own[-_FRAMES_MAX:]]
    text = head[: _REASON_CHARS_MAX // 2]
    for line in lines:
        if len(text) + len(line) < _REASON_CHARS_MAX:
            text += "\n" + line
    return text.encode("utf-8", "backslashreplace").decode()
