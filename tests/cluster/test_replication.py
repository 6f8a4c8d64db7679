"""Copies on other nodes: when a producer is told that its job is safe, and when not."""

from penstock.cluster import messages as m

from .guild import Guild


def test_an_addjob_is_answered_when_enough_nodes_have_a_copy() -> None:
    guild = Guild(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    assert id.startswith(b"D-")
    assert [len(node.jobs()) for node in guild.nodes] == [1, 1, 1]
    assert guild.queued("q") == [1, 0, 0]
    assert guild.sent == {m.REPLJOB: 2, m.GOTJOB: 2}
    shown = guild[2].ask("show", id)
    assert dict(zip(shown[::2], shown[1::2]))[b"body"] == b"body"


def test_an_ack_at_three_replicas_takes_two_and_two_and_two_messages() -> None:
    guild = Guild(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    assert guild[0].ask("getjob", "from", "q")[0][1] == id
    guild.sent.clear()
    assert guild[0].ask("ackjob", id) == 1
    assert guild.sent == {m.SETACK: 2, m.GOTACK: 2, m.DELJOB: 2}
    assert [len(node.jobs()) for node in guild.nodes] == [0, 0, 0]
    assert all(not node.cluster.acks.by_id and not node.engine.notes for node in guild.nodes)


def test_a_fast_ack_takes_two_messages() -> None:
    guild = Guild(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    guild.sent.clear()
    assert guild[1].ask("fastack", id) == 1
    assert guild.sent == {m.DELJOB: 2}
    assert [len(node.jobs()) for node in guild.nodes] == [0, 0, 0]
