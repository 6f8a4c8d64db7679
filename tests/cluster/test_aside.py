"""The log of a node marks the jobs that wait there for another node, and only those."""

from __future__ import annotations

import pytest

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.core.job import ASIDE
from penstock.journal.history.columns import batches
from penstock.journal.layout import FLAG_ASIDE, FLAG_WAS_ASIDE
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.testing.invariants import check

from .cluster_nodes import Node, NodeCluster
from .test_leaving import leave


def story(node: Node) -> list[str]:
    """Return the events of a node in order. A name in parentheses is the event of a job that is aside afterwards.

    Whether a job was aside before an event must be the same as after its previous event.
    """
    assert node.disk is not None
    told: list[str] = []
    aside: dict[int, bool] = {}
    for batch in batches(node.disk):
        for row in batch.select(["job", "event", "flags", "after"]).to_pylist():
            flags = row["flags"]
            assert aside.get(row["job"], False) == bool(flags & FLAG_WAS_ASIDE), (told, row)
            aside[row["job"]] = bool(flags & FLAG_ASIDE)
            told.append(f"({row['event']})" if flags & FLAG_ASIDE else row["event"])
    for job, is_aside in asides(node).items():
        assert aside[job] == is_aside
    return told


def asides(node: Node) -> dict[int, bool]:
    """Return whether each job of a node is aside."""
    copies = {job.id: job.copy() for job in node.jobs()}
    return {job: copy is not None and bool(copy.aside & ASIDE) for job, copy in copies.items()}


def put(guild: NodeCluster, *options: object, number: int = 0) -> bytes:
    return guild[number].ask("addjob", "q", "body", 1000, *options)


def test_copies_are_aside_and_the_job_itself_is_not() -> None:
    guild = NodeCluster(3, disks=True)
    id = put(guild, "replicate", 3, "retry", 5)
    guild[0].ask("getjob", "from", "q")
    assert guild[0].ask("ackjob", id) == 1
    guild.run(2_000)
    assert story(guild[0]) == ["put staged", "published", "taken", "acked"]
    for number in (1, 2):
        assert story(guild[number]) == ["(moved in delayed)", "acked"]


def test_a_copy_that_is_queued_is_no_longer_aside_and_a_job_that_yields_to_it_is() -> None:
    guild = NodeCluster(2, disks=True)
    id = put(guild, "replicate", 2, "retry", 5)
    guild[0].ask("getjob", "from", "q")
    assert guild[1].ask("enqueue", id) == 1
    assert story(guild[1]) == ["(moved in delayed)", "switched to ready"]
    assert story(guild[0]) == ["put staged", "published", "taken", "(snatched delayed)"]
    # The node that has it queued fails, and the other one queues it again.
    guild.down.add(1)
    guild.run(10_000)
    assert story(guild[0])[4:] == ["delay passed"]


@pytest.mark.parametrize("copies", [1, 3])
def test_jobs_that_a_user_delays_are_not_aside(copies: int) -> None:
    guild = NodeCluster(3, disks=True)
    ids = [put(guild, "replicate", copies, "retry", 100) for _ in range(3)]
    assert guild[0].ask("dequeue", ids[0]) == 1
    assert guild[0].ask("job", "switch", ids[1], "delayed", "delay", "50s") == b"OK"
    [[_, taken, _]] = guild[0].ask("getjob", "from", "q")
    assert taken == ids[2]
    job = next(job for job in guild[0].jobs() if guild[0].cluster.state.id_of(job) == taken)
    assert guild[0].engine.snatch(job, guild.now, 50_000) == s.OK
    guild.settle()
    events = story(guild[0])
    assert events.count("switched to delayed") == 2 and "snatched delayed" in events
    assert not any(event.startswith("(") for event in events)


def test_a_job_with_copies_keeps_its_body() -> None:
    guild = NodeCluster(2, disks=True)
    copied, alone = put(guild, "replicate", 2), put(guild, "replicate", 1)
    for number in (0, 1):
        assert str(guild[number].ask("job", "edit", copied, "new")).startswith("HASCOPIES")
    assert guild[0].ask("job", "edit", alone, "new") == b"OK"
    assert guild[0].ask("getjob", "count", 2, "from", "q") == [[b"q", copied, b"body"], [b"q", alone, b"new"]]
    assert story(guild[0]) == ["put staged", "published", "put", "edited", "taken", "taken"]


