"""A schedule: a cron expression, its time zone, and the job that each of its ticks puts.

A *tick* is a moment that the expression names. The expression is evaluated by cronsim, in the time zone of the
schedule. When clocks go forward, a job at a time that does not exist runs at the change. When clocks go back, a
job at a fixed hour runs once, and a job of every hour or minute runs in both hours.
"""

from __future__ import annotations

import base64
import dataclasses
import zoneinfo
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast, get_args

from penstock._extras import not_installed
from penstock.core.errors import OutOfRange, Unsupported, WrongType
from penstock.options import EncodedBody, NewJob, PutOptions

CatchUp = Literal["last", "all", "none"]

# The headers of a job that a tick puts: the name of the schedule, and the moment of the tick in ISO 8601.
CRON_HEADER: Final = "cron"
TICK_HEADER: Final = "tick"

# The ticks that one step of a scheduler puts. With catch-up "all", the rest follows in the next step.
TICKS_MAX: Final = 500

# With catch-up "none", a tick that is later than this is skipped.
LATE_S: Final = 60


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A schedule, as it is stored in the body of its job."""

    name: str
    expression: str  # Five fields: minute, hour, day of the month, month, day of the week.
    tube: str  # The tube of the jobs that are put.
    body: EncodedBody
    zone: str = "UTC"
    catch_up: CatchUp = "last"  # What happens with ticks that were missed while no scheduler ran.
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # Further options of the puts.
    next: int = 0  # The next tick, in seconds since 1970.

    def check(self) -> None:
        """Raise OutOfRange if the expression, the time zone or the catch-up policy is invalid."""
        if not self.name:
            raise OutOfRange("a schedule needs a name")
        if self.catch_up not in get_args(CatchUp):
            raise OutOfRange(f"catch_up is last, all or none, not {self.catch_up!r}")
        self.after(0)

    def after(self, moment: int) -> int:
        """Return the first tick after a moment, in seconds since 1970."""
        return self._tick(moment, False)

    def until(self, moment: int) -> int:
        """Return the last tick at or before a moment, in seconds since 1970."""
        last = self._tick(moment + 1, True)
        # Around a change of the clocks, the backward search can miss a tick.
        while (following := self.after(last)) <= moment:
            last = following
        return last

    def _tick(self, moment: int, reverse: bool) -> int:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise Unsupported(not_installed("cronsim", "cron")) from None
        try:
            start = datetime.fromtimestamp(moment, zoneinfo.ZoneInfo(self.zone))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise OutOfRange(f"there is no time zone {self.zone!r}; examples are UTC and Europe/Berlin") from None
        try:
            return int(next(CronSim(self.expression, start, reverse=reverse)).timestamp())
        except (CronSimError, StopIteration):
            raise OutOfRange(
                f"{self.expression!r} is not a cron expression: five fields for minute, hour, day, month and weekday"
            ) from None

    def due(self, now: int) -> tuple[list[int], Schedule]:
        """Return the ticks to put at `now`, and the schedule as it continues. The schedule is due: `next` <= `now`."""
        if self.catch_up == "all":
            ticks = [self.next]
            while len(ticks) < TICKS_MAX and (following := self.after(ticks[-1])) <= now:
                ticks.append(following)
            return ticks, dataclasses.replace(self, next=self.after(ticks[-1]))
        last = max(self.next, self.until(now))
        skipped = self.catch_up == "none" and now - last > LATE_S
        return [] if skipped else [last], dataclasses.replace(self, next=self.after(max(last, now)))

    def tick_job(self, tick: int | None) -> NewJob:
        """Return the job of a tick. None stands for an additional run that a user asked for."""
        options: dict[str, Any] = dict(self.options)
        moment = "manual" if tick is None else datetime.fromtimestamp(tick, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if tick is not None:
            options["dedup"] = f"cron {self.name} {moment}"
        options["headers"] = {**self.headers, CRON_HEADER: self.name, TICK_HEADER: moment}
        return NewJob(self.body, **cast(PutOptions, options))

    def job(self) -> NewJob:
        """Return the job that stores the schedule. It is delayed until the next tick."""
        return NewJob(self.encoded(), at=datetime.fromtimestamp(self.next, UTC), unique=self.name)

    def encoded(self) -> dict[str, Any]:
        """Return the schedule as the body of its job."""
        told = dataclasses.asdict(self)
        told["body"], told["kind"] = base64.b64encode(self.body.raw).decode(), self.body.kind
        return told

    def has_definition_of(self, other: Schedule) -> bool:
        """Return whether two schedules differ at most in their next tick."""
        return dataclasses.replace(self, next=0) == dataclasses.replace(other, next=0)


def decode_schedule(body: Any) -> Schedule:
    """Return the schedule in the body of a job. Raise WrongType if there is none."""
    try:
        told = dict(body)
        told["body"] = EncodedBody(base64.b64decode(told["body"]), int(told.pop("kind")))
        schedule = Schedule(**told)
        schedule.check()
    except (TypeError, ValueError, KeyError, OutOfRange) as error:
        raise WrongType(f"the job is not a schedule: {error}") from None
    return schedule
