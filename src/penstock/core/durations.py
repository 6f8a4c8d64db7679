"""A time as people write it: seconds, or a number with its unit. The one place that knows the units.

30    1.5    250ms    30s    5m    2h    1d    1w    forever    -1, which also means for ever
"""

from __future__ import annotations

from typing import Final

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

# What is no time, or a longer one than there can be.
NO_DURATION: Final = -2

_DIGITS_MAX: Final = 15


def read_duration(text: bytes) -> int:
    """So many milliseconds, NEVER, or NO_DURATION. A fraction of a millisecond counts as a whole one."""
    if text.isdigit() and len(text) <= _DIGITS_MAX:
        return _within(int(text) * 1_000)
    if text.endswith(b"ms") and len(text) <= _DIGITS_MAX and text[:-2].isdigit():
        # As our own clients say it.
        return _within(int(text[:-2]))
    word = text.lower()
    if word == b"forever" or word == b"-1":
        return NEVER
    number = word.rstrip(b"dhmsw")
    unit = UNITS_MS.get(word[len(number) :])
    if unit is None:
        return NO_DURATION
    if len(number) < len(word):
        number = number.removesuffix(b" ")
    whole, point, fraction = number.partition(b".")
    if not whole.isdigit() or len(whole) > _DIGITS_MAX:
        return NO_DURATION
    ms = int(whole) * unit
    if point:
        if not fraction.isdigit() or len(fraction) > _DIGITS_MAX:
            return NO_DURATION
        # Rounded up: a delay must never end early.
        ms += -(-int(fraction) * unit // int(10 ** len(fraction)))
    return _within(ms)


def _within(ms: int) -> int:
    return ms if ms <= DURATION_MS_MAX else NO_DURATION
