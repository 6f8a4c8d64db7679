"""A node announces why it does not accept copies, and withdraws this when it accepts them again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.cluster.condition import Condition
from penstock.cluster.messages import (
    NODE_CONDITION,
    NODE_LEAVING,
    NODE_NO_DISK,
    NODE_NO_MEMORY,
    NODE_PAUSED,
    PING,
    Greeting,
)
from penstock.cluster.roster import file_text, nodes_text, read_file
from penstock.core.limits import NEVER
from penstock.wire.bus import MessageEncoder, PacketTags, encode_packets
from penstock.wire.bus import decode_messages as read

from .cluster_nodes import Node, NodeCluster

# Within this time every node has the condition of every other one.
SOON_MS = 1_100

# A refused copy is announced this long, including the time to withdraw it.
REFUSED_MS = 6_100


def seen(guild: NodeCluster, number: int) -> list[str]:
    """Return the flags of a node in CLUSTER NODES, on every node."""
    lines = [nodes_text(node.members, "here:1").splitlines() for node in guild.nodes]
    of_node = [line.split()[2] for told in lines for line in told if line.startswith(guild[number].id.decode())]
    return [flags.removeprefix("myself").removeprefix(",") or "noflags" for flags in of_node]


def no_memory(node: Node) -> None:
    node.engine.memory_max = 1_000_000
    while node.engine.memory_used() <= 750_000:
        node.client.ask("put", "filling", bytes(10_000))


def enough_memory(node: Node) -> None:
    node.engine.memory_max = NEVER


def full(node: Node) -> None:
    node.engine.room_bytes = 4_095


def not_full(node: Node) -> None:
    node.engine.room_bytes = NEVER


def paused(node: Node) -> None:
    node.ask("pause", "q", "in")


def not_paused(node: Node) -> None:
    node.ask("pause", "q", "none")


Change = Callable[[Node], None]
# A node can have all conditions in this order, because it cannot create a queue without room.
CONDITIONS: list[tuple[str, Change, Change]] = [
    ("paused", paused, not_paused),
    ("nomem", no_memory, enough_memory),
    ("nodisk", full, not_full),
]


@pytest.mark.parametrize(("flag", "begin", "end"), CONDITIONS)
def test_every_node_sees_the_condition_of_a_node_within_a_second_and_its_end(
    flag: str, begin: Change, end: Change
) -> None:
    guild = NodeCluster(3)
    assert seen(guild, 1) == ["noflags"] * 3
    begin(guild[1])
    guild.run(SOON_MS)
    assert seen(guild, 1) == [flag] * 3
    assert seen(guild, 0) == seen(guild, 2) == ["noflags"] * 3
    guild.run(60_000)
    assert seen(guild, 1) == [flag] * 3
    end(guild[1])
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 3


def test_conditions_are_shown_together_and_beside_others() -> None:
    guild = NodeCluster(2)
    for _, begin, _ in CONDITIONS:
        begin(guild[1])
    guild[1].cluster.set_leaving(True, guild.now)
    guild.run(SOON_MS)
    assert seen(guild, 1)[0] == "leaving,nodisk,nomem,paused"
    not_full(guild[1])
    not_paused(guild[1])
    guild.run(SOON_MS)
    assert seen(guild, 1)[0] == "leaving,nomem"


def test_a_condition_does_not_make_a_node_unreachable() -> None:
    guild = NodeCluster(3)
    for _, begin, _ in CONDITIONS:
        begin(guild[1])
    guild.run(SOON_MS)
    assert guild[0].members.reachable() == [guild[1].id, guild[2].id]


def test_a_queue_that_is_paused_for_jobs_out_only_is_no_condition() -> None:
    guild = NodeCluster(2)
    guild[1].ask("pause", "q", "out")
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 2
    guild[1].ask("pause", "q", "all")
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["paused"] * 2


def test_paused_queues_are_counted_until_the_last_one_is_resumed_or_dropped() -> None:
    guild = NodeCluster(2)
    for queue in ("a", "b", "c"):
        guild[1].ask("pause", queue, "in")
    guild[1].ask("pause", "c", "all")
    assert list(guild[1].cluster.condition.paused) == [b"a", b"b", b"c"]
    guild[1].ask("pause", "a", "none")
    guild[1].engine.drop(guild[1].engine.tube(b"b"), guild.now)
    guild.run(SOON_MS)
    assert seen(guild, 0) == ["noflags"] * 2 and seen(guild, 1) == ["paused"] * 2
    guild[1].ask("pause", "c", "out")
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 2


def test_a_strict_tube_that_is_paused_is_no_condition_because_it_has_no_copies() -> None:
    guild = NodeCluster(2)
    guild[1].ask("put", "strict", "body")
    guild[1].engine.pause(guild[1].engine.tube(b"strict"), True, True, guild.now)
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 2


def test_a_node_that_was_restarted_announces_the_queues_that_its_log_has_as_paused() -> None:
    guild = NodeCluster(2, disks=True)
    guild[1].ask("pause", "q", "in")
    guild.run(SOON_MS)
    guild.restart(1)
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["paused"] * 2
    guild[1].ask("pause", "q", "none")
    guild.restart(1)
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 2


def test_a_refusal_of_a_large_copy_is_announced_for_a_while() -> None:
    guild = NodeCluster(2)
    guild[1].engine.room_bytes = 50_000
    guild[0].ask("addjob", "q", bytes(100_000), 0)
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["nodisk"] * 2, "it has room for small jobs, and not for those that are added"
    guild.run(REFUSED_MS)
    assert seen(guild, 1) == ["noflags"] * 2


def test_a_refusal_is_withdrawn_when_there_is_room_for_such_a_copy() -> None:
    guild = NodeCluster(2)
    guild[1].engine.room_bytes = 50_000
    guild[0].ask("addjob", "q", bytes(100_000), 0)
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["nodisk"] * 2
    guild[1].engine.room_bytes = 150_000
    guild.run(SOON_MS)
    assert seen(guild, 1) == ["noflags"] * 2


def test_an_idle_node_tries_to_make_room_twice_a_second_while_its_disk_is_full() -> None:
    node = NodeCluster(1)[0]
    asked: list[int] = []
    condition = Condition(node.cluster.state, asked.append)
    assert [condition.flags(now) for now in (1_000, 2_000)] == [0, 0] and not asked
    full(node)
    assert [condition.flags(now) for now in (3_000, 3_499)] == [NODE_NO_DISK] * 2 and len(asked) == 1

    def make_room(length: int) -> None:
        node.engine.room_bytes = length

    condition = Condition(node.cluster.state, make_room)
    assert condition.flags(4_000) == 0


def test_a_node_without_peers_reports_its_current_condition() -> None:
    guild = NodeCluster(1)
    paused(guild[0])
    guild[0].cluster.announce_condition(guild.now)
    assert seen(guild, 0) == ["paused"]


def test_a_condition_that_does_not_change_costs_no_messages() -> None:
    guild = NodeCluster(2)
    members = guild[1].members
    paused(guild[1])
    guild[1].cluster.announce_condition(guild.now)
    assert sum(map(len, guild[1].mail.take().values())) == 1
    for _ in range(10):
        guild[1].cluster.announce_condition(guild.now)
    assert guild[1].mail.take() == {} and members.condition == NODE_PAUSED


def test_a_condition_is_not_in_the_file_because_it_is_over_after_a_restart() -> None:
    guild = NodeCluster(2)
    for _, begin, _ in CONDITIONS:
        begin(guild[1])
    before = guild[0].members.changes
    guild.run(SOON_MS)
    assert guild[0].members.changes == before, "the file is not written for it"
    for node in guild.nodes:
        assert not any(flag in file_text(node.members) for flag, _, _ in CONDITIONS)
    shown = nodes_text(guild[0].members, "10.0.0.1:7711")
    assert "nodisk,nomem,paused" in shown
    assert all(not peer.flags & NODE_CONDITION for peer in read_file(shown).peers)


def test_a_node_that_sends_no_condition_has_none() -> None:
    """A node of an older version sends these bits as 0, and ignores those of others."""
    guild = NodeCluster(2)
    paused(guild[1])
    guild.run(SOON_MS)
    old = Greeting(PING, "10.0.0.2", 7711, 17711, NODE_LEAVING, guild[1].memory, [])
    guild[0].cluster.receive(guild[1].id, old, guild.now)
    assert seen(guild, 1)[0] == "leaving"


def test_the_flags_are_encoded_as_in_earlier_versions() -> None:
    flags = NODE_LEAVING | NODE_NO_DISK | NODE_NO_MEMORY | NODE_PAUSED
    sent = Greeting(PING, "10.0.0.2", 7711, 17711, flags, bytes(16), [])
    [received] = read(encode_packets([sent], PacketTags(bytes(32)), MessageEncoder())[20:])
    assert isinstance(received, Greeting) and received.flags == flags


def test_another_node_of_the_same_id_does_not_inherit_a_condition() -> None:
    guild = NodeCluster(2)
    paused(guild[1])
    guild.run(SOON_MS)
    assert guild[0].members.raise_epoch(guild[1].id, 1, guild.now)
    assert "paused" not in seen(guild, 1)[0]
