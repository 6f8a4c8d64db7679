"""Commands that run on the home of their tube: two turns and a pair of links, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster import messages as m
from penstock.cluster.messages import Credentials, TunnelMessage
from penstock.core import policy
from penstock.core import states as s
from penstock.node.tunnels import WINDOW_BYTES
from penstock.testing.invariants import check
from penstock.wire.iproto import IprotoReply

from .fake_node import FakeClient, resp
from .linked_nodes import LinkedNode, LinkedNodes


@pytest.fixture
def nodes() -> LinkedNodes:
    """Two nodes. The second one is the home of the tube t."""
    nodes = LinkedNodes()
    make_tube(nodes, 1, "t")
    return nodes


def make_tube(nodes: LinkedNodes, number: int, name: str) -> None:
    client = nodes[number].main
    client.feed("put", name, "first")
    nodes.settle()
    (id,) = client.replies()
    assert id.startswith(b"D-"), id
    client.feed("job", "delete", id)
    nodes.settle()
    assert client.replies() == [1]


def ask(nodes: LinkedNodes, client: FakeClient, *words: bytes | str | int) -> Any:
    """Return the reply of a command, or None if it waits."""
    client.feed(*words)
    nodes.settle()
    replies = client.replies()
    assert len(replies) <= 1
    return replies[0] if replies else None


def messages_of(node: LinkedNode, kind: int) -> list[TunnelMessage]:
    """Return the tunnel messages of a kind that a node has sent."""
    found = [message for _, message in node.links.sent if message.kind == kind]
    assert all(isinstance(message, TunnelMessage) for message in found)
    return [message for message in found if isinstance(message, TunnelMessage)]


# ---- Commands and replies --------------------------------------------------------------------------------------------


def test_a_resp_command_runs_on_the_home_of_its_tube(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    id = ask(nodes, client, "put", "t", "a")
    assert id.startswith(b"D-22222222-")
    assert nodes[0].engine.jobs.count == 0 and nodes[1].engine.jobs.count == 1
    ((job,),) = [ask(nodes, client, "take", "t")]
    assert job[b"id"] == id and job[b"body"] == b"a"
    assert ask(nodes, client, "ack", id) == 1 and nodes[1].engine.jobs.count == 0


def test_a_resp_2_client_gets_replies_of_its_protocol(nodes: LinkedNodes) -> None:
    client = nodes[0].connect(m.RESP_2)
    client.feed("job", "peek", "t#9")
    nodes.settle()
    there = nodes[1].connect(m.RESP_2)
    there.feed("job", "peek", "t#9")
    nodes.settle()
    assert client.take_sent() == there.take_sent()


def test_an_iproto_call_runs_on_the_home_of_its_tube(nodes: LinkedNodes) -> None:
    client = nodes[0].connect(m.IPROTO)
    client.call("queue.tube.t:put", {"a": 1}, sync=7)
    nodes.settle()
    ((number, state, body),) = client.results()[7]
    assert (state, body) == ("r", {"a": 1})
    client.call("queue.tube.t:take", 0, sync=8)
    nodes.settle()
    assert client.results() == {8: [[number, "t", {"a": 1}]]}
    client.call("queue.tube.t:ack", number, sync=9)
    nodes.settle()
    assert client.results() == {9: [[number, "-", {"a": 1}]]}


def test_iproto_calls_are_answered_in_any_order_by_their_syncs(nodes: LinkedNodes) -> None:
    client = nodes[0].connect(m.IPROTO)
    client.call("queue.tube.t:take", 60, sync=1)
    client.call("queue.tube.t:put", "a", sync=2)
    nodes.settle()
    results = client.results()
    assert results[1][0][2] == results[2][0][2] == "a" and set(results) == {1, 2}


def test_the_error_of_the_home_is_the_reply(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    there = nodes[1].connect()
    for words in [("take", "t", "COUNT", "x"), ("put", "t", "a", "NOPE"), ("kick", "t", "-1")]:
        assert ask(nodes, client, *words) == ask(nodes, there, *words)
    calls, direct = nodes[0].connect(m.IPROTO), nodes[1].connect(m.IPROTO)
    for each in (calls, direct):
        each.call("queue.tube.t:ack", 99, sync=1)
    nodes.settle()
    assert calls.results() == direct.results()


def test_commands_behind_a_forwarded_one_run_in_order(nodes: LinkedNodes) -> None:
    make_tube(nodes, 0, "here")
    client = nodes[0].connect()
    nodes[0].turn.received(
        client,
        b"".join(resp("put", tube, number) for number, tube in enumerate(["t", "here", "t", "here"])) + resp("x"),
    )
    nodes.settle()
    replies = client.replies()
    assert [reply[2:10] for reply in replies[:4]] == [b"22222222", b"11111111", b"22222222", b"11111111"]
    assert replies[4] == "ERR unknown command 'x'"


def test_a_reply_leaves_the_home_after_its_sync(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    ask(nodes, client, "take", "t")
    client.feed("put", "t", "a")
    nodes[0].settle()
    nodes.deliver()
    nodes[1].run()
    assert nodes[1].driver.syncing and not nodes[1].links.waiting
    nodes[1].sync()
    assert [message.kind for _, message in nodes[1].links.waiting] == [m.FORWARDED]
    nodes.settle()
    assert len(client.replies()) == 1


def test_several_clients_have_tunnels_of_their_own(nodes: LinkedNodes) -> None:
    clients = [nodes[0].connect() for _ in range(3)]
    for client in clients:
        client.feed("put", "t", client.number)
    nodes.settle()
    assert all(len(client.replies()) == 1 for client in clients)
    assert nodes[0].forwarding.counts() == {"cluster_tunnels_out": 3, "cluster_tunnels_in": 0}
    assert nodes[1].forwarding.counts() == {"cluster_tunnels_out": 0, "cluster_tunnels_in": 3}
    for client in clients:
        client.leave()
    nodes.settle()
    assert sum(sum(node.forwarding.counts().values()) for node in nodes.nodes) == 0
    assert len(nodes[1].turn.clients) == 1, "only the test's own client of the home is left"


def test_replies_that_a_client_has_switched_off_are_dropped(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    client.reply_mode = 3
    assert ask(nodes, client, "put", "t", "a") is None
    assert nodes[1].engine.jobs.count == 1
    client.reply_mode = 0
    assert len(ask(nodes, client, "take", "t")) == 1


def test_a_command_in_parts_runs_on_several_nodes_and_on_this_one(nodes: LinkedNodes) -> None:
    make_tube(nodes, 0, "here")
    client = nodes[0].connect()
    here = [ask(nodes, client, "put", "here", number) for number in range(2)]
    there = [ask(nodes, client, "put", "t", number) for number in range(3)]
    assert ask(nodes, client, "job", "delete", here[0], *there[:2], here[1]) == 4
    assert nodes[0].engine.jobs.count == 0 and nodes[1].engine.jobs.count == 1
    assert nodes[0].forwarding.counts()["cluster_tunnels_in"] == 1, "the part on this node runs through a tunnel, too"
    client.leave()
    nodes.settle()
    assert sum(sum(node.forwarding.counts().values()) for node in nodes.nodes) == 0


def test_the_list_of_held_jobs_has_those_of_all_nodes(nodes: LinkedNodes) -> None:
    make_tube(nodes, 0, "here")
    client = nodes[0].connect()
    ids = {ask(nodes, client, "put", tube, "a") for tube in ("t", "here")}
    for tube in ("t", "here"):
        ask(nodes, client, "take", tube)
    assert set(ask(nodes, client, "job", "held")) == ids


# ---- Waits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_forwarded_take_waits_for_a_job(nodes: LinkedNodes, protocol: int) -> None:
    client = waiting(nodes, protocol)
    assert ask(nodes, nodes[1].main, "put", "t", "a")
    if protocol == m.IPROTO:
        # A body of plain bytes is text for Tarantool's clients, or a string of bytes.
        ((_, _, body),) = client.results()[1]
        assert body in ("a", b"a")
    else:
        ((job,),) = client.replies()
        assert job[b"body"] == b"a"
    assert not client.is_waiting


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_client_that_sends_no_more_stops_its_wait_on_the_other_node(nodes: LinkedNodes, protocol: int) -> None:
    client = waiting(nodes, protocol)
    nodes[0].turn.end_input(client)
    nodes.settle()
    assert any(message.argument & m.STOP_WAITING for message in messages_of(nodes[0], m.FORWARD))
    assert (client.replies() if protocol == m.RESP_3 else list(client.results().values())) == [[]]
    assert client.is_shut, "the connection is closed after the reply, not before"


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_take_does_not_wait_if_it_arrives_together_with_the_end_of_the_input(
    nodes: LinkedNodes, protocol: int
) -> None:
    client = nodes[0].connect(protocol)
    send_take(client)
    nodes[0].settle()
    nodes[0].turn.end_input(client)
    nodes.settle()
    assert (client.replies() if protocol == m.RESP_3 else list(client.results().values())) == [[]]
    assert client.is_shut and not client.is_waiting


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_take_does_not_wait_if_it_leaves_its_node_after_the_end_of_the_input(
    nodes: LinkedNodes, protocol: int
) -> None:
    client = nodes[0].connect(protocol)
    nodes[0].links.crowded = True
    send_take(client)
    nodes.settle()
    nodes[0].turn.end_input(client)
    nodes.settle()
    assert client.is_waiting
    nodes[0].links.crowded = False
    nodes[0].forwarding.send_waiting(nodes[1].id)
    nodes.settle()
    assert (client.replies() if protocol == m.RESP_3 else list(client.results().values())) == [[]]
    assert client.is_shut and not client.is_waiting


def test_a_command_that_follows_ended_waits_can_wait_again(nodes: LinkedNodes) -> None:
    client = waiting(nodes, m.RESP_3)
    nodes[0].turn.end_waits(client)
    nodes.settle()
    assert client.replies() == [[]]
    assert ask(nodes, client, "take", "t", "TIMEOUT", "60s") is None
    assert ask(nodes, nodes[1].main, "put", "t", "a")
    assert len(client.replies()) == 1


def test_a_forwarded_wait_times_out_on_its_home(nodes: LinkedNodes) -> None:
    client = waiting(nodes, m.RESP_3)
    nodes.pass_ms(60_000)
    assert client.replies() == [[]]


def test_the_wait_of_a_client_that_leaves_ends_on_the_other_node(nodes: LinkedNodes) -> None:
    waiting(nodes, m.RESP_3).leave()
    nodes.settle()
    ask(nodes, nodes[1].main, "put", "t", "a")
    assert nodes[1].engine.jobs.scan(0, 10)[0].state == s.READY


def waiting(nodes: LinkedNodes, protocol: int) -> FakeClient:
    """Return a client of the first node that waits for a job of the second."""
    client = nodes[0].connect(protocol)
    send_take(client)
    nodes.settle()
    assert client.is_waiting and client.sent == [] and len(nodes[1].guests) == 1
    return client


def send_take(client: FakeClient) -> None:
    if isinstance(client.reply, IprotoReply):
        client.call("queue.tube.t:take", 60, sync=1)
    else:
        client.feed("take", "t", "TIMEOUT", "60s")


def test_a_delivery_whose_tunnel_ends_before_the_reply_was_sent_is_undone(nodes: LinkedNodes) -> None:
    ask(nodes, nodes[1].main, "put", "t", "a")
    client = nodes[0].connect()
    client.feed("take", "t")
    nodes[0].settle()
    nodes.deliver()
    nodes[1].run()
    assert nodes[1].driver.syncing
    client.leave()
    nodes[0].settle()
    nodes.deliver()
    nodes.settle()
    (job,) = nodes[1].engine.jobs.scan(0, 10)
    assert job.state == s.READY and job.deliveries == 0


def test_a_job_of_a_client_that_leaves_is_released_on_its_home(nodes: LinkedNodes) -> None:
    ask(nodes, nodes[1].main, "put", "t", "a")
    client = nodes[0].connect()
    assert len(ask(nodes, client, "take", "t")) == 1
    (job,) = nodes[1].engine.jobs.scan(0, 10)
    assert job.state == s.TAKEN
    client.leave()
    nodes.settle()
    assert job.state != s.TAKEN and job.deliveries == 1


def test_a_session_with_a_grace_time_keeps_its_jobs_on_the_home(nodes: LinkedNodes) -> None:
    ask(nodes, nodes[1].main, "put", "t", "a")
    client = nodes[0].connect()
    now = nodes.clock.ms
    nodes[0].engine.identify(client.connection, client.connection.session.token, now, 5_000)
    assert len(ask(nodes, client, "take", "t")) == 1
    client.leave()
    nodes.settle()
    (job,) = nodes[1].engine.jobs.scan(0, 10)
    nodes.pass_ms(4_999)
    assert job.state == s.TAKEN
    nodes.pass_ms(1)
    assert job.state != s.TAKEN


# ---- Links that are lost ---------------------------------------------------------------------------------------------


def test_a_command_in_flight_on_a_lost_link_gets_an_error_that_it_may_have_been_executed(nodes: LinkedNodes) -> None:
    client, calls = nodes[0].connect(), nodes[0].connect(m.IPROTO)
    client.feed("put", "t", "a")
    calls.call("queue.tube.t:put", "b", sync=5)
    nodes[0].settle()
    nodes.lose_links(0, 1)
    nodes.settle()
    (refusal,) = client.replies()
    assert refusal.startswith("NOHOME tube 't' lives on node 2222") and refusal.endswith("may have been executed")
    assert calls.results()[5].endswith("may have been executed")
    assert sum(sum(node.forwarding.counts().values()) for node in nodes.nodes) == 0
    assert not client.is_waiting and not calls.is_waiting


def test_a_command_without_a_link_gets_an_error_that_does_not_mention_execution(nodes: LinkedNodes) -> None:
    nodes.lose_links(0, 1)
    nodes.settle()
    refusal = ask(nodes, nodes[0].connect(), "put", "t", "a")
    assert refusal.startswith("NOHOME") and refusal.endswith("which cannot be reached")


def test_a_client_continues_after_its_link_is_back(nodes: LinkedNodes) -> None:
    client = waiting(nodes, m.RESP_3)
    nodes.lose_links(0, 1)
    nodes.settle()
    assert client.replies()[0].startswith("NOHOME")
    assert len(nodes[1].guests) == 0
    nodes.restore_links()
    assert ask(nodes, client, "put", "t", "a").startswith(b"D-2222")


def test_a_link_that_is_lost_within_a_reply_closes_the_client(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    body = bytes(3 * WINDOW_BYTES)
    ask(nodes, nodes[1].main, "put", "t", body)
    client.feed("take", "t")
    nodes[0].settle()
    nodes.deliver()
    nodes[1].settle()
    nodes.deliver()
    nodes[0].settle()
    assert 0 < sum(map(len, client.sent)) < len(body)
    nodes.lose_links(0, 1)
    nodes.settle()
    assert client.is_aborted, "it would read an error as the rest of the reply"


def test_a_part_that_fails_makes_the_whole_command_fail(nodes: LinkedNodes) -> None:
    make_tube(nodes, 0, "here")
    client = nodes[0].connect()
    here, there = ask(nodes, client, "put", "here", "a"), ask(nodes, client, "put", "t", "a")
    client.feed("job", "delete", here, there)
    nodes[0].run()
    nodes.lose_links(0, 1)
    nodes.settle()
    (refusal,) = client.replies()
    assert refusal.startswith("NOHOME") and refusal.endswith("may have been executed")


# ---- Windows and backpressure ----------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_stops_the_home_after_a_window(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    body = bytes(5 * WINDOW_BYTES)
    ask(nodes, nodes[1].main, "put", "t", body)
    ask(nodes, client, "take", "nothing")
    client.is_unread = True
    client.feed("put", "t", "small")
    nodes.settle()
    assert client.sent == [] and nodes[1].engine.jobs.count == 1, "a client that does not read is not run"
    client.is_unread = False
    nodes[0].turn.reads_again(client)
    nodes.settle()
    assert len(client.replies()) == 1
    client.feed("take", "t")
    nodes[0].settle()
    client.is_unread = True
    nodes.settle()
    sent = sum(len(message.data) for message in messages_of(nodes[1], m.FORWARDED))
    assert sent <= 2 * WINDOW_BYTES, "the home has sent no more than a window"
    client.is_unread = False
    nodes[0].turn.reads_again(client)
    nodes.settle()
    ((job,),) = client.replies()
    assert len(job[b"body"]) == len(body)


def test_a_long_command_is_sent_in_windows(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    id = ask(nodes, client, "put", "t", bytes(5 * WINDOW_BYTES))
    assert id.startswith(b"D-2222")
    (job,) = nodes[1].engine.jobs.scan(0, 10)
    assert job.body_length() == 5 * WINDOW_BYTES
    assert max(len(message.data) for message in messages_of(nodes[0], m.FORWARD)) < WINDOW_BYTES


def test_a_crowded_link_delays_commands_until_it_has_room(nodes: LinkedNodes) -> None:
    client, calls = nodes[0].connect(), nodes[0].connect(m.IPROTO)
    nodes[0].links.crowded = True
    client.feed("put", "t", "a")
    calls.call("queue.tube.t:put", "b", sync=1)
    nodes.settle()
    assert nodes[1].engine.jobs.count == 0
    nodes[0].links.crowded = False
    nodes[0].forwarding.send_waiting(nodes[1].id)
    nodes.settle()
    assert len(client.replies()) == 1 and set(calls.results()) == {1}


def test_an_iproto_client_is_not_served_while_its_tunnel_is_full(nodes: LinkedNodes) -> None:
    calls = nodes[0].connect(m.IPROTO)
    nodes[0].links.crowded = True
    for sync in range(4):
        calls.call("queue.tube.t:put", "x" * (WINDOW_BYTES // 2 + 1), sync=sync)
    calls.call("queue.tube.t:put", "last", sync=9)
    nodes.settle()
    assert calls.busy and calls.remote_count < 4
    nodes[0].links.crowded = False
    nodes[0].forwarding.send_waiting(nodes[1].id)
    nodes.settle()
    assert set(calls.results()) == {0, 1, 2, 3, 9} and not calls.busy


# ---- Forwarded clients that are refused, and tunnels that end --------------------------------------------------------


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_forwarded_client_that_is_refused_gets_the_reason(nodes: LinkedNodes, protocol: int) -> None:
    nodes[1].admission.has_room = False
    client = nodes[0].connect(protocol)
    if protocol == m.IPROTO:
        client.call("queue.tube.t:put", "a", sync=1)
    else:
        client.feed("put", "t", "a")
    nodes.settle()
    got = client.replies() if protocol == m.RESP_3 else list(client.results().values())
    assert got == ["ERR max number of clients reached"] or got == ["max number of clients reached"]
    assert nodes[1].engine.jobs.count == 0 and len(nodes[1].guests) == 0
    nodes[1].admission.has_room = True
    client.feed("put", "t", "a") if protocol == m.RESP_3 else client.call("queue.tube.t:put", "a", sync=2)
    nodes.settle()
    assert nodes[1].engine.jobs.count == 1


def test_a_client_with_credentials_for_an_earlier_home_is_refused(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    nodes[1].members.epoch += 1
    assert ask(nodes, client, "put", "t", "a") == "NOHOME the home of this tube has been replaced; try again"
    assert nodes[1].engine.jobs.count == 0


def test_a_forwarded_command_for_an_unknown_tunnel_ends_it(nodes: LinkedNodes) -> None:
    command = TunnelMessage(m.FORWARD, 12_345, False, m.COMMAND_ENDS, resp("put", "t", "a"))
    nodes[1].turn.receive(nodes[0].id, "10.0.0.1", [command])
    nodes[1].settle()
    assert nodes[1].engine.jobs.count == 0
    assert [message.number for message in messages_of(nodes[1], m.TUNNELEND)] == [12_345]


def test_a_reply_for_an_unknown_tunnel_ends_it(nodes: LinkedNodes) -> None:
    nodes[0].turn.receive(nodes[1].id, "10.0.0.2", [TunnelMessage(m.FORWARDED, 12_345, True, 1, b"+OK\r\n")])
    nodes[0].settle()
    assert [message.number for message in messages_of(nodes[0], m.TUNNELEND)] == [12_345]


def test_a_reply_from_another_node_than_the_home_is_not_passed_on() -> None:
    nodes = LinkedNodes(3)
    make_tube(nodes, 1, "t")
    client = waiting(nodes, m.RESP_3)
    number = messages_of(nodes[0], m.FORWARD)[0].number
    nodes[0].turn.receive(nodes[2].id, "10.0.0.3", [TunnelMessage(m.FORWARDED, number, True, 1, b"+FORGED\r\n")])
    nodes.settle()
    assert client.sent == [] and client.is_waiting


def test_messages_of_a_node_that_is_no_member_are_dropped(nodes: LinkedNodes) -> None:
    stranger = 40 * b"9"
    credentials = Credentials(m.TUNNEL, 1, nodes[1].members.epoch, m.RESP_3)
    credentials.token = b"%016d" % 99
    nodes[1].turn.receive(stranger, "10.0.0.9", [credentials])
    nodes[1].settle()
    assert len(nodes[1].guests) == 0


def test_a_client_that_leaves_while_its_home_ends_the_tunnel_leaves_nothing_behind(nodes: LinkedNodes) -> None:
    client = waiting(nodes, m.RESP_3)
    (guest,) = [each for each in nodes[1].turn.clients.values() if each.entry_node]
    guest.abort()
    nodes[1].settle()
    client.leave()
    nodes.settle()
    assert sum(sum(node.forwarding.counts().values()) for node in nodes.nodes) == 0


def test_a_client_whose_home_ends_the_tunnel_can_open_another(nodes: LinkedNodes) -> None:
    client = waiting(nodes, m.RESP_3)
    (guest,) = [each for each in nodes[1].turn.clients.values() if each.entry_node]
    guest.abort()
    nodes.settle()
    (refusal,) = client.replies()
    assert refusal.endswith("which has closed the connection; the command may have been executed")
    assert ask(nodes, client, "put", "t", "a").startswith(b"D-2222")
    assert nodes[0].forwarding.counts()["cluster_tunnels_out"] == len(nodes[1].guests) == 1


def test_a_reply_that_crosses_the_end_of_its_tunnel_is_dropped(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    client.feed("put", "t", "a")
    nodes[0].settle()
    nodes.deliver()
    nodes[1].settle()
    client.leave()
    nodes.settle()
    assert client.sent == [] and nodes[1].engine.jobs.count == 1
    assert sum(sum(node.forwarding.counts().values()) for node in nodes.nodes) == 0


def test_quit_of_a_forwarded_client_is_not_possible_but_its_errors_are_its_own(nodes: LinkedNodes) -> None:
    first, second = nodes[0].connect(), nodes[0].connect()
    assert ask(nodes, first, "take", "t", "COUNT", "x") is not None
    assert ask(nodes, second, "put", "t", "a").startswith(b"D-")
    assert not first.is_shut and not second.is_shut


def test_a_forwarded_command_is_not_forwarded_again(nodes: LinkedNodes) -> None:
    client = nodes[0].connect()
    client.feed("put", "t", "a")
    nodes[0].settle()
    # Meanwhile, the tube moves to a third node, as far as its home knows.
    nodes[1].engine.drop(nodes[1].engine.tubes[b"t"], nodes.clock.ms)
    nodes[1].cluster.homes.add(b"t", nodes[0].id, nodes.clock.ms)
    nodes.settle()
    (refusal,) = client.replies()
    assert refusal.startswith("NOHOME tube 't' has moved to node 1111") and refusal.endswith("; try again")


# ---- Elections and questions -----------------------------------------------------------------------------------------


def three_nodes() -> LinkedNodes:
    """Return three nodes that have exchanged the lists of their tubes."""
    nodes = LinkedNodes(3)
    nodes.pass_ms(100)
    return nodes


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_command_waits_while_another_node_is_creating_its_tube(protocol: int) -> None:
    nodes = three_nodes()
    clients = [nodes[0].connect(), nodes[1].connect(), nodes[2].connect(protocol)]
    clients[1].feed("tube", "create", "x", "type", "fifottl")
    nodes[1].settle()
    # The CLAIM of the second node reaches only the third one, which grants it.
    claims = [each for each in nodes[1].links.waiting if each[0] == nodes[2].id]
    nodes[1].links.waiting = [each for each in nodes[1].links.waiting if each[0] != nodes[2].id]
    nodes[2].turn.receive(nodes[1].id, "10.0.0.2", [message for _, message in claims])
    nodes[2].settle()
    if protocol == m.IPROTO:
        clients[2].call("queue.create_tube", "x", "fifottl", {"if_not_exists": True}, sync=1)
    else:
        clients[2].feed("tube", "create", "x", "type", "fifottl")
    nodes[2].settle()
    # The first node wants to create the tube, too. It wins the election, because its id is the least.
    clients[0].feed("tube", "create", "x", "type", "fifottl")
    nodes[0].settle()
    for _ in range(10):
        nodes.settle()
        nodes.pass_ms(100)
    assert [b"x" in node.engine.tubes for node in nodes.nodes] == [True, False, False]
    replies = [client.replies() for client in (clients if protocol == m.RESP_3 else clients[:2])]
    assert [[reply[b"name"] for reply in each] for each in replies] == [[b"x"]] * len(replies)
    if protocol == m.IPROTO:
        assert clients[2].results()[1][0]["name"] == "x"


def test_a_command_does_not_wait_forever_for_a_node_that_is_creating_its_tube() -> None:
    nodes = three_nodes()
    nodes[2].cluster.homes.promise(b"x", nodes[1].id, 1, nodes.clock.ms)
    client = nodes[2].connect()
    assert ask(nodes, client, "put", "x", "a") is None and client.is_waiting
    # A client that sends no more still gets the result.
    nodes[2].turn.stopped_sending(client)
    assert client.is_waiting
    nodes.pass_ms(nodes[2].members.timeout_ms)
    (refusal,) = client.replies()
    assert refusal.startswith("NOHOME tube 'x' may soon be created on node 2222"), refusal
    # The other node has withdrawn.
    nodes[2].cluster.homes.take_back(b"x", nodes[1].id, 1, nodes.clock.ms)
    assert ask(nodes, client, "put", "x", "a").startswith(b"D-33333333-")


def test_calls_over_iproto_wait_for_an_election_although_the_client_sends_no_more() -> None:
    nodes = three_nodes()
    for name in (b"x", b"y"):
        nodes[2].cluster.homes.promise(name, nodes[1].id, 1, nodes.clock.ms)
    client = nodes[2].connect(m.IPROTO)
    client.call("queue.tube.x:put", "a", sync=1)
    client.call("queue.tube.y:put", "b", sync=2)
    nodes.settle()
    nodes[2].turn.end_input(client)
    nodes.settle()
    assert client.results() == {} and not client.is_shut
    # The other node withdraws from the first tube and creates the second one. In one turn, the first call is refused
    # and the second one is forwarded.
    nodes[2].cluster.homes.take_back(b"x", nodes[1].id, 1, nodes.clock.ms)
    nodes[1].engine.create_tube(b"y", policy.FIFOTTL, nodes.clock.ms)
    nodes[2].cluster.homes.add(b"y", nodes[1].id, nodes.clock.ms)
    nodes[2].turn.begin()
    nodes[2].cluster.elections.end_decided()
    nodes.settle()
    results = client.results()
    assert "x" in results[1] and results[2] == [[0, "r", "b"]] and client.is_shut


def test_the_wait_of_a_client_that_leaves_is_dropped() -> None:
    nodes = three_nodes()
    nodes[2].cluster.homes.promise(b"x", nodes[1].id, 1, nodes.clock.ms)
    client = nodes[2].connect()
    assert ask(nodes, client, "put", "x", "a") is None
    client.leave()
    nodes.settle()
    assert nodes[2].cluster.elections.waiting() == 0


_ABOUT_STAGES = [("publish", "s"), ("publishonce", "mark", "s"), ("discard", "s")]
_ABOUT_CONSUMERS = [
    *(("claim", "renew", "c"), ("claim", "release", "c"), ("claim", "ack", "c", 1), ("claim", "read", "c", 1)),
    ("claim", "info", "c"),
]


@pytest.mark.parametrize("words", [*_ABOUT_STAGES, *_ABOUT_CONSUMERS], ids=lambda words: " ".join(map(str, words[:2])))
def test_a_stage_or_a_consumer_is_not_missing_while_a_node_has_not_answered(
    nodes: LinkedNodes, words: tuple[str, ...]
) -> None:
    there = nodes[1].main
    assert ask(nodes, there, "stage", "s", "t", "JOB", "a") == 1
    assert ask(nodes, there, "put", "t", "b")
    assert len(ask(nodes, there, "claim", "take", "t", "c", 1, "LEASE", "600s")) == 1
    client = nodes[0].connect()
    nodes.cut.add((nodes[1].id, nodes[0].id))
    assert ask(nodes, client, *words) is None
    for _ in range(2 if "mark" in words else 1):
        nodes.pass_ms(1_001)
    (refusal,) = client.replies()
    what = "stage 'mark'" if "mark" in words else "stage 's'" if "s" in words else "consumer 'c'"
    assert refusal.startswith(f"NOHOME {what} may be on node 2222"), refusal
    assert refusal.endswith(", which has not answered; try again")
    # When it answers, the command is forwarded.
    nodes.cut.clear()
    answer = ask(nodes, client, *words)
    assert answer == 1 if words[:2] != ("claim", "read") and words[:2] != ("claim", "info") else len(answer) > 0


def test_a_stage_that_no_node_has_is_refused_as_unknown(nodes: LinkedNodes) -> None:
    assert ask(nodes, nodes[0].connect(), "publish", "s").startswith("NOSTAGE there is no stage 's'")


def test_a_new_consumer_and_a_new_stage_can_start_while_a_node_is_failed() -> None:
    nodes = LinkedNodes(3)
    make_tube(nodes, 1, "t")
    client = nodes[0].connect()
    lost = nodes[2]
    nodes.lose_links(0, 2)
    nodes.lose_links(1, 2)
    for node in nodes.nodes[:2]:
        node.members.peers[lost.id].flags |= m.NODE_FAILED
    assert ask(nodes, client, "claim", "info", "new")[b"newest"] == 0
    assert ask(nodes, client, "stage", "s", "t", "JOB", "a") == 1
    assert ask(nodes, client, "publish", "s") == 1
    refusal = ask(nodes, client, "publish", "other")
    assert refusal.startswith("NOHOME stage 'other' may be on node 3333")
    assert refusal.endswith(
        f"; wait until it is back, or remove it for good: penstock cluster forget {lost.id.decode()}"
    )


def test_a_question_is_answered_although_the_client_sends_no_more(nodes: LinkedNodes) -> None:
    assert ask(nodes, nodes[1].main, "stage", "s", "t", "JOB", "a") == 1
    client = nodes[0].connect()
    client.feed("publish", "s")
    nodes[0].settle()
    nodes[0].turn.end_input(client)
    nodes.settle()
    assert client.replies() == [1] and client.is_shut


def test_a_client_that_leaves_when_its_question_is_answered_leaves_nothing_behind(nodes: LinkedNodes) -> None:
    assert ask(nodes, nodes[1].main, "stage", "s", "t", "JOB", "a") == 1
    client = nodes[0].connect()
    client.feed("publish", "s")
    nodes[0].settle()
    nodes.deliver()
    nodes[1].settle()
    # The answer and the end of the connection arrive in the same turn.
    nodes.deliver()
    client.leave()
    nodes[0].settle()
    assert not client.connection.waits
    check(nodes[0].engine)
    nodes.settle()
    assert nodes[0].forwarding.counts()["cluster_tunnels_out"] == len(nodes[1].guests) == 0


def test_the_answer_to_a_question_is_not_used_for_a_later_command(nodes: LinkedNodes) -> None:
    client, there = nodes[0].connect(), nodes[1].connect()
    client.feed("stage", "s", "new", "JOB", "a")
    nodes[0].settle()
    # While the other node is asked for the stage, it creates the tube. The command is forwarded when it runs again.
    nodes[1].engine.create_tube(b"new", policy.FIFOTTL, nodes.clock.ms)
    nodes[0].cluster.homes.add(b"new", nodes[1].id, nodes.clock.ms)
    nodes.settle()
    assert client.replies() == [1] and nodes[1].engine.stages.by_name
    assert ask(nodes, client, "publish", "s") == 1
    assert len(ask(nodes, there, "take", "new")) == 1
