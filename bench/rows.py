"""A row of the report: its name, unit, base of comparison, goal, and measured samples."""

from __future__ import annotations

import enum
from dataclasses import dataclass

# Two measurements of the same thing on a busy machine differ by up to this much, so "costs nothing" means within it.
NO_EXTRA_COST = 1.2


class Unit(enum.Enum):
    """The unit of a figure. Greater rates are better; all other figures are better if they are smaller."""

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
        """Whether greater figures are better."""
        return self.value.endswith("/s")

    def best(self, samples: list[float]) -> float:
        """Return the best sample, which was disturbed least by other processes."""
        return max(samples) if self.is_rate else min(samples)

    def text(self, value: float) -> str:
        """Return a figure as text for people."""
        if self in (Unit.CYCLES, Unit.PUTS, Unit.COMMANDS, Unit.JOBS, Unit.ROWS):
            return f"{value / 1_000:,.{0 if value >= 10_000 else 1}f}k {self.value}"
        if self in (Unit.MS, Unit.SECONDS, Unit.PERCENT, Unit.MESSAGES):
            return f"{value:,.2f} {self.value}"
        if self in (Unit.BYTES, Unit.MB, Unit.MB_RATE):
            return f"{value:,.0f} {self.value}"
        return f"{value:,.0f} ns" if abs(value) < 10_000 else f"{value / 1_000:,.1f} µs"


class Of(enum.Enum):
    """The quantity that a goal limits."""

    VALUE = "value"  # The figure itself.
    RATIO = "ratio"  # The figure divided by its base.
    EXTRA = "extra"  # The figure minus its base.


@dataclass(frozen=True)
class Goal:
    """A limit: the minimum of a rate, or the maximum of a cost."""

    bound: float
    of: Of = Of.VALUE


@dataclass(frozen=True)
class Reference:
    """A figure for comparison that was not measured in this run."""

    name: str
    value: float


# Put, take and ack of xqueue in Tarantool, measured separately. The goal for an embedded queue is eight times as much.
XQUEUE = Reference("xqueue", 32_000)


@dataclass(frozen=True)
class Spec:
    """A row before it is measured. Names are `family/row`."""

    name: str
    what: str
    unit: Unit
    base: str | Reference | None = None  # The name of a row in the same family, or a reference.
    goal: Goal | None = None

    @property
    def base_name(self) -> str | None:
        """Name of the base of comparison."""
        return self.base.name if isinstance(self.base, Reference) else self.base


@dataclass(frozen=True)
class Row:
    """A row with its samples."""

    spec: Spec
    samples: list[float]
    base_value: float | None
    error: str = ""  # Why the row could not be measured. Then it has no samples.

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
        """The figure minus its base."""
        return None if self.value is None or self.base_value is None else self.value - self.base_value

    @property
    def met(self) -> bool | None:
        """Whether the goal was met, or None if there is no goal or no figure."""
        goal = self.spec.goal
        if goal is None:
            return None
        reached = {Of.VALUE: self.value, Of.RATIO: self.ratio, Of.EXTRA: self.extra}[goal.of]
        if reached is None:
            return None
        return reached >= goal.bound if self.spec.unit.is_rate else reached <= goal.bound
