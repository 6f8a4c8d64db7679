"""Tubes that live on one node: the directory of homes, and the election of a home."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import messages as m
from penstock.cluster.messages import NODE_FAILED
from penstock.core.copy_commands import is_shared
from penstock.core.policy import FIFOTTL

from .cluster_nodes import Node, NodeCluster

TIMEOUT_MS = 15_000


def homes_of(guild: NodeCluster, tube: bytes) -> list[int]:
    """Return the nodes that have a strict tube of this name."""
    there = [(node.number, node.engine.tubes.get(tube)) for node in guild.nodes]
    return [number for number, found in there if found is not None and not is_shared(found)]


def known(node: Node) -> dict[bytes, int]:
    """Return the tubes that a node knows to live on other nodes, with their homes."""
    return {tube: int(home[:8], 16) // 0x1111_1111 - 1 for tube, home in node.cluster.homes.by_tube.items()}


# ---- The directory ---------------------------------------------------------------------------------------------------


def test_every_node_knows_the_home_of_a_tube_until_it_is_dropped() -> None:
    guild = NodeCluster(3)
    assert guild[1].ask("put", "mail", "body").startswith(b"D-")
    assert [known(node) for node in guild.nodes] == [{b"mail": 1}, {}, {b"mail": 1}]
    for number in (0, 2):
        refused = guild[number].ask("take", "mail")
        assert refused == f"NOHOME tube 'mail' lives on node {guild[1].id.decode()}; connect to that node"
    assert guild[1].ask("take", "mail")
    guild[1].ask("ack", "mail#0")
    assert guild[1].ask("tube", "drop", "mail") == b"OK"
    assert [known(node) for node in guild.nodes] == [{}, {}, {}]
    assert guild[0].ask("take", "mail").startswith("NOTUBE")


def test_shared_queues_have_no_home() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000)
    assert all(not node.cluster.homes.by_tube for node in guild.nodes)
    assert not guild.sent[m.CLAIM]


def test_no_node_creates_a_queue_whose_name_has_a_home_elsewhere() -> None:
    guild = NodeCluster(3)
    guild[0].ask("put", "mail", "body")
    image = m.JobImage(b"D-33333333-" + 24 * b"a" + b"-05a1", b"mail", b"body")
    image.ttl_ms = image.retry_ms = 60_000
    for kind in (m.REPLJOB, m.YOURJOBS):
        guild[1].cluster.receive(guild[2].id, m.JobsMessage(kind, [image]), guild.now)
    guild.settle()
    assert [list(node.engine.tubes) for node in guild.nodes] == [[b"mail"], [], []]


def test_a_long_list_of_homes_is_sent_in_parts_together_with_changes() -> None:
    guild = NodeCluster(2)
    for number in range(2_500):
        guild[0].engine.create_tube(b"t%d" % number, FIFOTTL, guild.now)
    guild.settle()
    guild.restart(1)
    assert len(known(guild[1])) == 1_000
    guild[0].ask("tube", "drop", "t10")
    guild[0].ask("put", "new", "body")
    guild.run(10)
    assert known(guild[1]) == {b"t%d" % number: 0 for number in range(2_500) if number != 10} | {b"new": 0}
    told = guild.sent[m.HOMES]
    guild.run(1_000)
    assert guild.sent[m.HOMES] == told


def test_a_restarted_node_knows_the_tubes_of_a_node_that_is_down() -> None:
    guild = NodeCluster(3, disks=True)
    guild[0].ask("put", "mail", "body")
    guild.down.add(0)
    guild.restart(1)
    assert known(guild[1]) == {b"mail": 0}
    assert guild[1].ask("put", "mail", "body").startswith("NOHOME tube 'mail' lives on node")


def test_a_list_of_homes_removes_tubes_that_their_node_lost() -> None:
    guild = NodeCluster(3)
    guild[0].ask("put", "mail", "body")
    guild.restart(0, forgets=True)
    assert [known(node) for node in guild.nodes] == [{}, {}, {}]


def test_the_tubes_of_a_removed_node_can_be_created_elsewhere() -> None:
    guild = NodeCluster(3)
    guild[0].ask("put", "mail", "body")
    guild.down.add(0)
    for number in (1, 2):
        assert guild[number].members.forget(guild[0].id, guild.now)
    guild.settle()
    assert known(guild[1]) == {}
    assert guild[1].ask("put", "mail", "body").startswith(b"D-")


def test_two_nodes_that_created_a_tube_before_they_met_both_keep_it_and_report_it() -> None:
    guild = NodeCluster(3)
    guild.nodes[2].engine.create_tube(b"mail", FIFOTTL, guild.now)
    guild.nodes[0].engine.create_tube(b"mail", FIFOTTL, guild.now)
    guild.settle()
    disputes = [dict(node.cluster.homes.disputes) for node in guild.nodes]
    assert disputes == [{b"mail": guild[2].id}, {}, {b"mail": guild[0].id}]
    assert known(guild[1]) == {b"mail": 0}
    assert guild[0].ask("tube", "drop", "mail") == b"OK"
    assert known(guild[1]) == {b"mail": 2}
    assert not guild[2].cluster.homes.disputes


# ---- Claims ----------------------------------------------------------------------------------------------------------


def test_a_node_without_peers_creates_a_tube_at_once() -> None:
    guild = NodeCluster(1)
    assert guild[0].ask("put", "mail", "body").startswith(b"D-")
    assert not guild.sent


def test_no_tube_is_created_while_a_node_cannot_be_asked() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    client, other = guild[0].connect(), guild[2].connect()
    assert client.ask("put", "mail", "body") is None
    assert other.ask("tube", "create", "mail") is None
    guild.run(TIMEOUT_MS)
    refused, lost = client.answer_so_far(), guild[2].id.decode()
    where = f"node {lost} at 10.0.0.3:7711"
    assert refused.startswith(f"NOHOME tube 'mail' cannot be created while {where} cannot be reached")
    assert refused.endswith(f"penstock cluster forget {lost}")
    assert other.answer_so_far().startswith("NOHOME tube 'mail' cannot be created while node")
    assert homes_of(guild, b"mail") == []


def test_a_majority_creates_a_tube_when_the_other_nodes_are_failed() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    guild.run(3 * TIMEOUT_MS)
    assert guild[0].members.peers[guild[2].id].flags & NODE_FAILED
    assert guild[0].ask("put", "mail", "body").startswith(b"D-")
    lonely = guild[2].connect()
    assert lonely.ask("put", "mail", "body") is None
    guild.run(TIMEOUT_MS)
    assert lonely.answer_so_far().startswith("NOHOME")
    assert homes_of(guild, b"mail") == [0]


def test_a_moving_partition_does_not_let_a_minority_create_a_tube() -> None:
    guild = NodeCluster(3)
    guild.cut = {(0, 1), (1, 0)}
    guild.run(3 * TIMEOUT_MS)
    # The cut heals, and the node that received reports about both is cut off. It must not declare both failed.
    guild.cut.clear()
    guild.isolate(2)
    guild.run(3 * TIMEOUT_MS)
    assert not all(peer.flags & NODE_FAILED for peer in guild[2].members.peers.values())
    assert guild[0].ask("put", "mail", "body").startswith(b"D-")
    lonely = guild[2].connect()
    lonely.ask("put", "mail", "body")
    guild.run(TIMEOUT_MS)
    assert lonely.answer_so_far().startswith("NOHOME")
    assert homes_of(guild, b"mail") == [0]


def test_a_node_that_sees_all_others_as_failed_creates_no_tube() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    for peer in guild[2].members.peers.values():
        peer.flags |= NODE_FAILED
    lonely = guild[2].connect()
    assert lonely.ask("put", "mail", "body") is None
    guild.run(TIMEOUT_MS)
    refused = lonely.answer_so_far()
    assert refused.startswith("NOHOME tube 'mail' cannot be created while most nodes cannot be reached; ")
    assert homes_of(guild, b"mail") == []
    for number in (0, 1):
        guild[2].members.forget(guild[number].id, guild.now)
    assert lonely.ask("put", "mail", "body").startswith(b"D-")


def test_a_third_node_names_the_home_of_a_tube() -> None:
    guild = NodeCluster(3)
    guild.isolate(2)
    guild[0].engine.create_tube(b"mail", FIFOTTL, guild.now)
    guild.settle()
    guild.heal()
    guild.cut |= {(0, 2), (2, 0)}
    refusal = f"NOHOME tube 'mail' lives on node {guild[0].id.decode()}; connect to that node"
    assert guild[2].ask("put", "mail", "body") == refusal


def test_of_simultaneous_claims_the_least_id_wins_and_commands_are_forwarded() -> None:
    guild = NodeCluster(3)
    clients = [node.connect() for node in guild.nodes]
    for node, client in reversed(list(zip(guild.nodes, clients, strict=True))):
        node.dispatcher.run_all(client, [[b"put", b"mail", b"body"]], 0, guild.now)
    guild.run(100)
    answers = [client.answer_so_far() for client in clients]
    assert answers[0].startswith(b"D-")
    assert all(answer.startswith(f"NOHOME tube 'mail' lives on node {guild[0].id.decode()}") for answer in answers[1:])
    assert [known(node) for node in guild.nodes] == [{}, {b"mail": 0}, {b"mail": 0}]
    assert not any(node.cluster.elections.by_tube for node in guild.nodes)


def test_a_grant_is_valid_until_the_claimant_withdraws() -> None:
    guild = NodeCluster(3)
    guild.cut.add((2, 0))  # Node 0 does not receive messages of node 2.
    client = guild[0].connect()
    assert client.ask("put", "mail", "body") is None
    assert known(guild[1]) == known(guild[2]) == {b"mail": 0}
    guild.down.add(0)
    guild.run(3 * TIMEOUT_MS)
    # It is unknown whether the tube was created.
    assert guild[1].ask("put", "mail", "body").startswith("NOHOME tube 'mail' lives on node")
    guild.down.clear()
    guild.heal()
    guild.restart(0)
    assert known(guild[1]) == {}
    assert guild[1].ask("put", "mail", "body").startswith(b"D-")


def test_a_list_of_homes_during_an_election_cancels_no_valid_grant() -> None:
    guild = NodeCluster(3)
    guild.cut.add((2, 0))
    client = guild[0].connect()
    assert client.ask("put", "mail", "body") is None
    # Its own link was lost and is back, so it asks for the whole list.
    guild[1].cluster.link_up(guild[0].id, guild[0].id, guild[0].members.incarnation, guild.now)
    guild.lost.add(m.CLAIM)
    guild.settle()
    assert known(guild[1]) == {}
    guild.heal()
    guild.run(1_000)
    assert client.answer_so_far() is None
    guild.lost.clear()
    guild.run(1_000)
    assert client.answer_so_far().startswith(b"D-")


def test_a_claim_is_withdrawn_when_its_client_leaves() -> None:
    guild = NodeCluster(3)
    guild.cut.add((2, 0))
    client = guild[0].connect()
    assert client.ask("put", "mail", "body") is None
    guild[0].engine.disconnect(client.connection, guild.now)
    guild.settle()
    assert not guild[0].cluster.elections.by_tube
    assert known(guild[1]) == {}


def test_a_granted_claim_is_withdrawn_if_the_tube_is_not_created_in_time() -> None:
    guild = NodeCluster(2)
    wait = guild[0].cluster.elections.start(b"mail", guild.now)
    guild.settle()
    assert wait.granted and known(guild[1]) == {b"mail": 0}
    guild.run(TIMEOUT_MS)
    assert known(guild[1]) == {}


def test_a_shared_queue_of_the_same_name_prevents_a_strict_tube() -> None:
    guild = NodeCluster(2)
    guild[1].ask("addjob", "mail", "body", 1000, "replicate", 1)
    refused = guild[0].ask("put", "mail", "body")
    assert refused.startswith(f"TUBEEXISTS tube 'mail' exists as a shared queue on node {guild[1].id.decode()}")


def test_a_take_of_tubes_on_different_nodes_is_refused() -> None:
    guild = NodeCluster(2)
    guild[0].ask("put", "a", "body")
    guild[1].ask("put", "b", "body")
    for words in (("take", "a", "AND", "b"), ("take", "b", "COUNT", 2, "AND", "a"), ("getjob", "from", "a", "b")):
        assert guild[0].ask(*words).startswith("CROSSHOME tubes"), words
    assert guild[0].ask("take", "b", "and", "b").startswith("NOHOME")


def test_an_ack_from_another_node_applies_to_shared_jobs_only() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("put", "mail", "body")
    for word in ("ackjob", "fastack", "deljob"):
        assert guild[1].ask(word, id) == 0
    guild.run(60_000)
    assert len(guild[0].jobs()) == 1
    assert not guild[1].cluster.acks.by_id


# Random steps, and the node that each concerns.
KINDS = ["put", "race", "part", "isolate", "heal", "restart", "pause"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 3), STEPS)
def test_concurrent_claims_never_give_a_tube_two_homes(count: int, steps: list[tuple[str, int]]) -> None:
    guild = NodeCluster(count, disks=True)
    for what, number in steps:
        node = guild[number % count]
        if what in ("put", "race"):
            # All nodes ask before any message is delivered.
            for each in guild.nodes if what == "race" else [node]:
                each.dispatcher.run_all(each.connect(), [[b"put", b"mail", b"body"]], 0, guild.now)
        elif what == "part":
            # Cut exactly one pair of nodes.
            other = guild[(number + 1) % count]
            guild.cut = {(node.number, other.number), (other.number, node.number)}
            guild.run(3 * TIMEOUT_MS)
        elif what == "isolate":
            guild.isolate(node.number)
            guild.run(3 * TIMEOUT_MS)
        elif what == "heal":
            guild.heal()
            for each in guild.nodes:
                for other in guild.nodes:
                    if other is not each:
                        each.cluster.link_up(other.id, other.id, other.members.incarnation, guild.now)
        elif what == "restart":
            guild.restart(node.number)
        else:
            guild.run(30)
        guild.settle()
        assert len(homes_of(guild, b"mail")) <= 1


def test_a_put_that_follows_an_ack_needs_a_tube_on_the_same_node() -> None:
    guild = NodeCluster(2)
    guild[0].ask("put", "a", "body")
    guild[1].ask("put", "b", "body")
    guild.settle()
    [job] = guild[0].ask("take", "a")
    job_id = job["id"]
    refused = guild[0].ask("ack", job_id, "THEN", "PUT", "a", "next", "THEN", "PUT", "b", "next")
    assert refused.startswith("CROSSHOME tube 'b' is not on the node of tube a")
    [following] = guild[0].ask("ack", job_id, "THEN", "PUT", "a", "next")
    assert [each["id"] for each in guild[0].ask("take", "a")] == [following]


def test_a_batch_and_its_members_are_on_one_node() -> None:
    guild = NodeCluster(2)
    guild[0].ask("put", "reports", "first")
    guild[1].ask("put", "pages", "first")
    guild.settle()
    refused = guild[0].ask("batch", "create", "b", "THEN", "PUT", "reports", "x", "THEN", "PUT", "pages", "x")
    assert refused.startswith("CROSSHOME tube 'pages' is not on the node of batch b")
    assert guild[0].ask("batch", "create", "b", "THEN", "PUT", "reports", "x") == b"OK"
    assert guild[1].ask("put", "pages", "x", "BATCH", "b").startswith("NOBATCH")
    assert len(guild[0].ask("put", "reports", "member", "BATCH", "b")) == 40
