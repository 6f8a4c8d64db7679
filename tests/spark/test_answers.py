"""What silver and gold make of events: one lake of two turns, in which each tube is a case."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.lake import Lake
from penstock.pipeline.tables import JOBS, gold_table

from .made_up import BY_CREATION, HERE, NOON, THERE, History, take_in
from .test_pipeline import rows_of, total

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of made-up events."""
    history = History()
    first_turn(history)
    count = len(history.rows)
    second_turn(history)
    lake = Lake(tmp_path_factory.mktemp("answers"))
    take_in(spark, lake, history.rows[:count])
    take_in(spark, lake, history.rows[count:])
    return lake


def first_turn(history: History) -> None:
    tell = history.tell
    shared = {"tube": "copied", "order": BY_CREATION, "ttr_ms": 300_000}
    for job in (1, 2, 3, 4):
        tell(job, "put staged", "staged", **shared)
        tell(job, "published", "ready")
        if job != 3:
            tell(job, "moved in delayed", "delayed", 0, THERE, **shared, wake=NOON + timedelta(seconds=338))
    # Job 3 is wanted on the other node: it comes there, and stays here as a copy.
    tell(3, "switched to delayed", "delayed", 1, wake=NOON + timedelta(seconds=339))
    tell(3, "moved in", "ready", 1, THERE, **shared)
    tell(3, "taken", "taken", 2, THERE, deliveries=1)
    # Job 4 is queued again by the other node.
    tell(4, "delay passed", "ready", 340, THERE)
    tell(4, "switched to delayed", "delayed", 341, wake=NOON + timedelta(seconds=700))
    # Those who are out of their queues by hand are delayed.
    tell(10, "put", "ready", tube="by hand", order=BY_CREATION, ttr_ms=300_000)
    tell(10, "switched to delayed", "delayed", 1, wake=NOON + timedelta(seconds=301))
    tell(11, "put", "ready", tube="by hand")
    tell(11, "switched to delayed", "delayed", 1, wake=NOON + timedelta(seconds=60))

    # Jobs that the lake meets in the middle of their lives.
    tell(20, "touched", "ready", 1, tube="met", before="ready", before_position=50)
    tell(21, "doomed", "taken", 1, tube="met", before="taken", before_position=60)
    tell(20, "taken", "taken", 2, session=5)
    tell(21, "acked", "gone", 2, session=5)

    # A claim takes what a session had.
    tell(30, "put", "ready", tube="claimed")
    tell(30, "taken", "taken", 1, session=5, deliveries=1)
    tell(30, "released", "ready", 2)
    tell(30, "claimed", "taken", 3, deliveries=2)
    tell(31, "put", "ready", tube="claimed")
    tell(31, "claimed", "taken", 1, deliveries=1)

    # Jobs that fail, and are given up in the end.
    tell(40, "put", "ready", tube="failed")
    tell(40, "taken", "taken", 1, session=5)
    tell(40, "nacked", "ready", 2, reason="no answer")
    tell(40, "taken", "taken", 3, session=5)
    tell(40, "ttr passed", "ready", 4)
    tell(40, "exhausted", "buried", 4, reason="failed 2 times, at last: no answer")
    for job in (41, 42):
        tell(job, "put", "ready", tube="failed")
        tell(job, "taken", "taken", 1, session=5)
        tell(job, "nacked", "ready", 2, reason="no such street")


def second_turn(history: History) -> None:
    tell = history.tell
    tell(1, "taken", "taken", 342, deliveries=1)
    tell(1, "acked", "gone", 343, session=7)
    tell(1, "acked", "gone", 343, THERE)
    tell(3, "acked", "gone", 343, THERE, session=7)
    tell(3, "acked", "gone", 343)
    tell(4, "taken", "taken", 344, THERE, deliveries=1)
    tell(4, "acked", "gone", 345, session=7)
    tell(4, "acked", "gone", 345, THERE)

    tell(30, "acked", "gone", 40)
    tell(31, "claim ended", "ready", 60)
    tell(31, "claimed", "taken", 61, deliveries=2)
    tell(31, "undelivered", "ready", 62, deliveries=1)
    tell(31, "taken", "taken", 63, deliveries=2, session=5)
    tell(31, "snatched", "ready", 64)

    # The turn has ended between a failure and what follows from it.
    tell(41, "moved out", "gone", 2)
    tell(41, "moved in", "ready", 2, tube="morgue")
    tell(42, "exhausted", "buried", 2, reason="failed 1 time, at last: no such street")


def last_level(lake: Lake, tube: str) -> dict[str, int]:
    """How many jobs of a tube are in which state at the end, where there are any."""
    rows = [row for row in rows_of(lake, gold_table("backlog")) if row["tube"] == tube]
    last = max(rows, key=lambda row: row["minute"])
    return {state: last[state] for state in ("ready", "taken", "delayed", "buried", "kept") if last[state]}


def outcomes(lake: Lake, tube: str) -> Counter[tuple[str, str]]:
    """What became of the jobs of a tube, on which node."""
    return Counter((row["node"], row["outcome"]) for row in rows_of(lake, JOBS) if row["tube"] == tube)


def sums(lake: Lake, name: str, tube: str) -> dict[str, Any]:
    """A tally of a tube, where it is not 0."""
    return {measure: count for measure, count in total(lake, name, tube=tube)[()].items() if count}


def test_a_job_of_a_cluster_counts_once_however_many_nodes_have_copies(lake: Lake) -> None:
    assert sums(lake, "rates", "copied") == {"puts": 4, "takes": 3, "acks": 3}
    assert last_level(lake, "copied") == {"ready": 1}
    found = {(HERE, "acked"): 1, (THERE, "acked"): 2, (HERE, "open"): 1, (HERE, "copy"): 2, (THERE, "copy"): 2}
    assert outcomes(lake, "copied") == found
    assert last_level(lake, "by hand") == {"delayed": 2}


def test_a_job_that_the_lake_meets_is_counted_in_the_state_it_was_found_in(lake: Lake) -> None:
    assert last_level(lake, "met") == {"taken": 1}


def test_what_a_claim_did_is_no_work_of_the_session_before_it(lake: Lake) -> None:
    workers = total(lake, "workers", "session")
    assert set(workers) == {(5,)}
    claimed = next(row for row in rows_of(lake, JOBS) if row["job"] == 30)
    assert (claimed["session"], claimed["run_ms"], claimed["outcome"]) == (None, 37_000, "acked")
    of_others = {"met": 1, "failed": 4, "claimed": 2}
    assert workers[5,]["taken"] == sum(of_others.values())
    assert workers[5,]["acked"] == 0  # The one it took it gave back; the other it had before the lake begins.


def test_why_a_job_came_back_is_told_of_claims_and_of_deliveries_that_failed(lake: Lake) -> None:
    why = {"claim_ended": 1, "undelivered": 1, "snatched": 1, "released": 1}
    assert sums(lake, "redeliveries", "claimed") == {"takes": 5, "redeliveries": 3, **why}


def test_what_is_given_up_stands_beside_the_failures_it_was_given_up_for(lake: Lake) -> None:
    found = {reason: dict(counts) for (reason,), counts in total(lake, "failures", "reason", tube="failed").items()}
    assert found == {
        "no answer": {"count": 1, "dead_letters": 0},
        "ttr passed": {"count": 1, "dead_letters": 1},
        "no such street": {"count": 2, "dead_letters": 2},
    }
