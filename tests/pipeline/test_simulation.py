"""What `whatif` plays through is what a queue would do: checked by a queue that looks at every job at every moment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.simulation import Arrivals, Crew, most_at_a_time, percentile, waits

JOBS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.sampled_from("abc")), max_size=25)


def arrivals(jobs: list[tuple[int, int, str]]) -> Arrivals:
    jobs = sorted(jobs, key=lambda job: job[0])
    return Arrivals([job[0] for job in jobs], [job[1] for job in jobs], [job[2] for job in jobs])


def slow_waits(line: Arrivals, crew: Crew) -> list[float]:
    """The same by looking at all jobs in every millisecond, in the order they came."""
    started: dict[int, int] = {}
    now = crew.begin_ms
    while len(started) < len(line):
        progressed = True
        while progressed:  # A job that takes no time leaves room in the same millisecond.
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


CREWS = st.builds(Crew, st.integers(1, 4), st.none() | st.integers(1, 4), st.integers(0, 20), st.integers(0, 3))


@given(JOBS, CREWS)
def test_waits_are_those_of_a_queue(jobs: list[tuple[int, int, str]], crew: Crew) -> None:
    line = arrivals(jobs)
    assert waits(line, crew) == slow_waits(line, crew)


@given(JOBS, st.integers(1, 4))
def test_a_worker_more_lets_nobody_wait_longer(jobs: list[tuple[int, int, str]], workers: int) -> None:
    line = arrivals(jobs)
    assert all(more <= fewer for more, fewer in zip(waits(line, Crew(workers + 1)), waits(line, Crew(workers))))


def test_one_of_a_key_at_a_time_holds_back_that_key_alone() -> None:
    line = Arrivals([0, 0, 0], [10, 10, 10], ["a", "a", "b"])
    assert waits(line, Crew(2)) == [0, 0, 10]
    assert waits(line, Crew(2, per_key=1)) == [0, 10, 0]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_seen(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_how_many_at_a_time() -> None:
    assert most_at_a_time([]) == 0
    assert most_at_a_time([(0, 10), (10, 20), (5, 15)]) == 2
