"""Copies on other nodes: when a put is answered, and when it is refused."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.cluster import messages as m
from penstock.cluster.images import image_of
from penstock.cluster.messages import JobsMessage
from penstock.core.policy import DISQUE

from .cluster_nodes import Client, Node, NodeCluster


def test_an_addjob_is_answered_when_enough_nodes_have_a_copy() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    assert id.startswith(b"D-")
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 1]
    assert guild.queued("q") == [1, 0, 0]
    assert guild.sent == {m.REPLJOB: 2, m.GOTJOB: 2}
    shown = guild[2].ask("show", id)
    assert dict(zip(shown[::2], shown[1::2]))[b"body"] == b"body"


def test_an_ack_of_a_job_with_three_copies_takes_six_messages() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    assert guild[0].ask("getjob", "from", "q")[0][1] == id
    guild.sent.clear()
    assert guild[0].ask("ackjob", id) == 1
    assert guild.sent == {m.SETACK: 2, m.GOTACK: 2, m.DELJOB: 2}
    assert [len(node.jobs()) for node in guild.nodes] == [0, 0, 0]
    assert all(not node.cluster.acks.by_id and list(node.engine.notes) == [b"memory"] for node in guild.nodes)


def test_a_fast_ack_takes_two_messages() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    guild.sent.clear()
    assert guild[1].ask("fastack", id) == 1
    assert guild.sent == {m.DELJOB: 2}
    assert [len(node.jobs()) for node in guild.nodes] == [0, 0, 0]


def test_if_too_few_nodes_answer_one_more_is_asked_every_50_ms() -> None:
    guild = NodeCluster(5)
    guild.cut |= {(0, number) for number in (1, 2)}
    client = guild[0].connect()
    id = client.ask("addjob", "q", "body", 1000, "replicate", 3)
    guild.run(200)
    id = id or client.answer_so_far()
    assert id.startswith(b"D-")
    assert {number for number in (3, 4) if guild[number].jobs()} == {3, 4}


def test_a_large_job_has_time_to_arrive_before_it_is_sent_again() -> None:
    guild = NodeCluster(3)
    guild.cut |= {(0, 1), (0, 2)}
    guild[0].connect().ask("addjob", "q", "x" * (4 << 20), 5000)
    guild.run(200)
    assert guild.sent[m.REPLJOB] == 2
    guild.run(100)
    assert guild.sent[m.REPLJOB] == 4


def test_a_node_that_handed_its_copy_over_does_not_count() -> None:
    guild = NodeCluster(3)
    guild.cut |= {(0, 2)}
    client = guild[0].connect()
    assert client.ask("addjob", "q", "body", 0, "replicate", 3) is None
    guild[1].cluster.handovers.hand_over(guild[1].jobs(), guild[0].id, guild.now)
    guild.settle()
    assert not guild[1].jobs()
    guild.heal()
    guild.run(4_000)
    assert client.answer_so_far().startswith(b"D-")
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 1]


def test_after_the_timeout_the_producer_is_refused_and_copies_are_deleted() -> None:
    guild = NodeCluster(3)
    guild.cut |= {(0, 2)}
    client = guild[0].connect()
    assert client.ask("addjob", "q", "body", 400, "replicate", 3) is None
    guild.run(300)
    assert len(guild[1].jobs()) == 1
    guild.run(200)
    assert client.answer_so_far() == "NOREPL Timeout reached before replicating to the requested number of nodes"
    assert not guild[0].jobs() and not guild[1].jobs()
    assert guild[0].cluster.replications.given_up == 1


def test_a_very_short_timeout_is_raised_to_a_tenth_of_a_second() -> None:
    guild = NodeCluster(3)
    guild.lost.add(m.REPLJOB)
    late, hopeless = guild[0].connect(), guild[0].connect()
    assert late.ask("addjob", "q", "body", 1, "replicate", 3) is None
    guild.run(20)
    guild.lost.clear()
    guild.run(40)
    assert late.answer_so_far().startswith(b"D-")
    guild.isolate(2)
    assert hopeless.ask("addjob", "q", "body", 1, "replicate", 3) is None
    guild.run(99)
    assert hopeless.answer_so_far() is None
    guild.run(1)
    assert hopeless.answer_so_far().startswith("NOREPL")


def test_the_job_of_a_producer_that_disconnects_is_dropped() -> None:
    guild = NodeCluster(3)
    guild.cut |= {(0, 2)}
    client = guild[0].connect()
    client.ask("addjob", "q", "body", 0, "replicate", 3)
    guild[0].engine.disconnect(client.connection, guild.now)
    guild.settle()
    assert not guild[0].jobs() and not guild[1].jobs()


def test_a_job_that_expires_before_it_has_its_copies_is_refused() -> None:
    guild = NodeCluster(2)
    guild.isolate(1)
    client = guild[0].connect()
    assert client.ask("addjob", "q", "body", 0, "replicate", 2, "ttl", 1) is None
    guild.run(1_100)
    assert "expired" in client.answer_so_far()
    assert not guild[0].jobs()


def test_an_async_add_is_answered_at_once_and_replicated() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 0, "async", "replicate", 3)
    assert id and [len(node.jobs()) for node in guild.nodes] == [1, 1, 1]
    assert guild.sent == {m.REPLJOB: 2}


@pytest.mark.parametrize("words", [[], ["async"], ["replicate", 1], ["retry", 0, "replicate", 1]], ids=str)
def test_an_add_does_not_exceed_the_capacity_of_the_queue(words: list[object]) -> None:
    guild = NodeCluster(3)
    guild[0].engine.create_tube(b"q", replace(DISQUE, capacity=2), guild.now)
    for body in ("a", "b"):
        assert guild[0].ask("addjob", "q", body, 0, *words).startswith(b"D-")
    assert guild[0].ask("addjob", "q", "c", 0, *words).startswith("FULL tube 'q' is full")
    guild[0].ask("fastack", guild[0].ask("getjob", "from", "q")[0][1])
    assert guild[0].ask("addjob", "q", "c", 0, *words).startswith(b"D-")


def test_an_add_to_a_node_that_leaves_does_not_exceed_the_capacity_of_the_queue() -> None:
    guild = NodeCluster(2)
    guild[0].engine.create_tube(b"q", replace(DISQUE, capacity_bytes=4), guild.now)
    assert guild[0].ask("addjob", "q", "abc", 0).startswith(b"D-")
    guild[0].cluster.set_leaving(True, guild.now)
    assert guild[0].ask("addjob", "q", "de", 0, "replicate", 1).startswith("FULL tube 'q' is full")


def test_copies_are_stored_even_if_the_queue_is_full_here() -> None:
    guild = NodeCluster(2)
    guild[0].engine.create_tube(b"q", replace(DISQUE, capacity=1), guild.now)
    for body in ("a", "b"):
        assert guild[1].ask("addjob", "q", body, 0).startswith(b"D-")
    assert [len(node.jobs()) for node in guild.nodes] == [2, 2]


def test_the_default_number_of_copies_follows_reachable_nodes() -> None:
    guild = NodeCluster(3)
    guild.down.add(2)
    guild.isolate(2)
    guild.run(40_000)
    assert guild[0].ask("addjob", "q", "body", 1000).startswith(b"D-")
    assert guild[0].ask("addjob", "q", "body", 1000, "replicate", 3).startswith("NOREPL")
    assert "REPLICATE to 1" in guild[0].ask("addjob", "q", "body", 1000, "retry", 0)


def test_a_copy_and_its_holders_survive_a_restart() -> None:
    guild = NodeCluster(3, disks=True)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 5)
    for number in range(3):
        guild.restart(number)
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 1]
    holders = [sorted(node.jobs()[0].copy().holders) for node in guild.nodes]
    assert holders == [sorted(node.id for node in guild.nodes)] * 3
    assert guild.queued("q") == [1, 0, 0]
    assert guild[1].ask("ackjob", id) == 1
    assert [len(node.jobs()) for node in guild.nodes] == [0, 0, 0]


def test_a_job_that_waited_for_copies_is_queued_after_a_crash() -> None:
    guild = NodeCluster(2, disks=True)
    guild.lost.add(m.GOTJOB)
    assert guild[0].ask("addjob", "q", "body", 0, "replicate", 2) is None
    guild.restart(0)
    assert guild.queued("q") == [1, 0]


def test_an_ack_that_is_not_collected_survives_a_restart() -> None:
    guild = NodeCluster(2, disks=True)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 600)
    guild.isolate(1)
    guild[0].ask("ackjob", id)
    guild.restart(0)
    assert list(guild[0].cluster.acks.by_id) == [id]
    guild.heal()
    guild.run(10_000)
    assert list(guild[0].engine.notes) == [b"memory"] and not guild[1].jobs()
    guild.restart(0)
    assert not guild[0].cluster.acks.by_id


def test_messages_of_unknown_nodes_are_ignored() -> None:
    guild = NodeCluster(2)
    guild[0].cluster.receive(b"f" * 40, m.JobMessage(m.DELJOB, b"D" * 40), guild.now)
    assert guild[0].cluster.ignored == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_node_whose_log_has_no_room_left_makes_room_for_a_copy(asynchronous: bool) -> None:
    """Its disk has space. A node that receives jobs of clients only would make room by itself."""
    guild = NodeCluster(3, disks=True)
    guild[1].engine.room_bytes = -2_048
    options = ["replicate", 3, *(["async"] if asynchronous else [])]
    id = guild[0].ask("addjob", "q", "body", 0, *options)
    assert id is not None and len(guild[1].jobs()) == 1


# The default number of copies


def waiting_add(guild: NodeCluster, *options: object) -> Client:
    """Send an ADDJOB that waits for its copies without a time limit."""
    client = guild[0].connect()
    client.ask("addjob", "q", "body", 0, *options)
    return client


def below_default(guild: NodeCluster) -> int:
    return int(guild[0].cluster.replications.below_default)


def kill(guild: NodeCluster, number: int) -> None:
    """Stop a node, and close the links to it."""
    guild.down.add(number)
    for node in guild.nodes:
        if node.number != number:
            node.cluster.link_down(guild[number].id, guild.now)


def test_the_default_does_not_wait_for_a_node_that_was_killed() -> None:
    guild = NodeCluster(3)
    guild.down.add(2)
    before = guild[0].connect()
    assert before.ask("addjob", "q", "body", 0) is None, "its copies are under way"
    kill(guild, 2)
    after = waiting_add(guild)
    explicit = waiting_add(guild, "replicate", 3)
    guild.run(500)
    assert before.answer_so_far() is not None and after.answer_so_far() is not None
    assert below_default(guild) == 2
    assert explicit.answer_so_far() is None, "an explicit number keeps its meaning"


def test_a_link_that_is_lost_for_a_moment_does_not_reduce_the_copies() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    guild[0].cluster.link_down(guild[2].id, guild.now)
    client = waiting_add(guild)
    guild.run(150)
    assert client.answer_so_far() is None
    guild.heal()
    guild[0].cluster.link_up(guild[2].id, guild[2].id, guild[2].members.incarnation, guild.now)
    guild.run(200)
    assert client.answer_so_far() is not None
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 1] and below_default(guild) == 0


def short_of_memory(node: Node) -> None:
    node.engine.memory_max = 1


def full(node: Node) -> None:
    node.engine.room_bytes = -1


def paused(node: Node) -> None:
    node.ask("pause", "q", "in")


@pytest.mark.parametrize("refuse", [short_of_memory, full, paused])
def test_the_default_counts_nodes_that_accept_copies(refuse: Callable[[Node], None]) -> None:
    guild = NodeCluster(3)
    refuse(guild[2])
    assert guild[0].ask("addjob", "q", "body", 0) is not None
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 0]
    assert below_default(guild) == 1 and guild.sent[m.NOTHELD] == 1
    # The refusal is recorded, so the node is not asked again.
    guild.sent.clear()
    assert guild[0].ask("addjob", "q", "body", 0) is not None
    assert guild.sent[m.REPLJOB] == 1 and m.NOTHELD not in guild.sent
    # An add with an explicit number waits for the node.
    assert guild[0].connect().ask("addjob", "q", "body", 0, "replicate", 3) is None


def test_a_node_that_accepts_copies_again_is_counted_again() -> None:
    guild = NodeCluster(3)
    guild[2].ask("pause", "q", "in")
    guild[0].ask("addjob", "q", "body", 0)
    guild[2].ask("pause", "q", "none")
    guild.run(1_100)
    assert guild[0].ask("addjob", "q", "body", 0) is not None
    assert [len(node.jobs()) for node in guild.nodes] == [2, 2, 1] and below_default(guild) == 1


def test_an_add_is_answered_although_no_other_node_accepts_copies() -> None:
    guild = NodeCluster(3)
    for node in guild.nodes[1:]:
        short_of_memory(node)
    for _ in range(2):
        assert guild[0].connect().ask("addjob", "q", "body", 0) is not None
    assert [len(node.jobs()) for node in guild.nodes] == [2, 0, 0] and below_default(guild) == 2
    kill(guild, 1)
    kill(guild, 2)
    guild.run(2_000)
    assert guild[0].connect().ask("addjob", "q", "body", 0) is not None


def test_a_node_that_gets_another_id_gives_up_the_jobs_that_wait_for_copies() -> None:
    guild = NodeCluster(2)
    guild.lost.add(m.REPLJOB)
    node = guild[0]
    assert node.ask("addjob", "q", "body", 5_000) is None
    node.cluster.state.ids.rename(b"99999999")
    node.cluster.reset(b"9" * 40, guild.now)
    node.mail.take()
    assert not node.cluster.replications.by_id
    node.engine.truncate(node.engine.tubes[b"q"], guild.now, 10)
    for _ in range(5):
        guild.now += 100
        node.turn()
    assert b"NOREPL" in str(node.client.answer_so_far()).encode()
    assert not node.jobs()


@pytest.mark.parametrize("how", ["copy", "given", "handed over"])
def test_a_late_copy_of_a_job_that_was_moved_to_a_tube_of_this_node_is_not_stored(how: str) -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 5_000)
    [job] = guild[0].jobs()
    late = JobsMessage(m.REPLJOB if how == "copy" else m.YOURJOBS, [image_of(guild[0].cluster.state, job, guild.now)])
    if how == "handed over":
        late.number = 1
        late.sender_incarnation = guild[0].members.incarnation
        late.receiver_incarnation = guild[1].members.incarnation
    guild[1].ask("tube", "create", "strict", "type", "utube")
    assert guild[1].ask("enqueue", id) == 1
    assert guild[1].ask("job", "move", id, "strict") == b"OK"
    guild.sent.clear()
    guild[1].cluster.receive(guild[0].id, late, guild.now)
    guild.settle()
    assert [guild[1].engine.tube_of(job).name for job in guild[1].jobs()] == [b"strict"]
    assert guild.sent == ({m.TAKENOVER: 1} if how == "handed over" else {m.DELJOB: 1})
