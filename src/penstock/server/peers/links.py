"""A link of the cluster bus, from either side: the handshake, and then messages in one direction.

Each node opens a link to each peer and sends messages on it. It receives messages on the links that its peers opened.
A link is closed if its peer does not prove within some seconds that it has the secret, or if it sends malformed
messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
from typing import Any, Final, Protocol, cast

from penstock.cluster.messages import Message
from penstock.core.errors import ProtocolError
from penstock.wire import bus as wire

# The maximum time of a handshake. It is shorter if the node timeout is short.
HANDSHAKE_S: Final = 5.0

# If a peer has not read this much, commands and replies of clients wait, so that they are not the reason to close its
# link.
CROWDED_BYTES: Final = 4 * 1024 * 1024

TOO_MANY: Final = "too many links are being opened"


class LinkOwner(Protocol):
    """The interface of `Bus` that links report to. `bus.py` describes its methods."""

    node: bytes
    secret: bytes
    tls_name: str

    def count_bytes(self, node: bytes, sent: int, received: int) -> None: ...
    def handshake_s(self) -> float: ...
    def why_not(self, host: str) -> str: ...
    def opened(self, link: Inbound) -> bool: ...
    def epoch_of(self, node: bytes) -> int: ...
    def why_superseded(self, node: bytes, epoch: int, known: int) -> str: ...
    def authenticated(self, link: Inbound) -> None: ...
    def receive(self, link: Inbound, said: list[Message]) -> None: ...
    def incarnation(self) -> bytes: ...
    def link_opened(self, link: Outbound, found: bytes, incarnation: bytes) -> None: ...
    def send_waiting(self, link: Outbound) -> None: ...
    def lost(self, link: Link) -> None: ...
    def refused(self, link: Link, why: str) -> None: ...


class Link(asyncio.Protocol):
    """The part of a link that both sides have in common. asyncio calls it as a Protocol."""

    def __init__(self, exchange: LinkOwner, host: str = "", port: int = 0) -> None:
        self.owner = exchange
        self.node = b""  # The proven id of the other node.
        self.epoch = 0  # The proven epoch of the other node.
        self.host = host  # The address of the other node.
        self.port = port
        self.own_host = ""  # The address of this node, as the other one uses it.
        self.transport: asyncio.Transport | None = None
        self._frames = wire.Frames()
        self._nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of the handshake."""
        self.transport = cast(asyncio.Transport, transport)
        self.own_host = _host(transport.get_extra_info("sockname"))
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(self.owner.handshake_s(), self.fail, "the handshake took too long")

    def data_received(self, data: bytes) -> None:
        self.owner.count_bytes(self.node, 0, len(data))
        self._frames.feed(data)
        try:
            while self.transport is not None:
                frame = self._frames.next()
                if frame is None:
                    return
                self.read(frame)
        except ProtocolError as error:
            self.fail(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self.stop_timeout()
        self.transport = None
        self.owner.lost(self)

    def read(self, frame: bytes) -> None:
        """Handle one frame. Raise ProtocolError if it is malformed."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)
            self.owner.count_bytes(self.node, len(data), 0)

    def stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def fail(self, why: str) -> None:
        """Close the link, because the other side made an error. Log the reason `why`."""
        if self.transport is not None:
            self.owner.refused(self, why)
            self.close()

    def close_gracefully(self, why: str) -> None:
        """Close the link after all written bytes have been sent."""
        self.owner.refused(self, why)
        if self.transport is not None:
            self.transport.close()
            self.transport = None

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class Inbound(Link):
    """A link that a peer opened, on which it sends messages."""

    def __init__(self, exchange: LinkOwner) -> None:
        super().__init__(exchange)
        self._claimed: wire.Hello | None = None  # The identity that the other side claims.
        self._secrets: wire.Secrets | None = None  # The keys with which it has to prove that.
        self._seal: wire.PacketTags | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout. Refuse the link if the address or the certificate of the other side is not allowed."""
        super().connection_made(transport)
        self.host = _host(transport.get_extra_info("peername"))
        why_not = self.owner.why_not(self.host) or self._wrong_certificate(transport)
        if why_not:
            self.refuse(why_not)
        elif not self.owner.opened(self):
            self.refuse(TOO_MANY)

    def _wrong_certificate(self, transport: asyncio.BaseTransport) -> str:
        """Return the reason why the certificate of the other side is not that of a node, or "".

        TLS has checked the signature. It checks names only for the side that opens a connection, so the name is checked
        here. Without TLS there is no certificate to check.
        """
        certificate = transport.get_extra_info("peercert")
        wanted = self.owner.tls_name or self.host
        if not certificate or wanted.lower() in certificate_names(certificate):
            return ""
        return f"the certificate is not for {wanted}; see tls-cluster-name"

    def refuse(self, why: str) -> None:
        """Send the reason of a refusal, and close the link."""
        self.write(wire.encode_refusal(self.owner.node, why))
        self.close_gracefully(why)

    def read(self, frame: bytes) -> None:
        """Handle a frame: the first or third message of the handshake, or a packet."""
        if self._seal is not None:
            self.owner.receive(self, wire.decode_messages(wire.verified_payload(frame, self._seal)))
        elif self._claimed is None or self._secrets is None:
            self._reply(frame)
        else:
            self._check_proof(self._claimed, self._secrets, wire.parse_proof(frame))

    def _reply(self, frame: bytes) -> None:
        exchange = self.owner
        try:
            hello = wire.parse_hello(frame, False)
        except ProtocolError as error:
            self.refuse(str(error))
            return
        epoch, known = exchange.epoch_of(exchange.node), exchange.epoch_of(hello.node)
        incarnation = exchange.incarnation()
        myself = wire.Hello(exchange.node, self._nonce, b"", epoch, known, incarnation)
        self._claimed, self._secrets = hello, wire.Secrets(exchange.secret, hello, myself)
        proof = self._secrets.listener_proof()
        self.write(wire.encode_answer(exchange.node, self._nonce, proof, epoch, known, incarnation))

    def _check_proof(self, claimed: wire.Hello, secrets: wire.Secrets, proven: wire.DiallerProof) -> None:
        if not wire.equal_in_constant_time(proven.proof, secrets.dialler_proof(proven.known)):
            self.refuse("wrong cluster-secret: all nodes of a cluster need the same one")
            return
        why_past = self.owner.why_superseded(claimed.node, claimed.epoch, proven.known)
        if why_past:
            self.refuse(why_past)
            return
        self.stop_timeout()
        self.node, self.epoch = claimed.node, claimed.epoch
        self._seal = wire.PacketTags(secrets.link_key())
        self._frames.bytes_max = wire.PACKET_BYTES_MAX
        self.owner.authenticated(self)


class Outbound(Link):
    """A link that this node opens to a peer, and on which it sends messages."""

    def __init__(self, exchange: LinkOwner, named: bytes, host: str, port: int) -> None:
        super().__init__(exchange, host, port)
        self.expected = named  # The id of the expected node.
        self._myself = wire.Hello(exchange.node, self._nonce, b"", 0, 0)
        self.seal: wire.PacketTags | None = None  # Set when the other node has proven its identity.
        self.opened_at = 0.0  # The time at which `seal` was set.
        self.is_crowded = False  # The peer has much to read, so bytes of clients wait.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first message of the handshake."""
        super().connection_made(transport)
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=CROWDED_BYTES)
        exchange = self.owner
        self._myself = wire.Hello(exchange.node, self._nonce, b"", exchange.epoch_of(exchange.node), 0)
        self.write(wire.encode_opening(exchange.node, self._nonce, self._myself.epoch))

    def read(self, frame: bytes) -> None:
        """Handle the second message of the handshake. No other frame is expected."""
        if self.seal is not None:
            raise ProtocolError("a peer must send messages on its own link")
        exchange = self.owner
        hello = wire.parse_hello(frame, True)
        made = wire.Secrets(exchange.secret, self._myself, hello)
        if not wire.equal_in_constant_time(hello.proof, made.listener_proof()):
            raise ProtocolError("wrong cluster-secret: all nodes of a cluster need the same one")
        # The answer is also sent to a replaced node, which learns from it that it was replaced.
        known = exchange.epoch_of(hello.node)
        self.write(wire.encode_proof(made.dialler_proof(known), known))
        why_past = exchange.why_superseded(hello.node, hello.epoch, hello.known)
        if why_past:
            self.close_gracefully(why_past)
            return
        self.stop_timeout()
        self.node, self.epoch = hello.node, hello.epoch
        self.seal = wire.PacketTags(made.link_key())
        exchange.link_opened(self, hello.node, hello.incarnation)

    def send(self, messages: list[Message], encoder: wire.MessageEncoder) -> None:
        """Send messages in one write."""
        assert self.seal is not None
        self.write(wire.encode_packets(messages, self.seal, encoder))

    def pause_writing(self) -> None:
        """Record that the peer reads slowly, so that the bytes of tunnels have to wait."""
        self.is_crowded = True

    def resume_writing(self) -> None:
        """Resume sending the bytes of tunnels, because the peer has read most of the written bytes."""
        self.is_crowded = False
        self.owner.send_waiting(self)

    def unsent(self) -> int:
        """Return how many bytes are not sent yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()


def certificate_names(certificate: dict[str, Any]) -> set[str]:
    """Return the DNS names and IP addresses of a certificate in the form of `getpeercert`, in lower case."""
    found = set()
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            found.add(value.lower())
        elif kind == "IP Address":
            # OpenSSL writes IPv6 addresses in upper case and in full.
            with contextlib.suppress(ValueError):
                found.add(str(ipaddress.ip_address(value.strip())))
    return found


def _host(name: object) -> str:
    """Return the IP address in a socket name."""
    if not isinstance(name, tuple):
        return ""
    try:
        return wire.address(str(name[0]).partition("%")[0])
    except ProtocolError:
        return ""
