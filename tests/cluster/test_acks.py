"""An ack holds on every node, and is dropped when every holder has it."""

import pytest

from penstock.cluster import messages as m
from penstock.cluster.acks import DUMMIES_MAX, Ack
from penstock.core import states as s
from penstock.core.errors import Unsupported
from penstock.core.job import Draft
from penstock.core.policy import FIFOTTL
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns

from .cluster_nodes import Client, Node, NodeCluster


def nothing_left(guild: NodeCluster) -> bool:
    return all(not node.jobs() and not node.cluster.acks.by_id for node in guild.nodes)


def test_an_ack_waits_for_a_holder_that_cannot_be_reached() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild[0].ask("getjob", "from", "q")
    guild.isolate(2)
    assert guild[0].ask("ackjob", id) == 1
    guild.run(5_000)
    assert len(guild[2].jobs()) == 1 and len(guild[0].cluster.acks.by_id) == 1
    guild.heal()
    guild.run(10_000)
    assert nothing_left(guild)


def test_an_acked_job_is_shown_until_every_holder_has_the_ack() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600, "ttl", 3600)
    names = guild[0].ask("show", id)[::2]
    assert guild[0].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    guild.isolate(2)
    guild[0].ask("ackjob", id)
    guild.run(500)
    shown = guild[0].ask("show", id)
    assert shown[::2] == names
    told = dict(zip(names, shown[1::2], strict=True))
    holders = {node.id for node in guild.nodes}
    assert (told[b"id"], told[b"state"], told[b"queue"], told[b"body"]) == (id, b"acked", None, None)
    assert (set(told[b"nodes-delivered"]), told[b"nodes-confirmed"]) == (holders, [guild[1].id])
    assert (told[b"repl"], told[b"ttl"], told[b"next-requeue-within"]) == (3, 3600, None)
    assert 0 < told[b"next-awake-within"] <= 2_500
    assert guild[1].ask("show", id)[5] == b"acked"
    guild.heal()
    guild.run(10_000)
    assert [node.ask("show", id) for node in guild.nodes] == [None, None, None]


def test_dummy_acks_are_not_shown_and_restricted_users_see_no_acks() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2)
    stranger = next(node for node in guild.nodes if not node.jobs())
    guild.isolate(0)
    guild.isolate(stranger.number)
    stranger.ask("ackjob", id)
    assert stranger.cluster.acks.dummies == 1 and stranger.ask("show", id) is None
    guild[0].ask("ackjob", id)
    assert guild[0].ask("show", id)[5] == b"acked"
    restricted = guild[0].connect()
    restricted.restrict(TubePatterns([b"mail.*"]))
    assert restricted.ask("show", id) is None


def test_a_holder_that_comes_back_receives_the_ack_before_it_queues_the_job() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 3)
    guild[0].ask("getjob", "from", "q")
    guild.isolate(2)
    guild[0].ask("ackjob", id)
    guild.run(2_000)
    guild.heal()
    guild.run(3_000)
    assert guild.queued("q") == [0, 0, 0]
    guild.run(10_000)
    assert nothing_left(guild)


def test_an_ack_at_a_node_that_never_had_the_job_finds_it() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2)
    stranger = next(node for node in guild.nodes if not node.jobs())
    assert stranger.ask("ackjob", id) == 0
    assert nothing_left(guild)


def test_a_native_ack_at_a_node_that_never_had_the_jobs_finds_their_copies_when_their_maker_is_gone() -> None:
    guild = NodeCluster(5)
    one, *two = [guild[0].ask("addjob", "q", "body", 1000, "replicate", 2) for _ in range(3)]
    guild.down.add(0)
    others = guild.nodes[1:]
    for node in others:
        node.members.forget(guild[0].id, guild.now)
    stranger = next(node for node in others if not node.jobs())
    assert stranger.ask("ack", one) == 0
    assert stranger.ask("ack", *two) == 0
    guild.run(40_000)
    assert not any(node.jobs() for node in others)


def test_a_native_command_for_a_job_on_another_node_names_that_node() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    told = guild[1].ask("job", "peek", id)
    assert told == f"NOHOME job '{id.decode()}' lives on node {guild[0].id.decode()}; connect to that node"
    assert guild[1].ask("job", "wait", id) == told
    stranger = id.replace(id[2:10], b"dcb833cf")
    assert guild[1].ask("job", "peek", stranger).endswith("its maker dcb833cf… is no longer in the cluster")
    assert guild[0].ask("job", "peek", id[:-1]).startswith("BADID")
    assert NodeCluster(1)[0].ask("job", "peek", stranger).startswith("BADID")


