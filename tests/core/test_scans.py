"""Listings find the first or last jobs of a tube in slices. Scans in shards return every job once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import states as s
from penstock.core.commands.scans import Listing
from penstock.core.job import Draft
from penstock.core.limits import FIRED_PER_TURN_MAX
from penstock.core.policy import FIFO, FIFOTTL, UTUBETTL, TubePolicy
from penstock.testing.assertions import rank

from .engine_harness import EngineHarness

MANY = 2 * FIRED_PER_TURN_MAX + 100


def steps_of(listing: Listing) -> int:
    steps = 1
    while not listing.step(250):
        steps += 1
    return steps


@pytest.mark.parametrize("policy", [FIFOTTL, UTUBETTL], ids=lambda policy: policy.type)
@pytest.mark.parametrize("state", [s.READY, s.BURIED])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 10, MANY + 1])
def test_a_listing_is_in_the_order_of_service(
    desk: EngineHarness, policy: TubePolicy, state: int, last: bool, count: int
) -> None:
    tube, now = desk.tube(policy), desk.clock.ms
    for number in range(MANY):
        key = b"%d" % (number % 7) if policy is UTUBETTL else None
        job = desk.engine.put(tube, Draft(b"", priority=number * 7919 % 1_000, key=key), now)
        if state == s.BURIED:
            desk.engine.switch(job, s.BURIED, now)
    desk.engine.put(desk.tube(FIFOTTL, b"other"), Draft(b""), now)
    listing = Listing(desk.engine, tube, state, count, 1_000, last)
    steps = steps_of(listing)
    assert listing.jobs() == sorted(tube.jobs_in(state), key=rank, reverse=last)[:count]
    is_known = state == s.READY and policy is FIFOTTL and not last and count <= 1_000
    assert (steps == 1) == (is_known or count == 0) and (steps == 1 or steps > MANY // 250)


def test_a_listing_leaves_out_jobs_that_changed_in_the_meantime(desk: EngineHarness) -> None:
    tube, now = desk.tube(UTUBETTL), desk.clock.ms
    jobs = desk.engine.put_many(tube, [Draft(b"", key=b"%d" % number) for number in range(MANY)], now)
    listing = Listing(desk.engine, tube, s.READY, 3, 1_000)
    assert not listing.step(250)
    desk.engine.take(desk.me.session, tube, now)
    desk.engine.delete(jobs[1], now)
    steps_of(listing)
    assert listing.jobs() == [jobs[2]]


def test_a_listing_of_a_dropped_tube_shows_no_job_of_the_tube_in_its_slot(desk: EngineHarness) -> None:
    tube, now = desk.tube(UTUBETTL), desk.clock.ms
    moved = desk.engine.put_many(tube, [Draft(b"", key=b"%d" % number) for number in range(MANY)], now)[0]
    listings = [Listing(desk.engine, tube, s.READY, MANY, 1_000) for _ in range(2)]
    for listing in listings:
        assert not listing.step(250)
    steps_of(listings[0])
    desk.engine.move(desk.me.session, moved, desk.tube(FIFOTTL, b"refuge"), now)
    desk.engine.drop(tube, now)
    other = desk.tube(UTUBETTL, b"other")
    assert other.slot == tube.slot
    desk.engine.put_many(other, [Draft(b"secret", key=b"k")] * MANY, now)
    desk.engine.move(desk.me.session, moved, other, now)
    steps_of(listings[1])
    assert listings[0].jobs() == [] == listings[1].jobs()


@given(
    shards=st.integers(1, 4),
    before=st.lists(st.sampled_from([b"one", b"two"]), min_size=1, max_size=60),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["put", "delete", "take", "read"]), st.integers(0, 10**6))
    ),
)
def test_a_scan_in_shards_returns_every_job_once_while_the_queue_changes(
    shards: int, before: list[bytes], steps: list[tuple[int, str, int]]
) -> None:
    """Model: the jobs of the tube that exist during the whole scan are returned exactly once, and no job twice."""
    desk = EngineHarness()
    tubes = {name: desk.tube(FIFO, name) for name in (b"one", b"two")}
    for name in before:
        desk.put(tubes[name])
        # Like many jobs that came and went, so that the jobs are in many blocks.
        desk.engine.next_id += 1_500
    there = {job.id for job in desk.engine.jobs.scan(0, 1_000) if job.tube == tubes[b"one"].slot}
    found: list[int] = []
    cursors: list[int | None] = [0] * shards

    def read(shard: int) -> None:
        cursor = cursors[shard]
        if cursor is not None:
            jobs, after = desk.engine.scan(cursor, 2, tubes[b"one"], -1, shard, shards)
            found.extend(job.id for job in jobs)
            cursors[shard] = after or None

    for shard, action, chosen in steps:
        if action == "put":
            desk.put(tubes[b"one"])
        elif action == "take":
            desk.take(tubes[b"one"])
        elif action == "read":
            read(shard % shards)
        elif there:
            gone = sorted(there)[chosen % len(there)]
            desk.do("delete", gone)
            there.discard(gone)
    for shard in range(shards):
        while cursors[shard] is not None:
            read(shard)
    assert len(found) == len(set(found))
    assert there <= set(found)
