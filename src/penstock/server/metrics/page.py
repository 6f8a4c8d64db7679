"""A page of metrics in Prometheus' text format, version 0.0.4.

All samples of a metric must follow each other, but the metrics of a tube are collected together. So the page keeps the
lines of each metric in a list of its own until the page is complete. The format is written here, because
prometheus_client needs several times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.core.statistics.histogram import LIMITS_COUNT, Histogram
from penstock.server.metrics.families import FAMILIES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# The units of histograms, per second.
MILLISECONDS: Final = 1_000
MICROSECONDS: Final = 1_000_000

# This many lines are encoded at a time.
_LINES: Final = 2_000

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def escaped(value: str) -> str:
    """Return a label value with the escapes of the text format."""
    return value.translate(_ESCAPES)


class Limits:
    """The `le` labels of a histogram. `step` 2 leaves out every second limit, which halves the number of series."""

    def __init__(self, unit: int, step: int) -> None:
        powers = range(0, LIMITS_COUNT, step)
        self.unit = unit
        self.powers = [*powers, LIMITS_COUNT]
        self.texts = [*(repr((1 << power) / unit) for power in powers), "+Inf"]


class Page:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {family.name: [] for family in FAMILIES}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """Add a sample. `labels` is the text within the braces, for example `tube="mail"`."""
        self._lines[name].append(f"{name}{{{labels}}} {value!r}\n" if labels else f"{name} {value!r}\n")

    def add_histogram(self, name: str, histogram: Histogram, limits: Limits, labels: str = "") -> None:
        """Add the samples of a histogram."""
        lines = self._lines[name]
        first = f"{name}_bucket{{{labels},le=" if labels else f"{name}_bucket{{le="
        counts = histogram.counts()
        count = passed = 0
        for power, text in zip(limits.powers, limits.texts, strict=True):
            while passed <= power:
                count += counts[passed]
                passed += 1
            lines.append(f'{first}"{text}"}} {count}\n')
        braces = f"{{{labels}}}" if labels else ""
        lines.append(f"{name}_sum{braces} {histogram.total / limits.unit!r}\n{name}_count{braces} {count}\n")

    def chunks(self) -> Iterator[bytes]:
        """Return the page in parts, each of which takes few milliseconds to make."""
        for family in FAMILIES:
            lines = self._lines[family.name]
            if not lines:
                continue
            head = f"# HELP {family.name} {_escaped_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
            yield head.encode()
            for start in range(0, len(lines), _LINES):
                yield "".join(lines[start : start + _LINES]).encode("utf-8", "backslashreplace")


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the text of labels within the braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
