"""The rates of incoming and finished jobs per tube."""

from __future__ import annotations

import penstock
from penstock.cli.commands.stats import add_rates


def test_published_jobs_count_as_incoming() -> None:
    with penstock.open(":memory:") as queue:
        queue.tube("a")
        before = add_rates(queue, queue.overview(), {}, 1)
        with queue.stage("s") as stage:
            stage.put_many("a", [1, 2])
            stage.put("a", 3, delay=60)
            stage.publish()
        rows = queue.overview()
        add_rates(queue, rows, before, 1)
        assert rows[0]["in_rate"] == 3


def test_a_tube_that_is_dropped_between_two_refreshes_is_ignored() -> None:
    with penstock.open(":memory:") as queue:
        queue.tube("a")
        queue.tube("b").put(1)
        rows = queue.overview()
        queue.tube("a").drop()
        assert add_rates(queue, rows, {"a": (0, 0), "b": (0, 0)}, 1) == {"b": (1, 0)}
        assert "in_rate" not in rows[0] and rows[1]["in_rate"] == 1
