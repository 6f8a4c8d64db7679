"""A node that leaves, or is short of memory, hands its jobs to other nodes and loses none."""

import pytest

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.core.job import Draft

from .cluster_nodes import Node, NodeCluster


def leave(guild: NodeCluster, number: int) -> Node:
    node = guild[number]
    node.cluster.set_leaving(True, guild.now)
    node.context.leaving = True
    guild.settle()
    return node


def test_a_node_that_leaves_hands_over_all_jobs_without_being_asked() -> None:
    guild = NodeCluster(3)
    ids = [guild[0].ask("addjob", "q", number, 1000, "replicate", 1) for number in range(60)]
    ids += [guild[0].ask("addjob", "q", number, 1000, "replicate", 1, "retry", 0) for number in range(60)]
    ids += [guild[0].ask("addjob", "q", number, 1000, "replicate", 2, "delay", 100) for number in range(20)]
    leave(guild, 0)
    guild.run(5_000)
    assert guild[0].cluster.registered() == 0
    assert guild[0].ask("qlen", "q") == 0
    guild.run(100_000)
    got = []
    for number in (1, 2):
        taken = guild[number].ask("getjob", "count", 1000, "from", "q")
        got += [id for _, id, _ in taken]
        guild.run(6_000)
    assert sorted(set(got)) == sorted(ids)


def test_a_node_that_leaves_waits_for_taken_jobs() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 5)
    guild[0].ask("getjob", "from", "q")
    leave(guild, 0)
    guild.run(2_000)
    assert guild[0].cluster.registered() == 1
    assert guild[0].ask("ackjob", id) == 1
    assert guild[0].cluster.registered() == 0


@pytest.mark.parametrize("state", [["done"], ["zombie", "delay", "900s"]])
@pytest.mark.parametrize(("replicate", "retry"), [(1, 0), (1, 2), (3, 2)])
def test_jobs_that_were_switched_to_done_are_deleted_when_their_node_leaves(
    replicate: int, retry: int, state: list[str]
) -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", replicate, "retry", retry)
    assert guild[0].ask("job", "switch", id, *state) == b"OK"
    leave(guild, 0)
    guild.run(20_000)
    assert guild[0].cluster.registered() == 0
    assert guild.queued("q") == [0, 0, 0] and not any(node.jobs() for node in guild.nodes)


def test_a_job_that_waited_for_external_copies_is_kept_after_a_restart() -> None:
    guild = NodeCluster(2, disks=True)
    leave(guild, 0)
    guild.lost.add(m.GOTJOB)
    client = guild[0].connect()
    assert client.ask("addjob", "q", "body", 0, "replicate", 1, "retry", 5) is None
    guild[0].cluster.set_leaving(False, guild.now)
    guild.restart(0)
    guild.lost.clear()
    # It is unknown whether the producer was answered. The job is therefore kept, and so is the copy on the other node.
    [[_, id, _]] = guild[0].ask("getjob", "nohang", "from", "q")
    assert guild[1].ask("ackjob", id) == 1
    guild.run(20_000)
    assert not any(node.jobs() or node.cluster.acks.by_id for node in guild.nodes)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_delay_continues_if_no_node_takes_the_job_over(refuses: bool) -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 1, "delay", 60)
    if refuses:
        guild[1].ask("pause", "q", "in")
    else:
        guild.lost.add(m.YOURJOBS)
    leave(guild, 0)
    guild.run(50_000)
    assert guild.queued("q") == [0, 0]
    guild[0].cluster.set_leaving(False, guild.now)
    guild.run(20_000)
    assert guild.queued("q") == [1, 0]


@pytest.mark.parametrize(("copies", "retry"), [(1, 0), (1, 300), (2, 300), (3, 300)])
def test_a_handover_does_not_change_when_a_delay_ends(copies: int, retry: int) -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", copies, "delay", 20, "retry", retry)
    leave(guild, 0)
    guild.run(5_000)
    assert guild[0].cluster.registered() == 0
    lengths = guild[1].ask("global", "qlen", "q")
    assert lengths["delayed"] == 1 and lengths["copies"] == min(copies, 2) - 1
    guild.run(14_900)
    assert guild.queued("q") == [0, 0, 0]
    guild.run(200)
    assert sum(guild.queued("q")) == 1
    [[_, got, _, _, nacks, _, more]] = guild[1].ask("getjob", "withcounters", "from", "q") or (
        guild[2].ask("getjob", "withcounters", "from", "q")
    )
    assert (got, nacks, more) == (id, 0, 0)


