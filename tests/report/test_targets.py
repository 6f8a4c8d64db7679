"""Targets are parsed strictly, and a budget is the allowed share of slow jobs."""

from __future__ import annotations

import pytest

from penstock.report.targets import Target, budget_of, parse_target

from .sample import bucket_of


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("p95=2s", Target("95", 2_000)),
        ("p99.9=1m", Target("99.9", 60_000)),
        ("p50=250ms", Target("50", 250)),
        ("p99.50=1", Target("99.5", 1_000)),
    ],
)
def test_a_target_is_a_percentile_and_a_duration(text: str, target: Target) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", "p95", "p95=", "95=2s", "p0=2s", "p100=2s", "p95=soon", "p95=forever", "p٩٥=2s", "p95.=1s"]
)
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a target; write a percentile .* such as p95=2s"):
        parse_target(text)


def test_a_budget_is_used_by_slow_jobs() -> None:
    target = parse_target("p95=2s")
    counts = {bucket_of(10): 960, bucket_of(2_500): 40}
    budget = budget_of(target, counts)
    assert (budget.total, budget.slower, budget.share) == (1_000, 40, 0.04)
    assert budget.used == 0.8 and budget.met
    over = budget_of(target, {bucket_of(10): 90, bucket_of(2_500): 10})
    assert over.used == 2 and not over.met
    assert budget_of(target, {}).used == 0 and str(target) == "p95 ≤ 2 s"
