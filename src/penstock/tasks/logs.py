"""Log lines of workers that more than one module writes, or that have values to explain."""

from __future__ import annotations

import logging

from penstock.tasks.attempt import Attempt
from penstock.tasks.tubes import Difference

log = logging.getLogger("penstock.tasks")


def option_differs(tube: str, difference: Difference) -> None:
    """Log that a tube has another value of an option than the app declares."""
    log.warning(
        "tube option differs: tube=%s option=%s declared=%s actual=%s "
        "(raise App(version=…) to alter the tube, or run `penstock tube alter`)",
        *(tube, difference.option, difference.declared, difference.actual),
    )


def not_altered(tube: str, error: Exception) -> None:
    """Log that the options of a tube could not be changed."""
    log.warning("tube not altered: tube=%s error=%r", tube, str(error))


def attempt_failed(attempt: Attempt) -> None:
    """Log that a task failed, and why. The retry policy of its job decides whether there is another attempt."""
    job = attempt.job
    reason = " ".join(attempt.reason.split())  # It may have the lines of a traceback.
    log.warning("task failed: task=%s job=%s attempt=%d reason=%r", attempt.task.name, job.id, job.deliveries, reason)