@pytest.mark.parametrize(("retry", "delay"), [(3, 0), (30, 0), (30, 20)])
def test_a_job_whose_receiver_dies_before_the_handover_arrives_is_delivered_elsewhere(retry: int, delay: int) -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", retry, "ttl", 600, "delay", delay)
    guild.lost.add(m.YOURJOBS)
    leave(guild, 0)
    guild.run(1_000)
    [handing] = guild[0].cluster.handovers.under_way.values()
    [heir] = [node.number for node in guild.nodes if node.id == handing.receiver]
    guild.down.add(heir)
    for node in guild.nodes:
        node.cluster.link_down(guild[heir].id, guild.now)
    guild.lost.clear()
    client = guild[3 - heir].connect()
    client.ask("getjob", "timeout", 600_000, "from", "q")
    guild.run((delay + 2 * retry + 5) * 1_000)
    assert client.answer_so_far() == [[b"q", id, b"body"]]
    assert guild[3 - heir].ask("ackjob", id) == 1
    guild.down.clear()
    guild.restart(heir)
    guild.run(300_000)
    assert not any(node.jobs() for node in guild.nodes) and guild[0].cluster.registered() == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_receipt_does_not_end_the_delivery_of_a_job_that_was_queued_again(restarts: bool) -> None:
    guild = NodeCluster(2, disks=True)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 20, "ttl", 600)
    other = guild[0].ask("addjob", "p", "other", 1000, "replicate", 1, "retry", 300, "ttl", 600)
    guild.lost.add(m.YOURJOBS)
    leave(guild, 0)
    guild.run(1_000)
    [handing] = guild[0].cluster.handovers.under_way.values()
    assert len(handing.jobs) == 2
    guild.run(28_000)
    # The receiver has not answered for the retry time, so the job is queued and delivered here again.
    assert guild[0].ask("getjob", "nohang", "from", "q") == [[b"q", id, b"body"]]
    guild[0].cluster.set_leaving(False, guild.now)
    guild.lost.clear()
    if restarts:
        guild.restart(0)
    guild.run(10_000)
    assert not guild[0].cluster.handovers.under_way and not guild[0].cluster.handovers.by_job
    assert [(job.state, job.body) for job in guild[0].jobs()] == [(s.TAKEN, b"body")]
    assert guild[1].ask("qlen", "q") == 0 and guild[1].ask("getjob", "nohang", "from", "p") == [[b"p", other, b"other"]]
    assert guild[1].ask("ackjob", id, other) > 0
    guild.run(20_000)
    assert not any(node.jobs() for node in guild.nodes)


def test_a_job_that_was_queued_again_is_not_taken_back_from_the_receiver_of_its_handover() -> None:
    """After a restart the giver continues the handover, so the receiver must not have deleted its copy."""
    guild = NodeCluster(2, disks=True)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 2, "ttl", 600)
    guild[0].ask("addjob", "p", "other", 1000, "replicate", 1, "retry", 300, "ttl", 600)
    guild.lost |= {m.TAKENOVER, m.WILLQUEUE, m.QUEUED, m.WORKING}
    leave(guild, 0)
    guild.run(6_000)
    assert guild.queued("q") == [1, 1] and len(guild[0].cluster.handovers.by_job) == 2
    guild[0].cluster.set_leaving(False, guild.now)
    guild[0].context.leaving = False
    leave(guild, 1)
    guild.run(10_000)
    assert guild.queued("q") == [1, 1]
    guild.lost.clear()
    guild.run(20_000)
    assert guild[1].cluster.registered() == 0 and len(guild[0].jobs()) == 2
    assert guild.queued("q") == [1, 0]


def test_a_refused_handover_does_not_change_the_delay() -> None:
    guild = NodeCluster(2, disks=True)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "delay", 20, "retry", 300)
    guild[1].ask("pause", "q", "in")
    leave(guild, 0)
    guild.run(5_000)
    guild[0].cluster.set_leaving(False, guild.now)
    guild.restart(0)
    guild.run(14_900)
    assert guild.queued("q") == [0, 0]
    guild.run(200)
    assert guild.queued("q") == [1, 0]


