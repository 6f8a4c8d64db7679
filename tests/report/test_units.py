"""Numbers as text for people."""

from __future__ import annotations

import pytest

from penstock.report.units import bytes_text, count_text, share_text, short_count_text


@pytest.mark.parametrize(
    ("count", "text", "short"),
    [
        (0, "0", "0"),
        (0.25, "0.25", "0.25"),
        (7.5, "7.5", "7.5"),
        (950, "950", "950"),
        (999.9, "1,000", "1,000"),
        (1_234, "1,234", "1.2k"),
        (9_960, "9,960", "10k"),
        (35_400, "35,400", "35k"),
        (999_700, "999,700", "1M"),
        (4_000_000, "4,000,000", "4M"),
    ],
)
def test_counts(count: float, text: str, short: str) -> None:
    assert (count_text(count), short_count_text(count)) == (text, short)


@pytest.mark.parametrize(
    ("count", "text"), [(812, "812 bytes"), (4_210, "4.2 KB"), (130_000_000, "130 MB"), (999_999, "1.0 MB")]
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0, "0 %"), (1, "100 %"), (0.042, "4.2 %"), (0.0042, "0.42 %"), (0.5, "50 %"), (13.4, "1,340 %")),
        *((0.00001, "< 0.01 %"), (0.99999, "> 99.99 %"), (0.996, "99.6 %"), (0.05, "5 %")),
    ],
)
def test_shares(share: float, text: str) -> None:
    assert share_text(share) == text
