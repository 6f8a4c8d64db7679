"""The table of nodes: joining, gossip, failures, removal."""

import pytest

from penstock.cluster.members import FORGOTTEN_MS, HANDSHAKES_MAX, MEET_MS, NODES_MAX, Members
from penstock.cluster.messages import (
    FAIL,
    MEET,
    NODE_FAILED,
    NODE_LEAVING,
    NODE_SUSPECTED,
    PING,
    PONG,
    FailMessage,
    Greeting,
    Rumour,
)
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import NOADDR
from penstock.cluster.roster import file_text, read_file
from penstock.core.limits import NEVER

from .member_tables import TIMEOUT_MS, MemberNetwork, town_of


def test_a_node_that_is_met_becomes_a_member_on_both_sides():
    town = MemberNetwork(2)
    town.meet(0, 1)
    assert town.nodes[0].size() == 1, "an address is no member"
    town.run(500)
    assert town.everybody_knows_everybody()


@pytest.mark.parametrize("count", [3, 7, 20])
def test_a_chain_of_meetings_becomes_a_mesh(count):
    town = MemberNetwork(count)
    for other in range(1, count):
        town.meet(other - 1, other)
    town.run(4_000)
    assert town.everybody_knows_everybody()


def test_a_node_without_peers_has_no_timers():
    town = MemberNetwork(1)
    assert town.nodes[0].next_due == NEVER and town.nodes[0].size() == 1


def test_a_node_does_not_meet_itself():
    town = MemberNetwork(1)
    town.meet(0, 0)
    town.run(500)
    assert not town.nodes[0].peers


def test_an_address_that_does_not_answer_is_given_up_and_reported():
    town = MemberNetwork(1)
    assert town.nodes[0].meet("10.9.9.9", 7711, 17711, town.now)
    town.run(MEET_MS - 500)
    assert town.nodes[0].peers and not town.nodes[0].take_unmet()
    town.run(1_000)
    assert not town.nodes[0].peers and town.nodes[0].next_due == NEVER
    assert [(peer.host, peer.bus_port) for peer in town.nodes[0].take_unmet()] == [("10.9.9.9", 17711)]
    assert not town.nodes[0].take_unmet()


def test_a_suspended_node_is_met_when_it_resumes():
    town = MemberNetwork(2)
    town.down.add(1)
    town.meet(0, 1)
    town.run(10 * TIMEOUT_MS)
    town.down.clear()
    town.run(1_000)
    assert town.everybody_knows_everybody()


def test_a_node_that_was_suspended_continues_meeting():
    town = MemberNetwork(2)
    town.meet(0, 1)
    town.down.add(0)
    town.run(MEET_MS + TIMEOUT_MS)
    town.down.clear()
    town.run(1_000)
    assert town.everybody_knows_everybody()


def restart(town: MemberNetwork, number: int) -> None:
    """Replace a node by a process that has its file."""
    before = town.nodes[number]
    mail = PeerOutbox()
    node = Members(before.myself, before.incarnation, number + 101, mail, TIMEOUT_MS)
    node.announced, node.host, node.port, node.bus_port = before.announced, before.host, before.port, before.bus_port
    roster = read_file(file_text(before))
    node.restore(roster.peers, town.now, roster.past)
    town.nodes[number], town.mails[number] = node, mail
    for other in town.nodes:
        other.link_down(node.myself, town.now)


def test_a_node_that_is_killed_while_it_meets_another_one_tries_again():
    town = MemberNetwork(3)
    town.meet(0, 1)
    town.run(500)
    town.meet(2, 0)
    assert town.nodes[2].changes == 1, "the file is written before MEET is sent"
    # The other node receives MEET and answers. The answer is lost with the process.
    town.cut.add((0, 2))
    town.turn()
    town.turn()
    assert town.nodes[2].myself in town.nodes[0].peers and not town.nodes[2].reachable()
    restart(town, 2)
    town.cut.clear()
    town.run(500)
    assert town.nodes[0].is_member(town.nodes[2].myself)
    town.run(2_000)
    assert town.everybody_knows_everybody()
    assert not any("invited" in file_text(node) for node in town.nodes)


def test_a_member_that_is_met_again_is_sent_meet_after_a_restart():
    town = town_of(2)
    town.nodes[1].forget(town.nodes[0].myself, town.now)
    town.cut.add((0, 1))
    changes = town.nodes[0].changes
    town.meet(0, 1)
    assert town.nodes[0].changes == changes + 1
    restart(town, 0)
    town.cut.clear()
    town.run(500)
    assert town.everybody_knows_everybody()


