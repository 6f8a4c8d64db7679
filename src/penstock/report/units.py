"""Numbers as text for people: durations, counts, bytes, shares and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_THOUSANDS: Final = ("", "k", "M", "G", "T")
_BYTES: Final = ("bytes", "KB", "MB", "GB", "TB")


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


def count_text(count: float) -> str:
    """Return a number with separators: `0.25`, `7.5`, `1,234`. At most three digits of a fraction are shown."""
    if isinstance(count, int) or count == int(count):
        return f"{int(count):,}"
    return f"{count:,.0f}" if abs(count) >= 100 else f"{count:.3g}"


def short_count_text(count: float) -> str:
    """Return a number for a place with little room: `950`, `1.2k`, `35k`, `4M`."""
    value, power = _scaled(count)
    if not power:
        return count_text(round(count) if abs(count) >= 10 else round(count, 2))
    return f"{_two_digits(value).removesuffix('.0')}{_THOUSANDS[power]}"


def bytes_text(count: int) -> str:
    """Return a number of bytes as `812 bytes`, `4.2 KB` or `130 MB`. A KB has 1,000 bytes."""
    value, power = _scaled(count)
    return f"{_two_digits(value) if power else count} {_BYTES[power]}"


def _scaled(count: float) -> tuple[float, int]:
    """Return a number divided by the greatest power of 1,000 that fits, and the exponent."""
    power = 0
    # From 999.5 on, a number without decimals would be shown as 1,000.
    while abs(count) >= (999.5 if power else 1_000) and power < len(_THOUSANDS) - 1:
        count /= 1_000
        power += 1
    return count, power


def _two_digits(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


def share_text(share: float) -> str:
    """Return a share as percent: `4.2 %`. A share above 0 is not shown as 0 %, nor one below 1 as 100 %."""
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.9999 < share < 1:
        return "> 99.99 %"
    percent = share * 100
    digits = 2 if percent < 1 or 99 < percent < 100 else 1 if percent < 10 or 90 < percent < 100 else 0
    text = f"{percent:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def moment_text(moment: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
