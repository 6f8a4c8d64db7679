"""Durations as text for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration_text(ms: int) -> str:
    """Return a duration as `250 ms`, `3.2 s`, `41 s`, `12 min 5 s` or `2 d 4 h`: at most two units, no zeros."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms // 100 / 10:g} s"
    seconds = ms // 1_000
    at = next(at for at, (_, unit) in enumerate(_UNITS) if seconds >= unit)
    parts = []
    for name, unit in _UNITS[at : at + 2]:
        if count := seconds // unit:
            parts.append(f"{count} {name}")
        seconds %= unit
    return " ".join(parts)
