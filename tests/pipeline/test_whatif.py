"""`whatif` refuses tubes that its model does not fit, and reports its error on days that were held out."""

from __future__ import annotations

import datetime
import json
import random
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.pipeline import whatif
from penstock.pipeline.model_fit import BULK_SHARE_MAX, bulk_share, misfit_of
from penstock.pipeline.simulation import Arrivals, WorkerPool, waits
from penstock.pipeline.whatif import History, held_out_days, history_of

DAY = datetime.datetime(2026, 11, 16, 9, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        *((name, pa.timestamp("us", "UTC")) for name in ("ready_at", "first_take_at", "finished_at")),
        *((name, pa.int64()) for name in ("wait_ms", "run_ms", "session")),
        *((name, pa.string()) for name in ("node", "key")),
    ]
)


def moment(day: int, ms: float) -> datetime.datetime:
    return DAY + datetime.timedelta(days=day, milliseconds=ms)


def job(day: int, ready: float, wait: float, run: float, session: int) -> dict[str, Any]:
    ends = {"first_take_at": moment(day, ready + wait), "finished_at": moment(day, ready + wait + run)}
    numbers = {"wait_ms": round(wait), "run_ms": round(run), "session": session}
    return {"ready_at": moment(day, ready), **ends, **numbers, "node": "n", "key": None}


def history(jobs: list[dict[str, Any]], tube: str = "emails") -> History:
    return history_of(tube, pa.Table.from_pylist(jobs, SCHEMA))


def days_of(*workers: int) -> History:
    """Return a history with a day for each number of workers. Each worker takes one job at a time."""
    chance = random.Random(5)
    jobs = []
    for day, count in enumerate(workers):
        came = sorted(chance.randrange(60_000) for _ in range(1_200))
        runs = [chance.randrange(100, 250) for _ in came]
        waited = waits(Arrivals(came, runs, [None] * len(came)), WorkerPool(count))
        free = [0.0] * count
        for ready, wait, run in zip(came, waited, runs):
            taker = free.index(min(free))
            free[taker] = ready + wait + run
            jobs.append(job(day, ready, wait, run, session=taker))
    return history(jobs)


def bulk() -> History:
    """Return a history of a consumer that takes 100 jobs in a call and works on one after the other, 50 ms each."""
    jobs = [
        job(0, ready=batch * 5_000, wait=2_000, run=50 * (number + 1), session=1)
        for batch in range(5)
        for number in range(100)
    ]
    return history(jobs, "bulk")


def test_a_consumer_that_takes_in_bulk_is_refused() -> None:
    found = bulk()
    assert found.misfit == (
        "no estimate for bulk: 100% of its jobs were taken together with others in one call, and the model has workers "
        "that hold one job at a time"
    )


def test_workers_that_take_one_job_at_a_time_are_accepted() -> None:
    assert days_of(4).misfit == ""


@pytest.mark.parametrize(
    ("takers", "times", "share"),
    [
        ([], [], 0),
        (["a", "a", "a"], [1, 2, 3], 0),
        (["a", "b"], [1, 1], 0),
        (["a", "a", "a", "b"], [1, 1, 2, 1], 0.5),
    ],
)
def test_jobs_that_one_taker_took_at_the_same_time_are_counted(
    takers: list[str], times: list[int], share: float
) -> None:
    assert bulk_share(takers, times) == share
    assert (misfit_of("x", share) == "") == (share <= BULK_SHARE_MAX)


def test_the_error_on_held_out_days_is_small_if_the_workers_stay_the_same() -> None:
    found = held_out_days(days_of(4, 4, 4, 4))
    assert [each.day for each in found] == ["2026-11-17", "2026-11-18", "2026-11-19"]
    for each in found:
        assert each.workers == 4 and each.jobs == 1_200 and each.wait_p95_ms > 0
        assert each.error_p95 is not None and abs(each.error_p95) < 0.05


def test_the_error_is_large_if_a_day_had_other_workers() -> None:
    *_, last = held_out_days(days_of(5, 5, 3))
    assert last.workers == 5 and last.error_p95 is not None and last.error_p95 < -0.5


def test_one_day_cannot_be_held_out() -> None:
    assert held_out_days(days_of(4)) == []


def test_the_command_skips_refused_tubes_and_shows_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [bulk(), days_of(4, 4)]
    monkeypatch.setattr(whatif, "histories", lambda lake, tube, since, until: found)
    command = ["pipeline", "whatif", "--lake", "x", "--workers", "4"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "no estimate for bulk: 100% of its jobs" in shown.stderr and "bulk" not in shown.stdout
    assert "Error on held-out days, with the workers of the other days:\n" in shown.stdout
    lines = [json.loads(line) for line in CliRunner().invoke(app, [*command, "--json"]).stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["measured", "estimate", "held out", "held out"]
    assert abs(lines[-1]["error_p95"]) < 0.05

    found.pop()
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1 and refused.stdout == "" and refused.stderr.count("\n") == 1
