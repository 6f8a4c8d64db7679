"""Durations as people write them: seconds, or a number with a unit. The only module that defines the units.

30    1.5    250ms    30s    5m    2h    1d    1w    forever    -1 (the same as forever)
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.limits import DURATION_MS_MAX, NEVER

UNITS_MS: Final[dict[bytes, int]] = {
    b"ms": 1,
    b"": 1_000,
    b"s": 1_000,
    b"m": 60_000,
    b"h": 3_600_000,
    b"d": 86_400_000,
    b"w": 604_800_000,
}

# Returned for text that is not a duration, or is longer than DURATION_MS_MAX.
NO_DURATION: Final = -2

_DIGITS_MAX: Final = 15


def read_duration(text: bytes) -> int:
    """Return a duration in milliseconds, NEVER for no limit, or NO_DURATION if the text is not a duration.

    A fraction of a millisecond is rounded up.
    """
    # Fast path without temporary objects, because puts contain durations: digits, with "ms" or no unit.
    length: i64 = len(text)
    whole: i64 = 0
    at: i64 = 0
    while at < length and at < _DIGITS_MAX and 48 <= text[at] <= 57:
        whole = whole * 10 + text[at] - 48
        at += 1
    if at > 0 and at == length:
        return _within(whole * 1_000)
    if at > 0 and text[at:] == b"ms":
        return _within(whole)
    word = text.lower()
    if word == b"forever" or word == b"-1":
        return NEVER
    number = word.rstrip(b"dhmsw")
    unit = UNITS_MS.get(word[len(number) :])
    if unit is None:
        return NO_DURATION
    if len(number) < len(word):
        number = number.removesuffix(b" ")
    digits, point, fraction = number.partition(b".")
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return NO_DURATION
    ms = int(digits) * unit
    if point:
        if not fraction.isdigit() or len(fraction) > _DIGITS_MAX:
            return NO_DURATION
        # Rounded up: a delay must never end early.
        ms += -(-int(fraction) * unit // int(10 ** len(fraction)))
    return _within(ms)


def write_duration(ms: int) -> str:
    """Return a duration as text: a whole number with the largest unit that needs no fraction, for example 90m."""
    if ms == NEVER:
        return "forever"
    for unit in (b"w", b"d", b"h", b"m", b"s"):
        if ms > 0 and ms % UNITS_MS[unit] == 0:
            return f"{ms // UNITS_MS[unit]}{unit.decode()}"
    return f"{ms}ms" if ms else "0"


def _within(ms: int) -> int:
    return ms if ms <= DURATION_MS_MAX else NO_DURATION
