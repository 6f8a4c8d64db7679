"""Scales: where a value is on the vertical axis of a chart, and which values are labelled."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from penstock.report.units import duration_text, short_count_text

# Durations that are labelled, in ms. Neighbours differ by a factor of about three.
DURATIONS_MS: Final = (
    *(1, 3, 10, 30, 100, 300),
    *(1_000, 3_000, 10_000, 30_000),
    *(60_000, 180_000, 600_000, 1_800_000),
    *(3_600_000, 10_800_000, 43_200_000),
    *(86_400_000, 259_200_000, 864_000_000, 2_592_000_000),
    *(8_640_000_000, 31_536_000_000, 94_608_000_000),
)
_LABELS_MAX: Final = 4


class Scale(Protocol):
    """Maps values to places on an axis: 0 is the bottom, 1 is the top."""

    def place(self, value: float) -> float: ...

    def ticks(self) -> Sequence[tuple[float, str]]:
        """Return the places that are labelled, with their labels."""


class LinearScale:
    """Counts, from zero to a round number at or above the greatest value."""

    def __init__(self, values: Iterable[float | None], text: Callable[[float], str] = short_count_text) -> None:
        greatest = max((value for value in values if value is not None), default=0)
        self.step = _round_step(greatest / 3)
        self.top = max(self.step * math.ceil(greatest / self.step - 1e-9), self.step)
        self._text = text

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, value / self.top))

    def ticks(self) -> list[tuple[float, str]]:
        return [(number * self.step / self.top, self._text(number * self.step)) for number in range(self._steps + 1)]

    @property
    def _steps(self) -> int:
        return round(self.top / self.step)


def _round_step(least: float) -> float:
    """Return the smallest of … 0.5, 1, 2, 5, 10, 20 … that is at least `least`."""
    if least <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


class DurationScale:
    """Durations in ms on a logarithmic axis, between two of DURATIONS_MS. Shorter ones are placed at the bottom."""

    def __init__(self, values: Iterable[float | None]) -> None:
        known = [value for value in values if value is not None]
        low = bisect_right(DURATIONS_MS, max(1, min(known, default=1))) - 1
        high = min(bisect_left(DURATIONS_MS, max(known, default=1)), len(DURATIONS_MS) - 1)
        if high - low < 2:
            high = min(low + 2, len(DURATIONS_MS) - 1)
        self.edges = DURATIONS_MS[min(low, high - 2) : high + 1]

    def place(self, value: float) -> float:
        low, high = math.log(self.edges[0]), math.log(self.edges[-1])
        return min(1.0, max(0.0, (math.log(max(value, 1)) - low) / (high - low)))

    def ticks(self) -> list[tuple[float, str]]:
        every = -(-(len(self.edges) - 1) // _LABELS_MAX)
        return [(self.place(edge), duration_text(edge)) for edge in self.edges[::every]]


class DurationBands:
    """Durations in ms as bands of equal height between two of DURATIONS_MS, for a heatmap."""

    def __init__(self, values: Iterable[float]) -> None:
        found = list(values)
        low = bisect_left(DURATIONS_MS, min(found, default=1))
        high = min(bisect_left(DURATIONS_MS, max(found, default=1)), len(DURATIONS_MS) - 1)
        self._low = min(low, len(DURATIONS_MS) - 1)
        # The upper ends of the bands. The lowest band includes all shorter durations.
        self.ends = DURATIONS_MS[self._low : high + 1]

    def band(self, value: float) -> int:
        return min(max(bisect_left(DURATIONS_MS, value) - self._low, 0), len(self.ends) - 1)

    def place(self, value: float) -> float | None:
        """Return the place of a value between the bottom (0) and the top (1) of the bands. None: outside of them."""
        at = bisect_left(DURATIONS_MS, value)
        band = at - self._low
        if not 0 <= band < len(self.ends):
            return None
        # A band is logarithmic inside. The lowest one, which starts at 0 ms, is not divided.
        inside = 1.0
        if at:
            low, high = math.log(DURATIONS_MS[at - 1]), math.log(DURATIONS_MS[at])
            inside = (math.log(value) - low) / (high - low)
        return (band + inside) / len(self.ends)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the labels of the upper ends of the bands."""
        every = -(-len(self.ends) // 6)
        places = range(len(self.ends) - 1, -1, -every)
        return [((place + 1) / len(self.ends), duration_text(self.ends[place])) for place in places]
