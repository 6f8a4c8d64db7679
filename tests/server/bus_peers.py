"""Peers of the cluster bus that are played by tests, message by message."""

from __future__ import annotations

import contextlib
import socket

from penstock.cluster import messages as m
from penstock.wire import bus
from tests.ports import free_port

from .clustering import Node
from .serving import PATIENCE_S

ME = b"a" * 40
INCARNATION = bytes(16)
SECRET = "6d1f0c9be27a4835d0c1b7f4e9a25386c4d7f1e02b9a8365f0d2c4b6a8e19375"
WRONG_SECRET = SECRET[::-1]


class Stranger:
    """A connection to the bus that can send any bytes."""

    def __init__(self, node: Node, name: bytes = ME) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.bus_port), timeout=PATIENCE_S)
        self.name = name
        self.nonce = b"n" * 32
        self.seal = bus.PacketTags(bytes(32))

    def send(self, data: bytes) -> Stranger:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)
        return self

    def word(self) -> bytes:
        """Return the next message of the node's handshake."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "hung up"
            data += more
        return data

    def shake_hands(self, secret: str, epoch: int = 0, known: int = 0) -> Stranger:
        """Run the handshake, with the right secret or another one."""
        self.send(bus.encode_opening(self.name, self.nonce, epoch))
        hello = bus.parse_hello(self.word(), True)
        made = bus.Secrets(secret.encode(), bus.Hello(self.name, self.nonce, b"", epoch, 0), hello)
        self.seal = bus.PacketTags(made.link_key())
        self.send(bus.encode_proof(made.dialler_proof(known), known))
        return self

    def say(self, *said: m.Message) -> Stranger:
        return self.send(bus.encode_packets(list(said), self.seal, bus.MessageEncoder()))

    def is_hung_up_on(self) -> bool:
        """Wait until the node has closed the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        self.socket.close()
        return True


class Callee(Stranger):
    """A listener that the node connects to."""

    def __init__(self, door: socket.socket, name: bytes = b"d" * 40) -> None:
        self.socket, _ = door.accept()
        self.socket.settimeout(PATIENCE_S)
        self.name = name
        self.nonce = b"n" * 32

    def answer(self) -> None:
        """Run the listener's side of the handshake: send the second message, and read the third."""
        myself = bus.Hello(self.name, self.nonce, b"", 0, 0, INCARNATION)
        made = bus.Secrets(SECRET.encode(), bus.parse_hello(self.word(), False), myself)
        self.send(bus.encode_answer(self.name, self.nonce, made.listener_proof(), 0, 0, INCARNATION))
        self.word()


def greeting(kind: int = m.MEET, rumours: list[m.Rumour] | None = None) -> m.Greeting:
    return m.Greeting(kind, "127.0.0.1", 7, 8, 0, INCARNATION, rumours or [])


class Member:
    """A node that is played by a test. It has the secret and has joined a cluster, with a link in each direction."""

    def __init__(self, node: Node, name: bytes = ME) -> None:
        with socket.create_server(("127.0.0.1", free_port())) as door:
            door.settimeout(PATIENCE_S)
            self.bus_port: int = door.getsockname()[1]
            self.name = name
            self._out = Stranger(node, name).shake_hands(SECRET)
            self.greet(m.MEET)
            self._back = Callee(door, name)
            self._back.answer()
        # The node counts this one as a member after it has seen both links work.
        self.greet(m.PING)

    def greet(self, kind: int, rumours: list[m.Rumour] | None = None) -> None:
        """Announce the address of this node."""
        self.say(m.Greeting(kind, "127.0.0.1", 7, self.bus_port, 0, INCARNATION, rumours or []))

    def say(self, *said: m.Message) -> None:
        self._out.say(*said)

    def send_raw(self, payload: bytes) -> None:
        """Send a packet with any content, correctly sealed."""
        tag = self._out.seal.next(payload)
        self._out.send((len(tag) + len(payload)).to_bytes(4, "big") + tag + payload)

    def hear(self, kind: int) -> m.Message:
        """Wait for a message of this kind on the node's own link."""
        while True:
            for message in bus.decode_messages(self._back.word()[bus.TAG_BYTES :]):
                if message.kind == kind:
                    return message

    def close(self) -> None:
        self._out.socket.close()
        self._back.socket.close()
