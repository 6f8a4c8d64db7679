"""Durations as people write them are read exactly and never rounded down. Other text is rejected."""

from __future__ import annotations

import pytest

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.limits import DURATION_MS_MAX, NEVER

GOOD = {
    b"0": 0,
    b"30": 30_000,
    b"1.5": 1_500,
    b"0.07": 70,
    b"250ms": 250,
    b"30s": 30_000,
    b"5m": 300_000,
    b"2h": 7_200_000,
    b"1d": 86_400_000,
    b"1W": 604_800_000,
    b"1.5H": 5_400_000,
    b"10 s": 10_000,
    b"0.1ms": 1,
    b"0.0001": 1,
    b"1.000001s": 1_001,
    b"-1": NEVER,
    b"forever": NEVER,
    b"FOREVER": NEVER,
    b"%d" % (DURATION_MS_MAX // 1000): DURATION_MS_MAX,
    b"%dms" % DURATION_MS_MAX: DURATION_MS_MAX,
}
BAD = [
    *[
        b"",
        b" ",
        b"s",
        b"ms",
        b"-2",
        b"-1s",
        b"+1",
        b"1_0",
        b" 1",
        b"1 ",
        b"1x",
        b"1sm",
        b"1 m s",
        b"1..5",
        b"1.",
        b".5",
    ],
    *[b"1e3", b"0x10", b"nan", b"inf", b"never", b"1\xd9\xa3", b"\xd9\xa3", b"\0", b"1s\n"],
    *[b"9" * 16, b"9" * 5_000, b"1." + b"9" * 5_000, b"%dms" % (DURATION_MS_MAX + 1), b"999999999d"],
]


@pytest.mark.parametrize("text", GOOD)
def test_a_duration_is_read_exactly(text: bytes) -> None:
    assert read_duration(text) == GOOD[text]


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:20]))
def test_text_that_is_not_a_duration_is_rejected(text: bytes) -> None:
    assert read_duration(text) == NO_DURATION