def test_a_job_that_is_queued_elsewhere_before_its_delay_is_over_becomes_aside() -> None:
    guild = NodeCluster(2, disks=True)
    id = put(guild, "replicate", 2, "retry", 5, "delay", 100)
    assert story(guild[0]) == ["put staged", "published delayed"]
    assert guild[1].ask("enqueue", id) == 1
    assert story(guild[1]) == ["(moved in delayed)", "switched to ready"]
    assert story(guild[0]) == ["put staged", "published delayed", "(switched to delayed)"]


def test_a_job_that_was_given_to_a_node_that_asked_for_it_is_aside_on_the_giver() -> None:
    guild = NodeCluster(2, disks=True)
    id = put(guild, "replicate", 1, "retry", 5)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert story(guild[0]) == ["put", "(switched to delayed)"]
    assert story(guild[1]) == ["moved in", "taken"]
    assert guild[1].ask("ackjob", id) == 1
    guild.run(2_000)
    assert story(guild[0]) == ["put", "(switched to delayed)", "acked"]


def test_an_at_most_once_job_is_aside_while_it_is_handed_over() -> None:
    guild = NodeCluster(2, disks=True)
    put(guild, "replicate", 1, "retry", 0)
    assert guild[1].ask("getjob", "from", "q")
    assert story(guild[0]) == ["put", "(taken)", "deleted"]
    assert story(guild[1]) == ["moved in", "taken"]


def test_a_node_that_leaves_hands_its_jobs_over_and_copies_stay_copies() -> None:
    guild = NodeCluster(3, disks=True)
    put(guild, "replicate", 1, "retry", 5)
    put(guild, "replicate", 1, "retry", 5, "delay", 300)
    put(guild, "replicate", 2, "retry", 300, number=1)
    guild[2].members.set_leaving(True, guild.now)
    leave(guild, 0)
    guild.run(3_000)
    assert not guild[0].jobs()
    events = story(guild[0])
    assert events.count("(switched to delayed)") == events.count("deleted") >= 2
    moved = [event for event in story(guild[1]) if event.endswith(("moved in", "moved in delayed"))]
    assert sorted(moved) == ["moved in", "moved in delayed"]


def test_a_refused_handover_restores_what_the_job_waited_for() -> None:
    guild = NodeCluster(3, disks=True)
    own = put(guild, "replicate", 3, "retry", 100)
    put(guild, "replicate", 3, "retry", 100, number=1)
    put(guild, "replicate", 1, "retry", 100, "delay", 50)
    assert guild[0].ask("job", "switch", own, "delayed", "delay", "50s") == b"OK"
    before = asides(guild[0])
    assert sorted(before.values()) == [False, False, True]
    for number in (1, 2):
        guild[number].ask("pause", "q", "in")
    leave(guild, 0)
    guild.run(600)
    assert guild.sent[m.NOTTAKEN] > 0
    guild[0].cluster.set_leaving(False, guild.now)
    guild.run(600)
    assert asides(guild[0]) == before
    story(guild[0])


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_keeps_what_jobs_wait_for(snapshot: bool) -> None:
    guild = NodeCluster(2, disks=True)
    mine = put(guild, "replicate", 2, "retry", 100)
    put(guild, "replicate", 2, "retry", 100, number=1)
    guild[0].ask("dequeue", mine)
    if snapshot:
        disk = guild[0].disk
        assert disk is not None
        take_snapshot(disk, guild[0].opened.log, guild[0].engine, guild.now, guild.now)
    guild.restart(0)
    assert sorted(asides(guild[0]).values()) == [False, True]
    assert guild[0].ask("enqueue", mine) == 1
    story(guild[0])


def test_a_copy_that_its_user_delays_again_stays_aside() -> None:
    guild = NodeCluster(2, disks=True)
    id = put(guild, "replicate", 2, "retry", 100)
    assert guild[1].ask("job", "switch", id, "delayed", "delay", "50s") == b"OK"
    assert story(guild[1]) == ["(moved in delayed)", "(switched to delayed)"]


def test_the_invariants_find_a_job_that_is_aside_and_ready() -> None:
    guild = NodeCluster(2, disks=True)
    put(guild, "replicate", 2, "retry", 100)
    check(guild[0].engine)
    [job] = guild[0].jobs()
    copy = job.copy()
    assert copy is not None
    copy.aside = ASIDE
    with pytest.raises(AssertionError, match="E12"):
        check(guild[0].engine)