def test_an_answer_without_a_link_does_not_end_the_meeting():
    town = MemberNetwork(2)
    town.meet(0, 1)
    town.turn()
    node, other = town.nodes
    node.link_down(other.myself, town.now)
    node.receive(other.myself, Greeting(PONG, other.host, 7711, 17711, 0, bytes(16), []), town.now)
    assert not node.is_member(other.myself)
    restart(town, 0)
    town.run(500)
    assert town.everybody_knows_everybody()


def test_an_address_that_was_given_up_is_not_tried_after_a_restart():
    town = MemberNetwork(1)
    assert town.nodes[0].meet("10.9.9.9", 7711, 17711, town.now)
    restart(town, 0)
    changes = town.nodes[0].changes
    town.run(MEET_MS + 500)
    assert len(town.nodes[0].take_unmet()) == 1 and town.nodes[0].changes > changes
    assert not read_file(file_text(town.nodes[0])).peers


def test_a_dead_node_is_suspected_and_then_declared_failed_by_the_majority():
    town = town_of(3)
    town.kill(2)
    town.run(TIMEOUT_MS // 2)
    assert not town.peer(0, 2).is_failing()
    town.run(TIMEOUT_MS)
    assert [town.peer(each, 2).flags for each in (0, 1)] == [NODE_FAILED] * 2
    assert town.nodes[0].reachable() == [town.nodes[1].myself]
    assert town.nodes[0].size() == 3, "it still counts when there is a vote"
    town.down.clear()
    town.run(TIMEOUT_MS)
    assert town.everybody_knows_everybody()


def test_one_of_two_nodes_cannot_declare_the_other_failed():
    town = town_of(2)
    town.kill(1)
    town.run(4 * TIMEOUT_MS)
    assert town.peer(0, 1).flags == NODE_SUSPECTED and town.nodes[0].reachable() == []


def test_a_minority_suspects_and_does_not_declare_failures():
    town = town_of(5)
    for minority in (3, 4):
        for majority in (0, 1, 2):
            town.cut |= {(minority, majority), (majority, minority)}
    town.run(3 * TIMEOUT_MS)
    assert town.peer(3, 0).flags == NODE_SUSPECTED
    assert town.peer(0, 3).flags == NODE_FAILED
    assert town.nodes[3].failure_reports(town.nodes[0].myself, town.now) == 1
    town.cut.clear()
    town.run(2 * TIMEOUT_MS)
    assert town.everybody_knows_everybody()


def test_a_node_that_receives_and_cannot_send_is_not_reachable():
    town = town_of(3)
    town.cut.add((1, 0))
    town.run(2 * TIMEOUT_MS)
    assert town.nodes[1].myself not in town.nodes[0].reachable()
    assert town.nodes[1].myself in town.nodes[2].reachable()


def test_a_node_that_was_suspended_asks_before_it_suspects():
    town = town_of(3)
    town.down.add(0)
    town.run(2 * TIMEOUT_MS)
    assert town.peer(1, 0).is_failing()
    town.down.clear()
    town.nodes[0].advance(town.now)
    assert len(town.nodes[0].reachable()) == 2
    town.run(TIMEOUT_MS)
    assert town.everybody_knows_everybody()


def test_a_node_that_leaves_is_a_member_and_no_target():
    town = town_of(3)
    town.nodes[1].set_leaving(True, town.now)
    town.run(100)
    assert town.peer(0, 1).flags == NODE_LEAVING
    assert town.nodes[0].reachable() == [town.nodes[2].myself] and town.nodes[0].size() == 3
    town.nodes[1].set_leaving(False, town.now)
    town.run(100)
    assert town.everybody_knows_everybody()


def test_a_removed_node_does_not_return_by_gossip():
    town = town_of(4)
    gone = town.nodes[3].myself
    town.kill(3)
    town.nodes[0].forget(gone, town.now)
    town.run(1_000)
    assert gone not in town.nodes[0].peers and gone in town.nodes[1].peers
    assert not town.nodes[0].forget(gone, town.now)
    town.nodes[1].forget(gone, town.now)
    town.nodes[2].forget(gone, town.now)
    town.down.clear()
    town.run(FORGOTTEN_MS + 2_000)
    assert [node.size() for node in town.nodes[:3]] == [3, 3, 3], "though it knows them, and greets them"
    assert town.nodes[3].reachable() == [], "nobody answers a stranger, so it knows that it is one"
    town.meet(0, 3)
    town.run(3_000)
    assert town.everybody_knows_everybody()


def test_a_removed_node_can_be_met_again():
    town = town_of(2)
    for one, other in ((0, 1), (1, 0)):
        town.nodes[one].forget(town.nodes[other].myself, town.now)
    town.meet(1, 0)
    town.run(500)
    assert town.everybody_knows_everybody()


def test_a_peer_that_was_reset_is_no_target_and_then_removed():
    town = town_of(3)
    old = town.nodes[2].myself
    town.nodes[2].reset(b"f" * 40)
    town.run(200)
    assert all(town.nodes[each].peers[old].flags & NOADDR for each in (0, 1))
    assert old not in town.nodes[0].reachable()
    town.run(3 * TIMEOUT_MS)
    assert [node.size() for node in town.nodes] == [2, 2, 1]


def test_a_node_that_moved_is_found_at_its_new_address():
    town = town_of(3)
    town.nodes[2].host = town.nodes[2].announced = "10.0.0.99"
    town.run(TIMEOUT_MS)
    assert town.peer(0, 2).host == "10.0.0.99"
    assert town.everybody_knows_everybody()


def test_two_nodes_may_swap_addresses():
    town = town_of(3)
    one, other = town.nodes[1], town.nodes[2]
    one.host, other.host = other.host, one.host
    one.announced, other.announced = one.host, other.host
    town.run(3 * TIMEOUT_MS)
    assert town.everybody_knows_everybody()
    assert town.peer(0, 1).host == one.host


def test_greetings_of_unknown_nodes_are_ignored():
    town = town_of(2)
    node, stranger = town.nodes[0], b"e" * 40
    rumour = Rumour(b"d" * 40, "10.0.0.50", 7711, 17711, 0)
    node.receive(stranger, Greeting(PING, "10.0.0.60", 7711, 17711, 0, bytes(16), [rumour]), town.now)
    node.receive(stranger, FailMessage(FAIL, town.nodes[1].myself), town.now)
    assert node.unknown_senders == 2 and len(node.peers) == 1 and len(node.reachable()) == 1


def test_a_node_that_reports_endless_nodes_does_not_fill_the_table():
    town = town_of(2)
    node = town.nodes[0]
    for batch in range(30):
        rumours = [Rumour(b"%040x" % (10_000 + 100 * batch + each), "10.9.9.9", 7711, 17711, 0) for each in range(100)]
        greeting = Greeting(PING, "10.0.0.2", 7711, 17711, 0, bytes(16), rumours)
        node.receive(town.nodes[1].myself, greeting, town.now)
    assert len(node.peers) <= HANDSHAKES_MAX + 1
    for each in range(2 * NODES_MAX):
        node.receive(b"%040x" % (1 << 80 | each), Greeting(MEET, "10.9.9.8", 1, 2, 0, bytes(16), []), town.now)
    assert len(node.peers) <= HANDSHAKES_MAX + 1
    town.run(TIMEOUT_MS + 500)
    assert len(node.peers) == 1 and not node.take_unmet()


def test_a_false_report_of_failure_is_cleared_by_the_next_answer():
    town = town_of(3)
    town.nodes[0].receive(town.nodes[1].myself, FailMessage(FAIL, town.nodes[2].myself), town.now)
    assert town.nodes[0].reachable() == [town.nodes[1].myself]
    town.run(200)
    assert town.everybody_knows_everybody()


def test_the_same_network_twice_gives_the_same_messages():
    def history() -> list[list[int]]:
        town = MemberNetwork(12)
        for other in range(1, 12):
            town.meet(other // 2, other)
        town.run(1_000)
        town.kill(3)
        town.run(2 * TIMEOUT_MS)
        return [mail.sent for mail in town.mails]

    assert history() == history()


def test_meeting_an_address_again_restarts_its_time_limit():
    town = MemberNetwork(2)
    town.cut |= {(0, 1), (1, 0)}
    town.meet(0, 1)
    town.run(TIMEOUT_MS - 100)
    town.meet(0, 1)
    town.run(300)
    town.cut.clear()
    town.run(1_000)
    assert town.everybody_knows_everybody()


def test_meeting_an_address_means_the_node_that_is_there_now():
    town = town_of(2)
    town.nodes[1].reset(b"%040x" % 99)
    town.links.clear()
    for node in town.nodes[0].peers:
        town.nodes[0].link_down(node, town.now)
    town.meet(0, 1)
    town.run(1_000)
    assert town.nodes[0].is_member(b"%040x" % 99)
