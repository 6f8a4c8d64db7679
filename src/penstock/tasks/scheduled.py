"""Calls that a cron schedule puts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from penstock.core.policy import TubePolicy
from penstock.cron.schedule import CatchUp, Schedule
from penstock.options import EncodedBody
from penstock.tasks.call import TaskCall
from penstock.tasks.message import PRODUCER, Codec


@dataclass(frozen=True)
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

    def schedule(self, policy: TubePolicy, codec: Codec) -> Schedule:
        """Return the schedule. `policy` is that of the task's tube."""
        body, options = self.call.prepared(policy, codec)
        others = cast("dict[str, Any]", dict(options))
        headers = cast("dict[str, str]", dict(others.pop("headers")))
        # The process that declares the schedule is not the one that puts the jobs.
        headers.pop(PRODUCER, None)
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