def test_nodes_that_refuse_handovers_are_asked_at_growing_intervals() -> None:
    guild = NodeCluster(2)
    for number in range(1_000):
        guild[0].ask("addjob", "q", number, 1000, "replicate", 1)
    guild[1].ask("pause", "q", "in")
    leave(guild, 0)
    guild.run(10_000)
    guild.sent.clear()
    guild.run(60_000)
    assert 20 <= guild.sent[m.YOURJOBS] <= 40
    guild[1].ask("pause", "q", "none")
    guild.run(5_000)
    assert guild[0].cluster.registered() == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_jobs_of_strict_tubes_stay_on_their_node(leaves: bool) -> None:
    guild = NodeCluster(3)
    guild[0].ask("tube", "create", "orders")
    if leaves:
        leave(guild, 0)
    else:
        guild[0].engine.put(guild[0].engine.tubes[b"orders"], Draft(b"x" * 80_000), guild.now)
        guild[0].engine.memory_max = guild[0].engine.memory_used() + 10_000
        guild[0].ask("addjob", "orders", "fills the rest", 1000)
    assert guild[0].cluster.state.keeps_nothing()
    before = len(guild[0].jobs())
    assert guild[0].ask("addjob", "orders", "body", 1000, "replicate", 1).startswith(b"D-")
    assert guild[0].ask("addjob", "orders", "body", 1000, "async").startswith(b"D-")
    guild.run(5_000)
    assert [len(node.jobs()) for node in guild.nodes] == [before + 2, 0, 0]
    assert [list(node.engine.tubes) for node in guild.nodes] == [[b"orders"], [], []]


def bury_some(guild: NodeCluster) -> list[bytes]:
    """Bury three jobs: an at-most-once job, an at-least-once job, and one with a copy on another node."""
    ids = [guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", retry) for retry in (0, 5)]
    ids.append(guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 500))
    assert all(guild[0].ask("bury", id, "reason", "bad") == b"OK" for id in ids)
    return ids


def test_buried_jobs_are_handed_over_and_stay_buried() -> None:
    guild = NodeCluster(2, disks=True)
    ids = bury_some(guild)
    guild.lost.add(m.TAKENOVER)
    leave(guild, 0)
    guild.restart(0)
    guild.lost.clear()
    leave(guild, 0)
    guild.run(20_000)
    assert guild[0].cluster.registered() == 0 and guild.queued("q") == [0, 0]
    assert [guild[1].ask("job", "peek", id)["state"] for id in ids] == [b"buried"] * 3
    assert [job.ensure_extra().reason for job in guild[1].jobs()] == [b"bad"] * 3
    guild.restart(1)
    assert [guild[1].ask("enqueue", id) for id in ids] == [1, 1, 1]
    assert sorted(id for _, id, _ in guild[1].ask("getjob", "count", 9, "from", "q")) == sorted(ids)


def test_buried_jobs_stay_buried_if_no_node_takes_them() -> None:
    guild = NodeCluster(2)
    ids = bury_some(guild)
    guild[1].ask("pause", "q", "in")
    leave(guild, 0)
    guild.run(2_000)
    guild[0].cluster.set_leaving(False, guild.now)
    guild.run(10_000)
    assert [guild[0].ask("job", "peek", id)["state"] for id in ids] == [b"buried"] * 3


def test_a_late_ack_at_a_node_that_leaves_still_counts() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 5)
    guild[0].ask("getjob", "from", "q")
    leave(guild, 0)
    guild.run(6_000)
    assert guild[0].cluster.registered() == 0 and sum(guild.queued("q")) == 1
    assert guild[0].ask("ackjob", id) == 0
    assert guild.queued("q") == [0, 0, 0]


def test_an_addjob_at_a_node_that_leaves_is_held_by_other_nodes() -> None:
    guild = NodeCluster(3)
    leave(guild, 0)
    assert guild[0].ask("addjob", "q", "1", 1000, "replicate", 2)
    assert guild[0].ask("addjob", "q", "2", 1000, "replicate", 1, "retry", 0)
    assert guild[0].ask("addjob", "q", "3", 1000, "replicate", 1, "async")
    assert guild[0].ask("addjob", "q", "4", 1000)
    guild.run(1_000)
    assert guild[0].cluster.registered() == 0 and sum(guild.queued("q")) == 4
    short = guild[0].ask("addjob", "q", "5", 1000, "replicate", 3)
    assert short.endswith("for the following reason: I'm leaving the cluster")
    assert guild[0].ask("getjob", "from", "q").startswith("LEAVING")


def test_a_node_that_stops_leaving_keeps_jobs_that_were_not_taken() -> None:
    guild = NodeCluster(2)
    leave(guild, 0)
    guild.isolate(1)
    assert guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "async")
    guild.run(1_000)
    assert guild[0].ask("qlen", "q") == 0
    guild[0].cluster.set_leaving(False, guild.now)
    guild.run(10_000)
    assert guild[0].ask("qlen", "q") == 1


