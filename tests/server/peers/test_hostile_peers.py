"""Hostile peers of the bus: garbage, strangers, forged and replayed packets, absurd gossip."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from penstock.cluster import messages as m
from penstock.wire import bus
from penstock.wire.msgpack import pack

from ..bus_peers import ME, SECRET, WRONG_SECRET, Callee, Stranger, greeting
from ..clustering import MISSED_MS, Node
from ..serving import PATIENCE_S, Wire, configured, wait_for


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with a secret."""
    node = Node(tmp_path_factory.mktemp("hostile") / "n", "--appendonly", "no", "--cluster-secret", SECRET)
    yield node
    node.stop()


def is_shared(port: int) -> bool:
    """Return whether another connection of this machine has the same local port, which the system allows."""
    with open("/proc/net/tcp") as connections:
        return sum(line.split()[1].endswith(f":{port:04X}") for line in connections) > 1


def refused(node: Node) -> int:
    return int(node.cluster_info()["cluster_stats_refused"])


GARBAGE: dict[str, bytes] = {
    "http": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "resp": b"*1\r\n$4\r\nPING\r\n",
    "zeros": bytes(64),
    "a frame without end": b"\x7f\xff\xff\xff" + bytes(100_000),
    "no hello": (3).to_bytes(4, "big") + b"\x93\x01\x02",
    "not msgpack": (4).to_bytes(4, "big") + b"\xc1\xc1\xc1\xc1",
    "a short name": bus.encode_opening(b"me", bytes(32), 0),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_link_that_sends_garbage_is_closed_and_counted(node: Node, what: str) -> None:
    before = refused(node)
    assert Stranger(node).send(GARBAGE[what]).is_hung_up_on()
    assert refused(node) == before + 1


def test_another_protocol_version_is_refused_with_its_number(node: Node) -> None:
    word = pack([bus.NAME, 1, ME, bytes(32)])
    stranger = Stranger(node).send(len(word).to_bytes(4, "big") + word)
    assert b"version 1 of the bus, this node 3" in stranger.word()
    assert stranger.is_hung_up_on()


def test_a_peer_without_the_secret_is_refused(node: Node) -> None:
    stranger = Stranger(node).shake_hands(WRONG_SECRET).say(greeting())
    assert b"wrong cluster-secret: all nodes" in stranger.word()
    assert stranger.is_hung_up_on()
    assert node.cluster_info()["cluster_known_nodes"] == 1


def test_a_recorded_handshake_cannot_be_replayed(node: Node) -> None:
    """The node uses a new nonce each time."""
    known = Stranger(node).shake_hands(SECRET)
    known.say(greeting(m.PING))
    before = bus.Hello(ME, known.nonce, b"", 0, 0), bus.Hello(node.id, bytes(32), b"", 0, 0, bytes(16))
    heard = bus.Secrets(SECRET.encode(), *before).dialler_proof(0)
    replaying = Stranger(node).send(bus.encode_opening(ME, known.nonce, 0))
    replaying.word()
    assert b"wrong cluster-secret: all nodes" in replaying.send(bus.encode_proof(heard, 0)).word()
    assert replaying.is_hung_up_on()
    known.socket.close()


def test_a_packet_that_is_replayed_or_forged_ends_the_link(node: Node) -> None:
    for spoil in (lambda packet: packet + packet, lambda packet: packet[:-1] + bytes([packet[-1] ^ 1])):
        before = refused(node)
        known = Stranger(node).shake_hands(SECRET)
        assert known.send(
            spoil(bus.encode_packets([m.FailMessage(m.FAIL, ME)], known.seal, bus.MessageEncoder()))
        ).is_hung_up_on()
        assert refused(node) == before + 1


@pytest.mark.parametrize(
    "said",
    [
        [m.PING, "224.0.0.1", 1, 1, 0, 0, bytes(16), []],
        [m.MEET, "", 1, 1, 0, 0, bytes(16), [[b"b" * 40, "nowhere", 1, 1, 0, 0]]],
        [m.REPLJOB, 0, 0, 0, b"", b"", [[b"D" * 40]]],
        [m.FAIL],
    ],
)
def test_a_member_that_sends_malformed_messages_is_disconnected(node: Node, said: list[object]) -> None:
    known = Stranger(node).shake_hands(SECRET)
    payload = pack([said])
    tag = known.seal.next(payload)
    assert known.send((16 + len(payload)).to_bytes(4, "big") + tag + payload).is_hung_up_on()
    assert node.cluster_info()["cluster_known_nodes"] == 1


def test_job_messages_of_a_non_member_are_ignored(node: Node) -> None:
    image = m.JobImage(b"D-aaaaaaaa-abcdefghijklmnopqrstuvwx-05a1", b"forged", b"body")
    image.ttl_ms, image.retry_ms, image.holders = 60_000, 1_000, [ME]
    known = Stranger(node).shake_hands(SECRET)
    before = int(node.cluster_info()["cluster_stats_strangers"])
    known.say(
        m.JobsMessage(m.REPLJOB, [image]), m.QueueMessage(m.PAUSE, b"forged", 3), m.JobMessage(m.SETACK, image.id)
    )
    known.say(greeting(m.PING))
    wait_for(lambda: int(node.cluster_info()["cluster_stats_strangers"]) > before)
    assert node.ask("SHOW", image.id) is None and node.ask("QSTAT", "forged") is None
    known.socket.close()


def test_an_unproven_epoch_does_not_make_a_node_step_down(node: Node) -> None:
    id = node.id
    for stranger in (Stranger(node), Stranger(node, id)):
        stranger.shake_hands(WRONG_SECRET, epoch=9, known=9)
        assert b"wrong cluster-secret: all nodes" in stranger.word()
        assert stranger.is_hung_up_on()
    assert node.id == id and node.ask("CLUSTER", "EPOCH", id) == 0


def test_gossip_about_many_nodes_causes_few_connections(node: Node) -> None:
    """Gossip of a node that is not a member counts. The nodes in it are tried a few at a time, and given up."""
    known = Stranger(node, b"c" * 40).shake_hands(SECRET)
    rumours = [m.Rumour(b"%040x" % each, "127.0.0.1", 1, 9, 0) for each in range(250)]
    for _ in range(4):
        known.say(greeting(m.MEET, rumours))
    wait_for(lambda: int(node.cluster_info()["cluster_known_nodes"]) > 2)
    assert int(node.cluster_info()["cluster_known_nodes"]) <= 65
    known.socket.close()
    with contextlib.closing(Wire(node.port)) as wire, configured(wire, "cluster-node-timeout", MISSED_MS):
        wait_for(lambda: node.cluster_info()["cluster_known_nodes"] == 1)


def test_silent_connections_keep_no_peer_out(node: Node) -> None:
    silent = [Stranger(node) for _ in range(100)]
    # Their number does not matter, because the oldest make room.
    Stranger(node).shake_hands(SECRET).socket.close()
    assert b"too many links are being opened" in silent[0].word()
    for stranger in silent:
        stranger.socket.close()


def test_a_peer_that_always_disconnects_is_dialled_with_backoff(node: Node) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as door:
        door.settimeout(PATIENCE_S)
        node.ask("CLUSTER", "MEET", "127.0.0.1", 7, door.getsockname()[1])
        began = time.monotonic()
        for _ in range(5):
            # The link is accepted each time, so the node can be reached.
            called = Callee(door)
            called.answer()
            called.socket.close()
        # At once, and then after 0.1, 0.2 and 0.4 s.
        assert time.monotonic() - began >= 0.7
        assert node.ask("CLUSTER", "FORGET", called.name) == b"OK"


def test_the_local_port_of_a_link_can_still_be_listened_on(node: Node) -> None:
    """A link may use any free local port, including the port of a node that is down and needs it when it comes back."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as door:
        door.settimeout(PATIENCE_S)
        node.ask("CLUSTER", "MEET", "127.0.0.1", 7, door.getsockname()[1])
        called = Callee(door)
        called.answer()
        while is_shared(called.socket.getpeername()[1]):
            called.socket.close()  # The node connects again, from another port.
            called = Callee(door)
            called.answer()
        with called.socket:
            socket.create_server(called.socket.getpeername()).close()
        assert node.ask("CLUSTER", "FORGET", called.name) == b"OK"


def test_a_node_that_was_replaced_is_refused_by_name(node: Node) -> None:
    """A node with a proven epoch is accepted, and a later one with a lesser epoch is refused."""
    name = b"e" * 40
    known = Stranger(node, name).shake_hands(SECRET, epoch=2)
    known.say(m.Greeting(m.MEET, "127.0.0.1", 7, 8, 0, bytes(16), [], 2))
    wait_for(lambda: node.ask("CLUSTER", "EPOCH", name) == 2)
    before = Stranger(node, name).shake_hands(SECRET, epoch=1)
    assert b"was replaced: it is in epoch 2 now, and this process in 1" in before.word()
    assert before.is_hung_up_on()
    known.socket.close()
