"""Altered tubes, and the holders of their jobs, after a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock import open as open_queue
from penstock.core import policy as p
from penstock.core import states as s

COUNTED = replace(p.UTUBETTL, key_stats=("a", "b"), notes='{"of": "somebody"}')


def test_notes_come_back_with_their_tube(tmp_path: Path) -> None:
    with open_queue(tmp_path) as queue:
        queue.tube("t", COUNTED)
    with open_queue(tmp_path) as queue:
        assert queue.tube("t").policy == COUNTED
        queue.checkpoint()
    with open_queue(tmp_path) as queue:
        assert queue.tube("t").policy == COUNTED


@pytest.mark.parametrize(("before", "after"), [(p.ANYONE, p.SESSION), (p.SESSION, p.ANYONE)])
def test_a_restart_returns_jobs_held_by_sessions_also_in_an_altered_tube(
    tmp_path: Path, before: str, after: str
) -> None:
    policy = replace(p.FIFOTTL, owner=before)
    with open_queue(tmp_path) as queue:
        tube = queue.tube("t", policy)
        tube.put_many([1, 2])
        tube.take()
        with queue._host.lock, queue._host:
            queue._host.engine.alter(tube._core, replace(policy, owner=after), queue._host.now())
        tube.take()
    with open_queue(tmp_path) as queue:
        tube = queue.tube("t")
        held, anyones = (1, 2) if before == p.SESSION else (2, 1)
        assert [job.body for job in tube.jobs("ready")] == [held]
        assert [job.body for job in tube.jobs("taken")] == [anyones]
        tube.jobs("taken")[0].ack()


def test_a_key_whose_statistics_were_off_has_the_same_counters_after_a_restart(tmp_path: Path) -> None:
    with open_queue(tmp_path) as queue:
        tube = queue.tube("t", COUNTED)
        host = queue._host
        for stats in (("a", "b"), ("b",), ("a", "b")):
            with host.lock, host:
                host.engine.alter(tube._core, replace(COUNTED, key_stats=stats), host.now())
            tube.put("x", key="a")
        counted = list(tube._core.key_stats[b"a"].counts)
    with open_queue(tmp_path) as queue:
        known = queue.tube("t")._core.key_stats[b"a"]
        assert known.counts_before == counted and known.states[s.READY] == 3