def test_a_node_that_leaves_learns_that_a_job_it_hands_over_is_done() -> None:
    guild = NodeCluster(2)
    leave(guild, 0)
    guild.lost.add(m.GOTJOB)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 1, "async")
    guild.run(3_000)
    assert guild[1].ask("getjob", "from", "q")[0][1] == id
    assert guild[1].ask("fastack", id) == 1 and guild[0].cluster.registered() == 1
    guild.run(15_000)
    assert guild[0].cluster.registered() == 0


def test_no_node_sends_copies_to_a_node_that_leaves() -> None:
    guild = NodeCluster(3)
    leave(guild, 0)
    assert guild[1].ask("addjob", "q", "body", 1000)
    assert not guild[0].jobs()
    assert guild[1].ask("addjob", "q", "body", 1000, "replicate", 3).startswith("NOREPL")


def test_leaving_survives_a_crash_in_the_middle() -> None:
    guild = NodeCluster(2, disks=True)
    ids = [guild[0].ask("addjob", "q", number, 1000, "replicate", 1, "retry", 0) for number in range(20)]
    guild.lost.add(m.TAKENOVER)
    leave(guild, 0)
    guild.restart(0)
    guild.lost.clear()
    leave(guild, 0)
    guild.run(20_000)
    assert guild[0].cluster.registered() == 0
    assert sorted(id for _, id, _ in guild[1].ask("getjob", "count", 100, "from", "q")) == sorted(ids)


def test_above_three_quarters_of_its_memory_a_node_keeps_no_copies() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "x" * 1000, 1000, "replicate", 1)
    guild[0].engine.memory_max = guild[0].engine.memory_used() * 100 // 76
    kept = len(guild[0].jobs())
    assert guild[0].ask("addjob", "q", "x", 1000, "replicate", 2)
    assert guild[0].ask("addjob", "q", "x", 1000, "replicate", 1, "retry", 0)
    guild[1].ask("addjob", "q", "x", 1000, "replicate", 2)
    guild[1].ask("addjob", "q", "x", 1000, "replicate", 3)
    guild.run(100)
    assert len(guild[0].jobs()) == kept
    refused = guild[0].ask("addjob", "q", "x", 1000, "replicate", 3)
    assert refused.endswith("I'm out of memory")
    assert guild[0].cluster.state.is_short_of_memory()


def test_acks_are_evicted_oldest_first() -> None:
    guild = NodeCluster(2)
    ids = [guild[0].ask("addjob", "q", number, 1000) for number in range(5)]
    guild.isolate(1)
    for id in ids:
        guild[0].ask("ackjob", id)
    before = guild[0].engine.notes_bytes
    ours = before - sum(300 + len(key) + len(note) for key, note in guild[0].engine.notes.items() if key == b"memory")
    assert guild[0].cluster.acks.evict(3, guild.now) == 3
    assert list(guild[0].cluster.acks.by_id) == ids[3:]
    assert before - guild[0].engine.notes_bytes == ours * 3 // 5


def test_an_ack_finds_a_copy_that_a_leaving_node_handed_over() -> None:
    guild = NodeCluster(4)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 600)
    holder = next(node for node in guild.nodes[1:] if node.jobs())
    guild.lost.add(m.HOLDERS)
    leave(guild, holder.number)
    guild.run(1_000)
    assert not holder.jobs() and sum(len(node.jobs()) for node in guild.nodes) == 2
    assert guild[0].ask("ackjob", id) == 1
    guild.run(1_000)
    assert all(not node.jobs() for node in guild.nodes)


def test_a_leaving_node_deletes_delivered_at_most_once_jobs_after_ten_seconds() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 0)
    guild[0].ask("getjob", "from", "q")
    leave(guild, 0)
    guild.run(9_000)
    assert guild[0].cluster.registered() == 1
    guild.run(3_000)
    assert guild[0].cluster.registered() == 0


def test_two_nodes_that_hand_a_job_to_each_other_do_not_both_lose_it() -> None:
    """Both nodes wanted to leave, and neither received that the other did. In the end both stay."""
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 5)
    guild.isolate(0)
    for node in guild.nodes:
        node.cluster.set_leaving(True, guild.now)
    guild.run(1_000)
    for node in guild.nodes:
        node.cluster.set_leaving(False, guild.now)
    guild.heal()
    guild.lost |= {m.TAKENOVER, m.NOTTAKEN}
    guild.run(20_000)
    guild.lost.clear()
    guild.run(60_000)
    assert any(guild.queued("q"))