def test_an_ack_is_kept_until_a_holder_that_is_cut_off_can_be_reached() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 600)
    guild.isolate(0)
    assert guild[1].ask("ackjob", id) == 0
    guild.run(20_000)
    guild.heal()
    guild.run(40_000)
    assert nothing_left(guild)


def test_an_ack_waits_for_a_possible_holder_although_another_node_is_removed() -> None:
    guild = NodeCluster(4)
    id = guild[3].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 600)
    guild.isolate(3)
    assert guild[0].ask("ackjob", id) == 0
    for number in (0, 2):
        guild[number].members.forget(guild[1].id, guild.now)
    guild.run(5_000)
    guild.heal()
    guild.run(40_000)
    assert nothing_left(guild)


def test_a_dummy_is_dropped_when_no_node_has_the_job_and_at_most_once_jobs_have_none() -> None:
    guild = NodeCluster(3)
    assert guild[0].ask("ackjob", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1") == 0
    assert guild.sent == {m.SETACK: 2, m.GOTACK: 2}
    assert nothing_left(guild)
    assert guild[0].ask("ackjob", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a0") == 0
    assert guild.sent == {m.SETACK: 2, m.GOTACK: 2}


def test_dummies_are_bounded() -> None:
    guild = NodeCluster(2)
    guild.isolate(1)
    acks = guild[0].cluster.acks
    acks.dummies = DUMMIES_MAX
    assert guild[0].ask("ackjob", "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1") == 0
    assert acks.refused == 1 and not acks.by_id


def test_two_acks_of_one_job_are_both_collected() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    guild.isolate(0)
    guild[0].ask("ackjob", id)
    guild[1].ask("ackjob", id)
    guild.heal()
    guild.run(10_000)
    assert nothing_left(guild)


def test_an_ack_does_not_wait_for_removed_nodes() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild.isolate(2)
    guild[0].ask("ackjob", id)
    for number in (0, 1):
        guild[number].members.forget(guild[2].id, guild.now)
    guild.run(10_000)
    assert all(not guild[number].cluster.acks.by_id for number in (0, 1))


def test_holders_that_only_another_holder_knows_receive_the_ack() -> None:
    guild = NodeCluster(4)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 600)
    second = [node for node in guild.nodes if node.jobs()][1]
    others = [node for node in guild.nodes if not node.jobs()]
    others[0].ask("getjob", "nohang", "from", "q")
    assert others[0].jobs() and not others[1].jobs()
    assert second.ask("ackjob", id) == 1
    assert nothing_left(guild)


def test_holders_that_only_another_holder_knows_receive_a_fastack() -> None:
    guild = NodeCluster(4)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 600)
    second = [node for node in guild.nodes if node.jobs()][1]
    others = [node for node in guild.nodes if not node.jobs()]
    others[0].ask("getjob", "nohang", "from", "q")
    assert others[0].jobs() and not others[1].jobs()
    assert second.ask("fastack", id) == 1
    assert nothing_left(guild) and guild.sent[m.DELJOB] == 2


def test_an_ack_is_dropped_when_its_job_would_have_expired() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "ttl", 60, "retry", 50)
    guild.isolate(1)
    guild[0].ask("ackjob", id)
    guild.run(61_000)
    assert nothing_left(guild)
    assert isinstance(Ack(id, [], 0), Ack)


def test_an_ack_from_another_node_does_not_end_a_job_of_a_strict_tube() -> None:
    guild = NodeCluster(2)
    engine = guild[0].engine
    tube = engine.create_tube(b"strict", FIFOTTL, guild.now)
    job = engine.put(tube, Draft(b"body"), guild.now)
    id = guild[0].context.id_of(job)
    assert engine.take(guild[0].client.connection.session, tube, guild.now) is job
    for word in ("ackjob", "fastack"):
        guild[1].ask(word, id)
        guild.run(3_000)
        assert guild[0].jobs() == [job] and job.state == s.TAKEN


def unacquainted() -> NodeCluster:
    """Return three nodes. One joined late, is cut off from another one and does not have it in its table."""
    guild = NodeCluster(3)
    guild.cut |= {(1, 2), (2, 1)}
    del guild[1].members.peers[guild[2].id]
    return guild


