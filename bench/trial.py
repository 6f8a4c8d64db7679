"""A trial: one or more rows that are set up once and sampled several times."""

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
    rounds: int | None = None  # Number of samples. None: the default for short samples.
    host_gc: bool = False  # Use Python's default garbage collector settings.
