"""Reasons of failures that differ only in the number of attempts or in ids have one cause."""

from __future__ import annotations

import pytest

from penstock.search.causes import NO_REASON, cause_of


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("404", "404"),
        ("failed 3 times, at last: 404", "404"),
        ("failed 3 times, at last: failed 2 times: 404", "404"),
        ("Gave up after 5 attempts: timed out", "timed out"),
        ("given up after 3 deliveries", "given up after 3 deliveries"),
        ("failed 3 times", "failed 3 times"),
        ("503", "503"),
        ("  timed\n out ", "timed out"),
        ("order 1048576 not found", "order … not found"),
        ("no user 2f1e7a3c-95cf-4a53-8d7f-0c2b3f0a1d22", "no user …"),
        ("digest 0xdeadbeef01 differs from deadbee1", "digest … differs from …"),
        ("defaced facade", "defaced facade"),
        ("port 8080 at 10.0.0.7 refused", "port 8080 at 10.0.0.7 refused"),
        ("", NO_REASON),
        (None, NO_REASON),
    ],
)
def test_the_cause_of_a_reason(reason: str | None, cause: str) -> None:
    assert cause_of(reason) == cause


def test_a_long_reason_is_handled_in_linear_time() -> None:
    assert cause_of("failed 1 times, " * 10_000 + "x") == "x"
