"""Of two processes with the same node id, the one with the lower epoch is refused and learns that it was replaced."""

from __future__ import annotations

import random

import pytest

from penstock.cluster.members import Members
from penstock.cluster.messages import PING, Greeting, Rumour
from penstock.cluster.peers import NOADDR, Peer
from penstock.cluster.roster import Roster, file_text, first_text, nodes_text, read_file, successor_text

from .member_tables import TIMEOUT_MS, MemberNetwork, town_of

A, B, C, HEIR = 0, 1, 2, 3


@pytest.fixture
def town() -> MemberNetwork:
    """Return three nodes of which the first is down and marked as failed."""
    town = town_of(3)
    town.kill(A)
    town.run(3 * TIMEOUT_MS)
    assert town.peer(B, A).is_failing() and town.peer(C, A).is_failing()
    return town


def replace(town: MemberNetwork, epoch: int = 1) -> Members:
    """Start a standby as the first node, at another address. It has the others in its table."""
    heir, old = town.build(), town.nodes[A]
    others = [Peer(town.nodes[each].myself, town.nodes[each].host, 7711, 17711) for each in (B, C)]
    heir.myself, heir.epoch = old.myself, epoch
    heir.restore(read_file(first_text(heir.myself, others)).peers, town.now)
    return heir


def is_the_node(town: MemberNetwork, heir: Members) -> bool:
    """Return whether all nodes have the standby in their tables, with its address."""
    known = [town.nodes[each].peers[heir.myself] for each in (B, C)]
    return all(
        peer.epoch == heir.epoch and peer.host == heir.host and peer.is_reachable() and peer.linked for peer in known
    )


def test_a_standby_takes_over_the_node_at_another_address(town: MemberNetwork) -> None:
    heir = replace(town)
    town.run(2_000)
    assert is_the_node(town, heir) and len(heir.reachable()) == 2
    assert not heir.superseded


def test_the_old_process_learns_that_it_was_replaced_and_is_refused(town: MemberNetwork) -> None:
    heir = replace(town)
    town.run(2_000)
    town.down.discard(A)
    for _ in range(40):
        town.run(50)
        assert is_the_node(town, heir)
    assert town.nodes[A].superseded == heir.epoch
    assert not heir.superseded


def test_the_old_process_learns_it_from_a_node_that_the_new_one_never_reached(town: MemberNetwork) -> None:
    heir = replace(town)
    town.cut |= {(HEIR, C), (C, HEIR), (A, B), (B, A), (A, HEIR), (HEIR, A)}
    town.run(2_000)
    town.down.discard(A)
    town.run(2_000)
    assert town.nodes[A].superseded == heir.epoch
    assert town.peer(C, A).epoch == heir.epoch


def test_a_process_that_was_cut_off_learns_that_it_was_replaced_when_it_is_back() -> None:
    town = town_of(3)
    town.isolate(A)
    town.run(3 * TIMEOUT_MS)
    heir = replace(town)
    town.cut |= {(HEIR, A), (A, HEIR)}
    town.run(2_000)
    assert is_the_node(town, heir) and not town.nodes[A].superseded
    town.cut.clear()
    town.run(2_000)
    assert is_the_node(town, heir) and town.nodes[A].superseded == heir.epoch


def test_a_replaced_process_is_refused_after_all_nodes_removed_it_and_were_restarted(town: MemberNetwork) -> None:
    heir = replace(town)
    town.run(2_000)
    town.kill(HEIR)
    for each in (B, C):
        node = town.nodes[each]
        assert node.forget(heir.myself, town.now)
        again = read_file(file_text(node))
        node.past = {}
        node.restore(again.peers, town.now, again.past)
    town.run(70_000)
    town.down.discard(A)
    town.meet(B, A)
    town.run(2_000)
    assert heir.myself not in town.nodes[B].peers and town.nodes[A].superseded == heir.epoch


