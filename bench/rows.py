"""A row: what is measured, what it is compared with, what was hoped for, and what came out."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# Two measurements of the same thing on a busy machine differ by up to this much, so "costs nothing" means within it.
NO_EXTRA_COST = 1.2


class Unit(enum.Enum):
    """What a figure counts. A rate is better when it is greater, everything else when it is less."""

    CYCLES = "cycles/s"
    PUTS = "puts/s"
    COMMANDS = "commands/s"
    JOBS = "jobs/s"
    ROWS = "rows/s"
    MB_RATE = "MB/s"
    NS = "ns"
    MS = "ms"
    SECONDS = "s"
    BYTES = "bytes"
    MB = "MB"
    PERCENT = "%"
    MESSAGES = "messages"

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.value.endswith("/s")

    def best(self, samples: list[float]) -> float:
        """The sample that the machine disturbed least."""
        return max(samples) if self.is_rate else min(samples)

    def text(self, value: float) -> str:
        """A figure for people."""
        if self in (Unit.CYCLES, Unit.PUTS, Unit.COMMANDS, Unit.JOBS, Unit.ROWS):
            return f"{value / 1_000:,.{0 if value >= 10_000 else 1}f}k {self.value}"
        if self in (Unit.MS, Unit.SECONDS, Unit.PERCENT, Unit.MESSAGES):
            return f"{value:,.2f} {self.value}"
        if self in (Unit.BYTES, Unit.MB, Unit.MB_RATE):
            return f"{value:,.0f} {self.value}"
        return f"{value:,.0f} ns" if abs(value) < 10_000 else f"{value / 1_000:,.1f} µs"


class Of(enum.Enum):
    """What a goal is about."""

    VALUE = "value"  # The figure itself.
    RATIO = "ratio"  # The figure divided by its base.
    EXTRA = "extra"  # The figure less its base.


@dataclass(frozen=True)
class Goal:
    """A bound: from below for rates, from above for costs."""

    bound: float
    of: Of = Of.VALUE


@dataclass(frozen=True)
class Reference:
    """A figure that was not measured in this run, to compare with all the same."""

    name: str
    value: float


# xqueue in Tarantool: put, take and ack, measured elsewhere. The goal for an embedded queue is eight times that.
XQUEUE = Reference("xqueue", 32_000)


@dataclass(frozen=True)
class Spec:
    """A row before it is measured. Names are `family/row`."""

    name: str
    what: str
    unit: Unit
    base: str | Reference | None = None  # A row by its name; it must stand in the same family.
    goal: Goal | None = None

    @property
    def base_name(self) -> str | None:
        """What it is compared with."""
        return self.base.name if isinstance(self.base, Reference) else self.base


@dataclass(frozen=True)
class Row:
    """A row with its figures."""

    spec: Spec
    samples: list[float]
    base_value: float | None
    error: str = ""  # Why it could not be measured; then there are no samples.

    @property
    def value(self) -> float | None:
        """The best sample."""
        return self.spec.unit.best(self.samples) if self.samples else None

    @property
    def ratio(self) -> float | None:
        """The figure divided by its base."""
        return None if self.value is None or self.base_value is None else self.value / self.base_value

    @property
    def extra(self) -> float | None:
        """The figure less its base."""
        return None if self.value is None or self.base_value is None else self.value - self.base_value

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None where there is no goal, or no figure."""
        goal = self.spec.goal
        if goal is None:
            return None
        reached = {Of.VALUE: self.value, Of.RATIO: self.ratio, Of.EXTRA: self.extra}[goal.of]
        if reached is None:
            return None
        return reached >= goal.bound if self.spec.unit.is_rate else reached <= goal.bound
