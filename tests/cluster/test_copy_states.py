"""The states of a copy and their transitions."""

import pytest

from penstock.cluster import copy_states as c
from penstock.cluster import messages as m
from penstock.cluster.messages import JobMessage
from penstock.core import states as s
from penstock.core.job import Copy, Job
from penstock.journal.recovery.opening import open_log
from penstock.journal.rows import decode_copy, encode_copy

from .cluster_nodes import SEGMENT_BYTES, NodeCluster

TABLE = {(event, source): target for event, source, target in c.TRANSITIONS}
PAIRS = [(event, state) for event in range(c.EVENTS_COUNT) for state in range(c.STATES_COUNT)]


def copy_in(state: int) -> Copy:
    """Return a copy in a state, which the log has."""
    copy = Copy(b"", 2, [b"a", b"b"], state)
    copy.logged = True
    return copy


def only_job(guild: NodeCluster, number: int) -> Job:
    [job] = guild[number].jobs()
    return job


def state_of(guild: NodeCluster, number: int) -> str:
    copy = only_job(guild, number).copy()
    assert copy is not None
    return c.STATE_NAMES[copy.state]


@pytest.mark.parametrize("event, state", PAIRS)
def test_an_event_follows_the_table_or_is_refused(event: int, state: int) -> None:
    copy = copy_in(state)
    if (event, state) in TABLE:
        c.move(copy, event)
        assert copy.state == TABLE[event, state]
    else:
        with pytest.raises(AssertionError, match=f"{c.EVENT_NAMES[event]} cannot happen to a copy that is"):
            c.move(copy, event)
        assert copy.state == state


@pytest.mark.parametrize("event, state", TABLE)
def test_the_log_gets_a_copy_again_only_if_it_became_fresh_or_ceased_to_be(event: int, state: int) -> None:
    copy = copy_in(state)
    c.move(copy, event)
    assert copy.logged == (encode_copy(copy) == encode_copy(copy_in(state)))


@pytest.mark.parametrize("state", range(c.STATES_COUNT))
def test_a_restarted_node_warns_before_it_queues_a_copy_that_is_not_fresh(state: int) -> None:
    restored = decode_copy(encode_copy(copy_in(state)), {})
    assert restored.state == (c.FRESH if state == c.FRESH else c.UNWARNED)


def test_a_delivered_job_warns_its_other_holders_once_before_it_returns() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    assert state_of(guild, 0) == "unwarned"
    assert guild[0].ask("getjob", "from", "q")
    assert state_of(guild, 0) == "unwarned"
    guild.run(3_600)
    assert state_of(guild, 0) == "warned"
    guild.run(600)
    assert guild.queued("q") == [1, 0]
    assert state_of(guild, 0) == "unwarned"
    assert guild.sent[m.WILLQUEUE] == 1


def test_a_delivered_job_without_other_holders_returns_without_a_warning() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 4, "replicate", 1)
    guild[0].cluster.receive(guild[1].id, JobMessage(m.WILLQUEUE, id, 0), guild.now)
    job = only_job(guild, 0)
    copy = job.copy()
    assert copy is not None
    copy.holders = [guild[0].id]
    assert guild[0].ask("getjob", "from", "q")
    assert state_of(guild, 0) == "leased"
    guild.run(4_100)
    assert guild.queued("q") == [1, 0]
    assert guild.sent[m.WILLQUEUE] == 0


def test_a_delayed_job_is_fresh_where_it_is_queued_first_and_nowhere_else() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 4, "delay", 3)
    assert [state_of(guild, number) for number in (0, 1)] == ["fresh", "unwarned"]
    guild.run(3_100)
    assert state_of(guild, 0) == "unwarned"
    assert guild.sent[m.WILLQUEUE] == guild.sent[m.QUEUED] == 0


def test_a_holder_that_objects_takes_the_warning_back() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    guild.lost.add(m.QUEUED)
    while state_of(guild, 1) != "warned":
        guild.run(10)
    guild.lost.clear()
    guild[0].ask("getjob", "from", "q")
    guild[0].cluster.receive(
        guild[1].id, JobMessage(m.WILLQUEUE, guild[0].cluster.state.id_of(only_job(guild, 0))), guild.now
    )
    guild.settle()
    assert state_of(guild, 1) == "unwarned"


def test_a_job_that_was_queued_without_a_cluster_warns_its_holders_after_a_restart() -> None:
    guild = NodeCluster(2, disks=True)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 4, "delay", 3)
    assert state_of(guild, 0) == "fresh"
    guild.lost.add(m.QUEUED)
    guild.now += 3_500
    opened = open_log(guild[0].disk, lambda: guild.now, "boot", segment_bytes=SEGMENT_BYTES)
    opened.engine.advance(guild.now)
    opened.log.commit(guild.now, guild.now)
    opened.log.make_durable(opened.log.written)
    guild.restart(0)
    assert only_job(guild, 0).state == s.READY
    assert state_of(guild, 0) == "unwarned"
    assert guild[0].ask("getjob", "from", "q")
    before = guild.sent[m.WILLQUEUE]
    guild.run(3_700)
    assert guild.sent[m.WILLQUEUE] > before
    assert guild.queued("q") == [0, 0], "it is not queued before its retry time is over"


def test_a_copy_that_was_handed_over_is_not_queued_on_the_strength_of_an_old_warning() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    guild.lost |= {m.QUEUED, m.TAKENOVER}
    while state_of(guild, 1) != "warned":
        guild.run(10)
    assert guild[1].cluster.handovers.hand_over([only_job(guild, 1)], guild[2].id, guild.now) == 1
    guild.settle()
    assert state_of(guild, 1) == "unwarned"
    guild[2].ask("getjob", "from", "q")
    before = guild.sent[m.WILLQUEUE]
    while state_of(guild, 1) != "warned":
        guild.run(10)
        assert only_job(guild, 1).state == s.DELAYED, "it was queued without a warning"
    assert guild.sent[m.WILLQUEUE] > before


@pytest.mark.parametrize("how", ["paused", "buried"])
def test_a_warning_ends_when_the_job_is_not_queued_after_it(how: str) -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    guild.lost.add(m.QUEUED)
    while state_of(guild, 1) != "warned":
        guild.run(10)
    if how == "paused":
        guild[1].ask("pause", "q", "in")
        guild.run(600)
        assert only_job(guild, 1).state == s.DELAYED, "the pause holds the job back for another retry time"
    else:
        assert guild[1].ask("bury", id) == b"OK"
        assert only_job(guild, 1).state == s.BURIED
    assert state_of(guild, 1) == "unwarned"