def test_an_epoch_is_given_once_and_excludes_the_old_process_before_a_new_one_starts(town: MemberNetwork) -> None:
    old = town.nodes[A].myself
    assert town.nodes[B].raise_epoch(old, 1, town.now)
    assert not town.nodes[B].raise_epoch(old, 1, town.now)
    town.run(1_000)
    assert not town.nodes[C].raise_epoch(old, 1, town.now)
    town.down.discard(A)
    town.run(2_000)
    assert town.nodes[A].superseded == 1
    assert not town.peer(B, A).linked
    # This also holds for a former member and for this node itself.
    assert town.nodes[B].raise_epoch(b"f" * 40, 3, town.now) and town.nodes[B].epoch_of(b"f" * 40) == 3
    assert town.nodes[C].raise_epoch(town.nodes[C].myself, 1, town.now) and town.nodes[C].superseded == 1


def test_of_two_standbys_the_one_with_the_greater_epoch_stays(town: MemberNetwork) -> None:
    first, second = replace(town, 1), replace(town, 2)
    town.run(3_000)
    assert is_the_node(town, second)
    assert first.superseded == 2 and not second.superseded


def test_a_node_that_did_not_learn_of_a_standby_in_time_accepts_it_when_gossip_reports_it(town: MemberNetwork) -> None:
    # Another node takes the address of the lost one. One node misses both the new epoch and the standby, and removes
    # the lost node. The operator introduces the standby to the other node.
    new = town.build()
    town.nodes[A].host, new.announced = "10.0.0.99", town.nodes[A].host
    new.host = new.announced
    town.meet(HEIR, B)
    town.run(4 * TIMEOUT_MS)
    old = town.nodes[A].myself
    assert old not in town.nodes[B].peers and old not in town.nodes[C].peers
    standby = town.build()
    standby.myself, standby.epoch = old, 1
    town.meet(4, B)
    town.run(3_000)
    assert is_the_node(town, standby) and town.nodes[HEIR].peers[old].is_reachable()


def report(town: MemberNetwork, node: bytes, epoch: int) -> bool:
    """Make the second node report `node` to the first one. Return whether the first node has it in its table now."""
    greeting = Greeting(PING, "10.0.0.2", 7711, 17711, 0, bytes(16), [Rumour(node, "10.0.0.77", 7711, 17711, 0, epoch)])
    town.nodes[A].receive(town.nodes[B].myself, greeting, town.now)
    return node in town.nodes[A].peers


def test_a_node_that_knew_only_the_epoch_of_a_standby_accepts_it_when_gossip_reports_it(town: MemberNetwork) -> None:
    # As above, but the operator has told all nodes the new epoch (CLUSTER EPOCH) before the standby started.
    new = town.build()
    town.nodes[A].host, new.announced = "10.0.0.99", town.nodes[A].host
    new.host = new.announced
    town.meet(HEIR, B)
    old = town.nodes[A].myself
    for number in (B, C):
        assert town.nodes[number].raise_epoch(old, 1, town.now)
    town.run(4 * TIMEOUT_MS)
    assert old not in town.nodes[B].peers and old not in town.nodes[C].peers
    standby = town.build()
    standby.myself, standby.epoch = old, 1
    town.meet(4, B)
    town.run(3_000)
    assert is_the_node(town, standby) and town.nodes[C].peers[old].is_reachable()


def test_a_node_that_another_one_has_displaced_does_not_come_back_through_gossip_without_a_standby() -> None:
    town = town_of(3)
    old = town.nodes[C].myself
    town.nodes[C].reset(b"f" * 40)
    town.run(3 * TIMEOUT_MS)
    assert [report(town, old, epoch) for epoch in (0, 1)] == [False, True]


def test_a_node_that_the_operator_removed_does_not_come_back_through_gossip_with_a_standby() -> None:
    town = town_of(3)
    old = town.nodes[C].myself
    town.nodes[A].forget(old, town.now)
    assert not report(town, old, 1)
    # This also holds if another node had displaced it a short time before.
    town = town_of(3)
    town.nodes[C].reset(b"f" * 40)
    town.run(3 * TIMEOUT_MS)
    assert report(town, old, 1) and town.nodes[A].forget(old, town.now)
    assert not report(town, old, 2)


