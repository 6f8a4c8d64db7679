"""The simulation of `whatif` agrees with a simple model that checks every job in every millisecond."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.pipeline.simulation import Arrivals, WorkerPool, max_concurrent, percentile, waits

JOBS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.sampled_from("abc")), max_size=25)


def arrivals(jobs: list[tuple[int, int, str]]) -> Arrivals:
    jobs = sorted(jobs, key=lambda job: job[0])
    return Arrivals([job[0] for job in jobs], [job[1] for job in jobs], [job[2] for job in jobs])


def slow_waits(line: Arrivals, crew: WorkerPool) -> list[float]:
    """Return the wait times according to a model that checks all jobs in order of arrival in every millisecond."""
    started: dict[int, int] = {}
    now = crew.begin_ms
    while len(started) < len(line):
        progressed = True
        while progressed:  # A job with a run time of 0 frees its worker in the same millisecond.
            progressed = False
            busy = sum(at + line.run_ms[job] + crew.pause_ms > now for job, at in started.items())
            of_key = Counter(line.keys[job] for job, at in started.items() if at + line.run_ms[job] > now)
            for job in range(len(line)):
                if job in started or line.at_ms[job] > now:
                    continue
                if busy < crew.workers and (crew.per_key is None or of_key[line.keys[job]] < crew.per_key):
                    started[job] = now
                    progressed = True
                    break
        now += 1
    return [started[job] - line.at_ms[job] for job in range(len(line))]


CREWS = st.builds(WorkerPool, st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(0, 20), st.integers(0, 3))


# A job with a run time of 0 does not block the next job of its key, although another key has a waiting job.
@example([(0, 0, "a"), (0, 0, "a"), (0, 0, "a"), (0, 0, "a"), (0, 0, "b")], WorkerPool(2, 1, 0, 1))
@given(JOBS, CREWS)
def test_waits_equal_those_of_the_simple_model(jobs: list[tuple[int, int, str]], crew: WorkerPool) -> None:
    line = arrivals(jobs)
    assert waits(line, crew) == slow_waits(line, crew)


@given(JOBS, st.integers(1, 4))
def test_with_one_more_worker_no_job_waits_longer(jobs: list[tuple[int, int, str]], workers: int) -> None:
    line = arrivals(jobs)
    assert all(
        more <= fewer for more, fewer in zip(waits(line, WorkerPool(workers + 1)), waits(line, WorkerPool(workers)))
    )


def test_a_limit_per_key_delays_only_jobs_of_the_busy_key() -> None:
    line = Arrivals([0, 0, 0], [10, 10, 10], ["a", "a", "b"])
    assert waits(line, WorkerPool(2)) == [0, 0, 10]
    assert waits(line, WorkerPool(2, per_key=1)) == [0, 10, 0]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_most_at_a_time_counts_overlapping_spans() -> None:
    assert max_concurrent([]) == 0
    assert max_concurrent([(0, 10), (10, 20), (5, 15)]) == 2
