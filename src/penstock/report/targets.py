"""Targets for wait times, and the error budget that they allow.

The target p95=2s allows 5 % of the jobs to wait longer than 2 s. This share is the error budget. If 2 % of the jobs
waited longer, 40 % of the budget is used. More than 100 % means that the target is missed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.limits import NEVER
from penstock.report.percentiles import rank_of, slower_than
from penstock.report.units import duration_text

_PERCENTILE: Final = re.compile(r"p([1-9]?[0-9](?:\.[0-9]{1,3})?)", re.ASCII)


@dataclass(frozen=True)
class Target:
    """A percentile of the wait times, and the duration that it must not exceed."""

    percent: str  # "95" for p95.
    ms: int

    @property
    def name(self) -> str:
        return f"p{self.percent}"

    @property
    def rank(self) -> Fraction:
        return rank_of(self.percent)

    @property
    def allowed(self) -> Fraction:
        """The share of jobs that may wait longer."""
        return 1 - self.rank

    def __str__(self) -> str:
        return f"{self.name} ≤ {duration_text(self.ms)}"


@dataclass(frozen=True)
class Budget:
    """The error budget of a target, and how much of it is used."""

    target: Target
    total: int
    slower: int

    @property
    def share(self) -> float:
        """The share of jobs that waited longer than the target."""
        return self.slower / self.total if self.total else 0.0

    @property
    def used(self) -> float:
        """The used part of the budget. 1 is the whole budget."""
        return float(Fraction(self.slower, self.total) / self.target.allowed) if self.total else 0.0

    @property
    def met(self) -> bool:
        return self.slower <= self.total * self.target.allowed


def parse_target(text: str) -> Target:
    """Parse a target such as `p95=2s`. Raise ValueError with a sentence for people if it is not one."""
    name, mark, duration = text.partition("=")
    found = _PERCENTILE.fullmatch(name)
    ms = read_duration(duration.encode())
    if not mark or found is None or not 0 < rank_of(found[1]) < 1 or ms in (NO_DURATION, NEVER):
        raise ValueError(f"{text!r} is not a target; write a percentile of the wait times and a limit, such as p95=2s")
    percent = found[1].rstrip("0").rstrip(".") if "." in found[1] else found[1]
    return Target(percent.lstrip("0") if not percent.startswith("0.") else percent, ms)


def budget_of(target: Target, counts: Mapping[int, int]) -> Budget:
    """Return the budget of a target, from the counts of wait times by bucket."""
    return Budget(target, sum(counts.values()), slower_than(counts, target.ms))
