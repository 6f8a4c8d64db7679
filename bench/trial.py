"""A trial: something that is set up once and sampled a few times, and the rows it yields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.rows import Spec

# One sample: a figure for each row of the trial, in their order.
Sample = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Trial:
    """One or more rows that are measured together."""

    rows: tuple[Spec, ...]
    prepare: Callable[[], Sample]
    rounds: int | None = None  # How many samples; None for as many short ones as the form of the run has.
    host_gc: bool = False  # Leave the garbage collector as a host process has it.