def test_an_ack_waits_for_a_holder_that_its_node_has_never_met() -> None:
    guild = unacquainted()
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    assert guild[1].ask("ackjob", id) == 1
    guild.run(10_000)
    assert nothing_left(guild)  # The node that knows all holders has collected the ack.


def test_a_node_that_has_not_met_a_holder_leaves_the_ack_to_nodes_that_have() -> None:
    guild = unacquainted()
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild.down.add(2)
    assert guild[1].ask("ackjob", id) == 1
    guild.run(120_000)
    assert [len(guild[number].cluster.acks.by_id) for number in (0, 1)] == [1, 0]
    guild.down.clear()
    guild.restart(2)
    guild.run(10_000)
    assert nothing_left(guild)


def test_the_only_node_with_an_ack_waits_for_a_holder_that_it_has_never_met() -> None:
    guild = unacquainted()
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild.down.add(0)
    assert guild[1].members.forget(guild[0].id, guild.now)
    assert guild[1].ask("ackjob", id) == 1
    guild.run(200_000)
    assert id in guild[1].cluster.acks.by_id
    guild.run(200_000)
    assert not guild[1].cluster.acks.by_id  # No greeting has reported such a node.


def test_a_removed_member_is_not_waited_for_even_after_a_restart() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild.isolate(2)
    for number in (0, 1):
        assert guild[number].members.forget(guild[2].id, guild.now)
    past = dict(guild[1].members.past)
    guild.run(100_000)  # Longer than a removed node is kept out.
    guild[1].members.restore([], guild.now, past)
    assert guild[1].ask("ackjob", id) == 1
    assert not any(guild[number].cluster.acks.by_id for number in (0, 1))


def test_holders_that_have_left_are_not_named_to_other_nodes() -> None:
    """A node that joined later has never met the former member and would wait for it."""
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600, "replicate", 2)
    holder, late = sorted(guild.nodes[1:], key=lambda node: not node.jobs())
    guild.isolate(holder.number)
    del late.members.peers[holder.id]
    assert guild[0].members.forget(holder.id, guild.now)
    guild[0].cluster.set_leaving(True, guild.now)
    guild.run(10_000)
    assert not guild[0].jobs()
    assert late.ask("ackjob", id) == 1
    assert not late.jobs() and not late.cluster.acks.by_id


def test_an_ack_reaches_a_holder_that_was_asked_just_before_a_crash() -> None:
    guild = NodeCluster(3, disks=True)
    guild.isolate(0)
    guild.restart(0)  # It has no confirmed links yet, so it asks no other node at first.
    guild[0].ask("addjob", "q", "body", 10_000, "retry", 600, "replicate", 3)
    assert [job.copy().holders for job in guild[0].jobs() if job.copy()] == [[guild[0].id]]
    guild.heal()
    guild.lost.add(m.GOTJOB)
    guild.run(5_000)
    assert guild[1].jobs() and guild[2].jobs()
    guild.lost.clear()
    guild.restart(0)
    id = guild[0].ask("getjob", "from", "q")[0][1]
    assert guild[0].ask("ackjob", id) == 1
    guild.run(10_000)
    assert nothing_left(guild)


@pytest.mark.parametrize("command", ["ackjob", "fastack"])
def test_an_ack_counts_while_the_maker_still_waits_for_copies(command: str) -> None:
    """A holder that receives nothing for its retry time delivers the job, and its client may ack it on any node."""
    guild = NodeCluster(3)
    guild.isolate(2)
    producer = guild[0].connect()
    assert producer.ask("addjob", "q", "body", 10_000, "replicate", 3, "retry", 1) is None
    guild.run(4_000)
    [[_, id, _]] = guild[1].ask("getjob", "from", "q")
    assert guild[0].jobs()[0].state == s.STAGED and producer.answer_so_far() is None
    assert guild[0].ask(command, id) == 1
    assert producer.answer_so_far() == id
    guild.run(1_000)
    assert not guild[0].jobs() and not guild[1].jobs()
    guild.heal()
    guild.run(20_000)
    assert nothing_left(guild) and guild.queued("q") == [0, 0, 0]


