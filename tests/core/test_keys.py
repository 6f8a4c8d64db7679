"""Keys: the number of taken jobs per key is limited, and a key is removed with its last job."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import policy as p
from penstock.core.job import Job
from penstock.core.keys import Keys
from penstock.core.policy import STUBE, UTUBE

from .engine_harness import EngineHarness

# A script: a key, and the operation on one of its jobs.
SCRIPTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["put", "put", "take", "give back", "remove", "go"])), max_size=120
)


@given(limit=st.integers(0, 3), script=SCRIPTS)
def test_the_next_job_is_the_first_of_all_keys_below_their_limit(limit: int, script: list[tuple[int, str]]) -> None:
    keys = Keys(limit)
    ready: dict[int, list[Job]] = {key: [] for key in range(4)}
    taken: dict[int, list[Job]] = {key: [] for key in range(4)}
    for number, (key, what) in enumerate(script):
        if what == "put":
            job = Job(number, 0, b"", 0, 0)
            job.priority = number * 7 % 3
            keys.join(job, b"%d" % key)
            keys.push(job)
            ready[key].append(job)
        elif what == "take" and ready[key] and (limit == 0 or len(taken[key]) < limit):
            job = min(ready[key], key=lambda job: (job.priority, job.order))
            assert keys.first_of(b"%d" % key) is job
            keys.take(job)
            ready[key].remove(job)
            taken[key].append(job)
        elif what == "give back" and taken[key]:
            job = taken[key].pop()
            keys.give_back(job)
            keys.push(job)
            ready[key].append(job)
        elif what == "remove" and ready[key]:
            job = ready[key].pop(number % len(ready[key]))
            keys.remove(job)
            keys.leave(job)
        elif what == "go" and taken[key]:
            job = taken[key].pop(0)
            keys.give_back(job)
            keys.leave(job)
        with_room = [key for key in ready if limit == 0 or len(taken[key]) < limit]
        could = [job for key in with_room for job in ready[key]]
        assert keys.first() is min(could, key=lambda job: (job.priority, job.order), default=None)
        assert len(keys) == sum(1 for key in ready if ready[key] or taken[key])
        assert keys.ready == sum(map(len, ready.values()))


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_jobs_of_one_key_are_taken_than_the_limit(desk: EngineHarness, limit: int) -> None:
    tube = desk.tube(dataclasses.replace(UTUBE, key_limit=limit))
    jobs = desk.puts(tube, 5, key=b"a")
    assert [desk.take(tube) for _ in range(5)] == [*jobs[:limit], *[None] * (5 - limit)]
    assert desk.do("ack", jobs[0]) == "OK"
    assert desk.take(tube) == jobs[limit]
    assert desk.take(tube) is None


def test_a_busy_key_does_not_block_another(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    first, _, other = desk.put(tube, key=b"a"), desk.put(tube, key=b"a"), desk.put(tube, key=b"b")
    assert [desk.take(tube), desk.take(tube), desk.take(tube)] == [first, other, None]


@pytest.mark.parametrize("how", ["ack", "bury", "delete", "release", "nack", "disconnect"])
def test_each_way_to_end_a_delivery_frees_its_key(desk: EngineHarness, how: str) -> None:
    tube, other = desk.tube(UTUBE), desk.connect()
    first, second = desk.puts(tube, 2, key=b"a")
    assert desk.take(tube, by=other) == first and desk.take(tube) is None
    if how == "disconnect":
        desk.engine.disconnect(other, desk.clock.ms)
    else:
        assert desk.do(how, first, by=other) == "OK"
    comes_back = how in ("release", "nack", "disconnect")
    assert desk.take(tube) == (first if comes_back else second)
    assert desk.take(tube) is None


def test_jobs_that_are_put_without_a_key_share_one_key(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    first, second = desk.put(tube), desk.put(tube, key=b"")
    assert desk.take(tube) == first and desk.take(tube) is None
    desk.do("ack", first)
    assert desk.take(tube) == second


def test_a_take_by_key_gets_that_key_only(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    _, b = desk.put(tube, key=b"a"), desk.put(tube, key=b"b")
    assert desk.take(tube, key=b"b") == b
    assert desk.take(tube, key=b"b") is None
    assert desk.take(tube, key=b"nobody's") is None


def test_in_a_named_tube_a_take_without_a_key_gets_jobs_without_a_key(desk: EngineHarness) -> None:
    tube = desk.tube(STUBE)
    named, nameless = desk.put(tube, key=b"a"), desk.put(tube)
    assert desk.take(tube) == nameless and desk.take(tube) is None
    assert desk.take(tube, key=b"a") == named


def test_in_a_named_tube_the_number_of_taken_jobs_per_key_is_not_limited(desk: EngineHarness) -> None:
    tube = desk.tube(STUBE)
    jobs = desk.puts(tube, 3, key=b"a")
    assert [desk.take(tube, key=b"a") for _ in range(4)] == [*jobs, None]


def test_in_a_tagged_tube_a_take_may_name_a_key_or_take_any(desk: EngineHarness) -> None:
    tube = desk.tube(p.TubePolicy(type="tagged", keys=p.KEYS_TAGGED))
    a, b, c = desk.put(tube, key=b"a"), desk.put(tube, key=b"b"), desk.put(tube, key=b"b")
    assert desk.take(tube, key=b"b") == b
    assert desk.take(tube) == a
    assert desk.take(tube) == c


def test_fair_keys_are_served_in_turn(desk: EngineHarness) -> None:
    """Each key is served once before any is served twice, regardless of its number of jobs."""
    tube = desk.tube(p.TubePolicy(type="fair", keys=p.KEYS_TAGGED, key_order=p.FAIR))
    a = desk.puts(tube, 4, key=b"a")
    b = desk.puts(tube, 2, key=b"b")
    c = desk.puts(tube, 1, key=b"c")
    assert [desk.take(tube) for _ in range(7)] == [a[0], b[0], c[0], a[1], b[1], a[2], a[3]]


def test_a_fair_key_that_opens_again_gets_the_last_turn(desk: EngineHarness) -> None:
    tube = desk.tube(p.TubePolicy(type="fair", keys=p.KEYS_LIMITED, key_order=p.FAIR))
    a, b = desk.puts(tube, 2, key=b"a"), desk.puts(tube, 2, key=b"b")
    assert desk.take(tube) == a[0]
    desk.do("ack", a[0])
    assert [desk.take(tube), desk.take(tube)] == [b[0], a[1]]


def test_raising_the_limit_of_a_running_tube_lets_more_be_taken(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    jobs = desk.puts(tube, 3, key=b"a")
    wait = desk.wait(tube, count=5)
    assert desk.served(wait) == [jobs[0]]
    desk.engine.alter(tube, dataclasses.replace(UTUBE, key_limit=2), desk.clock.ms)
    assert [desk.take(tube), desk.take(tube)] == [jobs[1], None]


def test_a_key_is_removed_with_its_last_job(desk: EngineHarness) -> None:
    tube = desk.tube(UTUBE)
    for n in range(50):
        job = desk.put(tube, key=b"key %d" % n)
        assert desk.take(tube) == job
        assert desk.do("ack", job) == "OK"
    assert tube.keys is not None and len(tube.keys) == 0 and len(tube.keys.slots) == 1
    waits = [desk.wait(tube, key=b"key %d" % n) for n in range(50)]
    for wait in waits:
        desk.engine.cancel(wait)
    assert not tube.key_lines
