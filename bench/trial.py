"""A trial: something that is set up once and sampled a few times, and the rows it yields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.rows import Spec
from bench.scale import Scale

# One sample: a figure for each row of the trial, in their order.
Sample = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Trial:
    """One or more rows that are measured together."""

    rows: tuple[Spec, ...]
    prepare: Callable[[Scale], Sample]
    host_gc: bool = False  # Leave the garbage collector as a host process has it.
    rounds: int = 3  # How many samples; the best one counts.