def test_a_refused_ack_does_not_queue_a_job_that_waits_for_copies() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    producer = guild[0].connect()
    assert producer.ask("addjob", "q", "body", 10_000, "replicate", 3) is None
    [job] = guild[0].jobs()
    with pytest.raises(Unsupported):
        guild[0].engine.ack(producer.connection.session, job, guild.now, delay_ms=5)
    assert job.state == s.STAGED and producer.answer_so_far() is None


# Clients that may use only some tubes


def restricted_client(node: Node, *patterns: bytes) -> Client:
    client = node.connect()
    client.restrict(TubePatterns(list(patterns)))
    return client


def without_copy(guild: NodeCluster, id: bytes) -> Node:
    return next(node for node in guild.nodes if id not in [node.cluster.state.id_of(job) for job in node.jobs()])


@pytest.mark.parametrize("command", ["ackjob", "fastack"])
def test_a_holder_refuses_the_ack_of_a_client_that_may_not_use_its_tube(command: str) -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "private", "body", 1000, "replicate", 2, "retry", 600)
    entry = without_copy(guild, id)
    assert restricted_client(entry, b"mail.*").ask(command, id) == 0
    guild.run(60_000)
    assert sum(len(node.jobs()) for node in guild.nodes) == 2
    assert not entry.cluster.acks.by_id, "all nodes have answered, so there is nothing left to ask"
    assert guild[0].ask("ackjob", id) == 1
    guild.run(60_000)
    assert nothing_left(guild)


@pytest.mark.parametrize("command", ["ackjob", "fastack"])
def test_a_restricted_client_acks_jobs_of_its_own_tubes_from_any_node(command: str) -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "mail.out", "body", 1000, "replicate", 2, "retry", 600)
    restricted_client(without_copy(guild, id), b"other", b"mail.*").ask(command, id)
    guild.run(60_000)
    assert nothing_left(guild)


def test_the_ack_of_a_restricted_client_waits_for_a_holder_also_over_a_restart() -> None:
    guild = NodeCluster(3, disks=True)
    id = guild[0].ask("addjob", "mail.out", "body", 1000, "replicate", 2, "retry", 600)
    entry = without_copy(guild, id)
    for node in guild.nodes:
        if node is not entry:
            guild.isolate(node.number)
    restricted_client(entry, b"mail.*").ask("ackjob", id)
    entry.turn()
    entry.open()
    [ack] = entry.cluster.acks.by_id.values()
    assert (ack.tubes.texts, ack.is_dummy()) == ([b"mail.*"], True)


@pytest.mark.parametrize("command", ["ackjob", "fastack"])
def test_a_forbidden_ack_does_not_remove_a_job_that_arrives_later(command: str) -> None:
    """A tombstone or a kept ack would make this node refuse its copy, and the holders delete theirs."""
    guild = NodeCluster(2)
    guild.isolate(1)
    id = guild[0].ask("addjob", "private", "body", 1000, "replicate", 1, "retry", 600)
    attacker = restricted_client(guild[1], b"mail.*")
    attacker.ask(command, id)
    guild.heal()
    guild[1].ask("getjob", "timeout", 1000, "from", "private")
    guild.run(60_000)
    assert sum(len(node.jobs()) for node in guild.nodes) >= 1
    assert guild[1].ask("ackjob", id) == 1 or guild[0].ask("ackjob", id) == 1


def test_an_allowed_ack_counts_although_a_forbidden_one_came_first() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "mail.out", "body", 1000, "replicate", 2, "retry", 600)
    entry = without_copy(guild, id)
    guild.isolate(entry.number)
    restricted_client(entry, b"other").ask("ackjob", id)
    restricted_client(entry, b"mail.*").ask("ackjob", id)
    [ack] = entry.cluster.acks.by_id.values()
    assert ack.tubes.texts == [b"other", b"mail.*"]
    entry.ask("ackjob", id)
    assert ack.tubes is EVERY_TUBE
    guild.heal()
    guild.run(60_000)
    assert nothing_left(guild)


def test_a_fastack_of_a_job_that_was_never_here_is_not_counted() -> None:
    """This holds also after an ACKJOB of it, which this node keeps until all nodes have answered."""
    guild = NodeCluster(3)
    guild[0].ask("tube", "create", "strict", "type", "fifottl")
    guild.run(1_000)
    id = guild[0].ask("put", "strict", "body")
    guild.isolate(1)
    assert guild[1].ask("ackjob", id) == 0 and guild[1].cluster.acks.dummies == 1
    assert guild[1].ask("fastack", id) == 0
