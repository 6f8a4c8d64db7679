"""Invariants of one tube. invariants.py lists the invariants E1 to E11."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.core import states as s
from penstock.core.deadlines import NOWHERE
from penstock.core.job import NO_SLOT, Job
from penstock.core.keys import Key, Keys
from penstock.core.limits import DEDUP_MEMORY_BYTES, NEVER
from penstock.core.statistics.histogram import Histogram
from penstock.core.table import JobTable
from penstock.core.tube import Tube, key_of
from penstock.core.unique import BodyIndex
from penstock.testing.assertions import (
    HEAP_CHILDREN,
    check_bag,
    check_heap,
    filled,
    free,
    in_state,
    least,
    rank,
    same,
    same_job,
    same_jobs,
    shown,
)

LIVE_STATES: Final = range(s.GONE + 1, s.STATES_COUNT)

# The transitions that end a run, whose duration the tube counts.
_RUN_ENDS: Final = ((s.ACKED, s.TAKEN, s.GONE), (s.KEPT, s.TAKEN, s.DONE), (s.LINGERED, s.TAKEN, s.ZOMBIE))


def check_tube(tube: Tube, jobs: list[Job]) -> None:
    """Compare the counters, lists and indexes of a tube with its jobs."""
    assert not tube.arriving and not tube.dropped, f"E2: {tube.name!r} is in the middle of a transition"
    _check_counts(tube, jobs)
    _check_places(tube, jobs)
    _check_labels(tube, jobs)
    if tube.keys is None:
        assert all(job.key == NO_SLOT for job in jobs), f"E2: {tube.name!r} has no keys, but its jobs have"
        same_job("E4", f"the next job of {tube.name!r}", tube.first_ready(None), least(in_state(jobs, s.READY)))
        _check_ready_times(tube, in_state(jobs, s.READY))
    else:
        _check_keys(tube, tube.keys, jobs)
        _check_next(tube, tube.keys, jobs)
    _check_durations(tube)


def check_table(table: JobTable, end: int, number: Callable[[Job], int]) -> list[Job]:
    """Check that each job of a table is found by its number. Return all jobs of the table in order."""
    jobs = table.scan(0, table.count + 1)
    same("E2", "jobs in the table", table.count, len(jobs))
    before = -1
    for job in jobs:
        assert before < number(job) < end, f"E2: {shown(job)} is out of order in the table, or not before {end}"
        assert table.find(number(job)) is job, f"E2: {shown(job)} is not found by its number"
        before = number(job)
    for page in table.pages.values():
        live = sum(1 for job in page.slots if job is not None)
        same("E2", f"jobs on page {page.number}", page.live, live)
        assert live or page is table.newest, f"E2: page {page.number} is empty and still there"
    return jobs


# Counts and places


def _check_counts(tube: Tube, jobs: list[Job]) -> None:
    """Check E1: the transitions into each state minus those out of it equal the number of jobs in the state."""
    flow = _flow(tube.counts, tube.counts_before)
    for state in LIVE_STATES:
        there = len(in_state(jobs, state))
        same("E1", f"jobs that went into {s.STATE_NAMES[state]} and not out, in {tube.name!r}", flow[state], there)
        same("E1", f"{s.STATE_NAMES[state]} jobs of {tube.name!r}", tube.count_in(state), there)
    same("E1", f"jobs of {tube.name!r}", tube.total(), len(jobs))
    spilled = sum(1 for job in jobs if not isinstance(job.body, bytes))
    same("E2", f"jobs of {tube.name!r} with their bodies on disk", tube.spilled, spilled)
    same("E2", f"body bytes of {tube.name!r}", tube.body_bytes, sum(job.body_length() for job in jobs))
    for name, stats in tube.key_stats.items():
        of_key = Counter(int(job.state) for job in jobs if key_of(tube, job) == name)
        there_by_state = [of_key[state] for state in range(s.STATES_COUNT)]
        same("E1", f"jobs of key {name!r} of {tube.name!r}, by state", stats.states, there_by_state)


def _check_durations(tube: Tube) -> None:
    """Check E1: each take counted one wait, and each ack of a taken job counted one run."""
    takes = sum(tube.counts[rule] for rule, (event, _, _) in enumerate(s.TRANSITIONS) if event in (s.TOOK, s.CLAIMED))
    acks = sum(tube.counts[rule] for rule, transition in enumerate(s.TRANSITIONS) if transition in _RUN_ENDS)
    same("E1", f"counted waits of {tube.name!r}", _counted(tube.waits), takes)
    same("E1", f"counted runs of {tube.name!r}", _counted(tube.runs), acks)


def _counted(durations: Histogram | None) -> int:
    return 0 if durations is None else sum(durations.counts())


def _flow(counts: list[int], before: list[int]) -> list[int]:
    """Return the number of transitions into each state minus those out of it."""
    flow = [0] * s.STATES_COUNT
    for rule, (_, source, target) in enumerate(s.TRANSITIONS):
        flow[source] -= counts[rule] + before[rule]
        flow[target] += counts[rule] + before[rule]
    return flow


def _check_places(tube: Tube, jobs: list[Job]) -> None:
    """Check E2: each job is in the container of its state, at the index that the job stores."""
    for state in LIVE_STATES:
        what = f"{s.STATE_NAMES[state]} jobs of {tube.name!r}"
        same_jobs("E2", what, tube.jobs_in(state), in_state(jobs, state))
    assert tube.keys is None or not tube.ready.items, f"E2: {tube.name!r} has ready jobs outside its keys"
    check_heap(f"ready jobs of {tube.name!r}", tube.ready.items)
    check_heap(f"buried jobs of {tube.name!r}", tube.buried.items)
    for bag in (tube.taken, tube.delayed, tube.spent, tube.done, tube.zombies, tube.staged):
        check_bag(f"jobs of {tube.name!r}", bag.items)
    doomed = [job for job in in_state(jobs, s.TAKEN) if job.ensure_extra().doomed]
    same_jobs("E2", f"doomed jobs of {tube.name!r}", tube.taken.items[: tube.taken.doomed], doomed)
    spent = [job for job in in_state(jobs, s.BURIED) if job.once and job.deliveries > 0]
    same_jobs("E2", f"spent jobs of {tube.name!r}", tube.spent.items, spent)


def _check_labels(tube: Tube, jobs: list[Job]) -> None:
    """Check E2: the tube finds each job by its integer id, name, unique value and body, and has no stale entries."""
    if tube.driven:
        assert all(job.extra is not None and job.extra.name for job in jobs), f"E2: {tube.name!r} has jobs without ids"
    elif tube.jobs_by_number is None:
        assert all(job.local == NO_SLOT for job in jobs), f"E2: {tube.name!r} has integers and no table of them"
    else:
        by_integer = check_table(tube.jobs_by_number, tube.next_local, lambda job: job.local)
        same_jobs("E2", f"jobs of {tube.name!r} by integer", by_integer, jobs)
        assert tube.next_local <= tube.reserved, f"E2: {tube.name!r} gave out integers that were not reserved"
    named = {job.extra.name: job for job in jobs if job.extra is not None and job.extra.name}
    same("E2", f"jobs of {tube.name!r} by name", tube.names, named)
    unique = {job.extra.unique: job for job in jobs if job.extra is not None and job.extra.unique}
    same("E2", f"jobs of {tube.name!r} by unique value", tube.uniques, unique)
    if tube.ready_bodies is not None and tube.delayed_bodies is not None:
        _check_bodies(f"ready jobs of {tube.name!r}", tube.ready_bodies, in_state(jobs, s.READY))
        _check_bodies(f"delayed jobs of {tube.name!r}", tube.delayed_bodies, in_state(jobs, s.DELAYED))


def _check_bodies(what: str, index: BodyIndex, jobs: list[Job]) -> None:
    with_bodies = [job for job in jobs if isinstance(job.body, bytes)]
    entered = [*index.single.values(), *(job for more in index.several.values() for job in more)]
    same_jobs("E2", f"{what} by body", entered, with_bodies)
    for job in with_bodies:
        assert isinstance(job.body, bytes)
        found = index.find(job.body)
        assert found is not None and found.body == job.body, f"E2: {what}: {shown(job)} is not found by its body"


# Keys


def _check_keys(tube: Tube, keys: Keys, jobs: list[Job]) -> None:
    """Check E2 and E3: a key exists exactly while it has jobs, its counts are right, and its limit holds."""
    members: dict[int, list[Job]] = {}
    for job in jobs:
        members.setdefault(job.key, []).append(job)
    every = keys.all_keys()
    same("E2", f"keys of {tube.name!r} with jobs", sorted(key.slot for key in every), sorted(members))
    same("E2", f"keys of {tube.name!r} by name", keys.by_name, {key.name: key for key in every})
    same("E2", f"keys of {tube.name!r} by slot", filled(keys.slots), {key.slot: key for key in every})
    same("E2", f"free key slots of {tube.name!r}", sorted(keys.free_slots), free(keys.slots))
    same("E2", f"ready jobs of the keys of {tube.name!r}", keys.ready, len(in_state(jobs, s.READY)))
    for key in every:
        limit = 0 if keys.lowered else keys.limit
        _check_key(f"key {key.name!r} of {tube.name!r}", key, limit, members[key.slot])
    _check_open(f"open keys of {tube.name!r}", keys)


def _check_key(what: str, key: Key, limit: int, jobs: list[Job]) -> None:
    taken = len(in_state(jobs, s.TAKEN))
    assert limit == 0 or taken <= limit, f"E3: {what}: {taken} jobs are taken at once, and {limit} may be"
    same("E2", f"jobs of {what}", key.jobs, len(jobs))
    same("E2", f"taken jobs of {what}", key.taken, taken)
    rest = [] if key.rest is None else key.rest.items
    check_heap(f"the rest of {what}", rest)
    ready = rest if key.first is None else [key.first, *rest]
    same_jobs("E2", f"ready jobs of {what}", ready, in_state(jobs, s.READY))
    same_job("E2", f"first job of {what}", key.first, least(ready))


def _check_open(what: str, keys: Keys) -> None:
    """Check E2: the heap of open keys has exactly the keys with a ready job and fewer taken jobs than the limit."""
    opened = keys.open_keys()
    room = keys.limit if keys.limit > 0 else NEVER
    could = [key for key in keys.all_keys() if key.first is not None and key.taken < room]
    same("E2", what, sorted(key.slot for key in opened), sorted(key.slot for key in could))
    same("E2", f"{what}, by their places", [key.pos for key in opened], list(range(len(opened))))
    for index in range(1, len(opened)):
        parent = opened[(index - 1) // HEAP_CHILDREN]
        assert _turn(parent) < _turn(opened[index]), f"E2: {what}: {opened[index].name!r} is out of order"
    for key in keys.all_keys():
        assert key.pos == NOWHERE or key in opened, f"E2: {what}: {key.name!r} is not open and has a place"
        if key.pos != NOWHERE and key.first is not None and not keys.fair:
            same("E2", f"{what}: the rank of {key.name!r}", _turn(key), rank(key.first))


def _check_next(tube: Tube, keys: Keys, jobs: list[Job]) -> None:
    """Check E4: the next job is the least available job, which is found by a full scan."""
    ready = in_state(jobs, s.READY)
    if keys.limit > 0:
        taken = Counter(int(job.key) for job in in_state(jobs, s.TAKEN))
        ready = [job for job in ready if taken[job.key] < keys.limit]
    firsts = [least(job for job in ready if job.key == key.slot) for key in keys.all_keys()]
    for key, first in zip(keys.all_keys(), firsts, strict=True):
        same_job("E4", f"the next job of {key.name!r} in {tube.name!r}", tube.first_ready(key.name), first)
    oldest = min((first.since for first in firsts if first is not None), default=NEVER)
    same("E11", f"the oldest job of {tube.name!r} that can be taken", tube.oldest_ready(), oldest)
    following = tube.first_ready(None)
    if keys.fair:
        assert following in firsts if ready else following is None, f"E4: {tube.name!r} would serve no first job"
    else:
        same_job("E4", f"the next job of {tube.name!r}", following, least(ready))


def _check_ready_times(tube: Tube, ready: list[Job]) -> None:
    """Check E11 in a tube without keys: each ready job is counted in the group of the time since which it is ready."""
    groups = tube.ready_times.groups()
    starts = [start for start, _ in groups]
    assert starts == sorted(set(starts)), f"E11: the ready times of {tube.name!r} are out of order"
    counted = Counter(bisect_right(starts, job.since) - 1 for job in ready)
    assert -1 not in counted, f"E11: a ready job of {tube.name!r} is older than the oldest group"
    same("E11", f"ready jobs of {tube.name!r} by age", [counted[i] for i in range(len(groups))], [n for _, n in groups])
    assert not groups or groups[0][1] > 0, f"E11: the oldest group of {tube.name!r} is empty"
    if tube.ready_times.is_exact():
        oldest = min((job.since for job in ready), default=NEVER)
        same("E11", f"the oldest ready job of {tube.name!r}", tube.oldest_ready(), oldest)


def _turn(key: Key) -> tuple[int, int]:
    return key.rank, key.rank_order


def label_bytes(tube: Tube) -> int:
    """Return how many bytes the names, keys, unique values and dedup ids of a tube's jobs use."""
    keys = [] if tube.keys is None else [key.name for key in tube.keys.all_keys()]
    seen = [] if tube.dedups is None else [dedup for dedup, _, _ in tube.dedups.entries()]
    return sum(map(len, [*tube.names, *tube.uniques, *keys, *seen])) + DEDUP_MEMORY_BYTES * len(seen)