def test_the_table_as_text_keeps_epochs(town: MemberNetwork) -> None:
    heir = replace(town)
    town.run(2_000)
    assert town.nodes[B].raise_epoch(b"f" * 40, 3, town.now)
    text = file_text(town.nodes[B])
    assert f"{heir.myself.decode()} {heir.host}:7711 epoch=1 " in text
    assert text.endswith(f"vars epochs {'f' * 40}=3\n")
    roster = read_file(text)
    assert {peer.id: peer.epoch for peer in roster.peers}[heir.myself] == 1
    assert roster.past == {b"f" * 40: 3}
    assert "vars" not in nodes_text(town.nodes[B], "x:1")
    for wrong in (
        f"vars epochs {'f' * 39}=3",
        f"vars epochs {'f' * 40}=x",
        f"{'f' * 40} 1.1.1.1:1 epoch=x 0 0 connected",
    ):
        with pytest.raises(ValueError, match="line 4"):
            read_file("".join(text.splitlines(keepends=True)[:3]) + wrong)


def test_a_node_records_removed_nodes_until_they_are_back(town: MemberNetwork) -> None:
    old, node = town.nodes[A].myself, town.nodes[B]
    assert not node.give_up(b"f" * 40, town.now)
    assert node.give_up(old, town.now) and not node.give_up(old, town.now)
    assert read_file(file_text(node)).given_up == node.given_up == [old]
    assert file_text(node).endswith(f"vars forgotten {old.decode()}\n")
    town.down.discard(A)
    town.meet(B, A)
    town.run(2_000)
    assert node.is_member(old) and node.given_up == []


def test_a_soft_reset_keeps_the_epoch_and_a_new_id_starts_at_zero() -> None:
    node = town_of(2).nodes[A]
    node.epoch = 4
    node.reset(node.myself)
    assert node.epoch == 4
    node.reset(b"e" * 40)
    assert node.epoch == 0


@pytest.mark.parametrize("seed", range(12))
def test_after_random_faults_one_process_of_each_node_is_left(seed: int) -> None:
    """Standbys take over while other nodes are cut off, removed, down or back. A replaced process steps down."""
    chance = random.Random(seed)
    town = town_of(4)
    lost = town.nodes[A].myself
    epoch = 0
    for _ in range(12):
        number = chance.randrange(len(town.nodes))
        what = chance.choice(["isolate", "heal", "kill", "start", "forget", "replace"])
        if what == "isolate":
            town.isolate(number)
        elif what == "heal":
            town.cut.clear()
        elif what == "kill" and number not in (1, 2, 3):
            town.kill(number)
        elif what == "start" and not town.nodes[number].superseded:
            town.down.discard(number)
        elif what == "forget" and number in (1, 2, 3):
            town.nodes[number].forget(lost, town.now)
        elif what == "replace" and len(town.nodes) < 7:
            epoch = 1 + max(epoch, *(town.nodes[each].epoch_of(lost) for each in (1, 2, 3)))
            replace(town, epoch)
        run_with_those_who_step_down(town, chance.randrange(100, 3_000))
    town.cut.clear()
    town.down -= {number for number, node in enumerate(town.nodes) if not node.superseded}
    run_with_those_who_step_down(town, 70_000)
    left = [node.epoch for number, node in enumerate(town.nodes) if node.myself == lost and number not in town.down]
    assert left == [max(node.epoch for node in town.nodes if node.myself == lost)]


def run_with_those_who_step_down(town: MemberNetwork, ms: int) -> None:
    for _ in range(ms // 100):
        town.run(100)
        town.down |= {number for number, node in enumerate(town.nodes) if node.superseded}


def test_a_replaced_node_keeps_its_peers_and_refuses_its_old_id_in_its_old_epoch() -> None:
    known = Roster(b"a" * 40)
    gone = Peer(b"b" * 40, "", 0, 0)
    gone.flags, gone.epoch = NOADDR, 3
    known.peers = [Peer(b"c" * 40, "10.0.0.3", 7711, 17711), gone]
    known.past = {b"d" * 40: 2}
    after = read_file(successor_text(known, 9, b"e" * 40))
    assert after.myself == b"e" * 40 and [peer.id for peer in after.peers] == [b"c" * 40]
    assert after.past == {b"a" * 40: 9, b"b" * 40: 3, b"d" * 40: 2}
