"""One link of the bus, from either side: who it is, that they may be, and then what they say.

Each node opens a link of its own to each peer and speaks on it; on those that others opened it listens. Whoever has not
proven to know the secret within some seconds is hung up on, and so is whoever says what makes no sense.
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

# How long a handshake may take at most; less where nodes are soon missed.
HANDSHAKE_S: Final = 5.0

# With so much that a peer has not read, commands and answers of clients wait: they must not be why it is hung up on.
CROWDED_BYTES: Final = 4 * 1024 * 1024

TOO_MANY: Final = "too many links are being opened"


class Exchange(Protocol):
    """Where all links of a node come together."""

    node: bytes
    secret: bytes
    tls_name: str
    bytes_in: int
    bytes_out: int

    def patience_s(self) -> float:
        """How long a handshake may take."""

    def why_not(self, host: str) -> str:
        """Why nobody at an address is talked to; empty if they are."""

    def came(self, link: Inbound) -> bool:
        """Somebody has opened a link; tell whether there is room for it."""

    def epoch_of(self, node: bytes) -> int:
        """The greatest epoch that is known of a node, which may be this one."""

    def why_past(self, node: bytes, epoch: int, known: int) -> str:
        """Why a node is not talked to that has proven who it is, and in which epoch; empty if it is.

        `known` is the greatest epoch in which that node knows this one.
        """

    def is_known(self, link: Inbound) -> None:
        """Who opened a link has proven who it is."""

    def heard(self, link: Inbound, said: list[Message]) -> None:
        """A peer has said something."""

    def incarnation(self) -> bytes:
        """Return the incarnation of this node, which changes when it loses its jobs."""

    def is_open(self, link: Outbound, found: bytes, incarnation: bytes) -> None:
        """Use a link of ours that leads to the node `found`, which has proven its identity and its incarnation."""

    def has_room(self, link: Outbound) -> None:
        """A link of ours on which much waited has room again."""

    def lost(self, link: Link) -> None:
        """A link is gone."""

    def refused(self, link: Link, why: str) -> None:
        """Somebody has said what makes no sense, or is not one of us."""


class Link(asyncio.Protocol):
    """What both sides have in common. asyncio calls it."""

    def __init__(self, exchange: Exchange, host: str = "", port: int = 0) -> None:
        self.exchange = exchange
        self.node = b""  # Who is at the other end, once that is proven,
        self.epoch = 0  # and in which epoch.
        self.host = host  # Where that is.
        self.port = port
        self.own_host = ""  # Where this node is, as seen from there.
        self.transport: asyncio.Transport | None = None
        self._frames = wire.Frames()
        self._nonce = secrets.token_bytes(wire.NONCE_BYTES)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast(asyncio.Transport, transport)
        self.own_host = _host(transport.get_extra_info("sockname"))
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self.exchange.patience_s(), self.fail, "the handshake takes too long")

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        self.exchange.bytes_in += len(data)
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
        """It is gone."""
        self.be_patient()
        self.transport = None
        self.exchange.lost(self)

    def read(self, frame: bytes) -> None:
        """A frame came in."""
        raise NotImplementedError

    def say(self, data: bytes) -> None:
        """Send bytes."""
        if self.transport is not None:
            self.transport.write(data)
            self.exchange.bytes_out += len(data)

    def be_patient(self) -> None:
        """The handshake is over."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def fail(self, why: str) -> None:
        """Hang up, because of something that the other side did."""
        if self.transport is not None:
            self.exchange.refused(self, why)
            self.close()

    def part(self, why: str) -> None:
        """Hang up, once the other side has what was said."""
        self.exchange.refused(self, why)
        if self.transport is not None:
            self.transport.close()
            self.transport = None

    def close(self) -> None:
        """Hang up."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class Inbound(Link):
    """A link that a peer has opened, on which it speaks."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._claimed: wire.Hello | None = None  # Who the other side says it is,
        self._secrets: wire.Secrets | None = None  # and what that has to prove.
        self._seal: wire.Seal | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self.host = _host(transport.get_extra_info("peername"))
        why_not = self.exchange.why_not(self.host) or self._wrong_certificate(transport)
        if why_not:
            self.turn_away(why_not)
        elif not self.exchange.came(self):
            self.turn_away(TOO_MANY)

    def _wrong_certificate(self, transport: asyncio.BaseTransport) -> str:
        """Return why the certificate of the other side is not that of a node; empty if it is, or without TLS.

        TLS has checked who signed it. Its name is checked here, as diallers check that of the listener.
        """
        certificate = transport.get_extra_info("peercert")
        wanted = self.exchange.tls_name or self.host
        if not certificate or wanted.lower() in certificate_names(certificate):
            return ""
        return f"its certificate is not for {wanted}; see tls-cluster-name"

    def turn_away(self, why: str) -> None:
        """Say why there will be no talk, and hang up."""
        self.say(wire.refusal(self.exchange.node, why))
        self.part(why)

    def read(self, frame: bytes) -> None:
        """A frame came in: the first word, the third, or a packet."""
        if self._seal is not None:
            self.exchange.heard(self, wire.messages(wire.opened(frame, self._seal)))
        elif self._claimed is None or self._secrets is None:
            self._answer(frame)
        else:
            self._believe(self._claimed, self._secrets, wire.last_word(frame))

    def _answer(self, frame: bytes) -> None:
        exchange = self.exchange
        try:
            hello = wire.hello(frame, False)
        except ProtocolError as error:
            self.turn_away(str(error))
            return
        epoch, known = exchange.epoch_of(exchange.node), exchange.epoch_of(hello.node)
        incarnation = exchange.incarnation()
        myself = wire.Hello(exchange.node, self._nonce, b"", epoch, known, incarnation)
        self._claimed, self._secrets = hello, wire.Secrets(exchange.secret, hello, myself)
        proof = self._secrets.listener_proof()
        self.say(wire.answer(exchange.node, self._nonce, proof, epoch, known, incarnation))

    def _believe(self, claimed: wire.Hello, secrets: wire.Secrets, proven: wire.Proven) -> None:
        if not wire.same(proven.proof, secrets.dialler_proof(proven.known)):
            self.turn_away("it does not know the secret of this cluster (cluster-secret)")
            return
        why_past = self.exchange.why_past(claimed.node, claimed.epoch, proven.known)
        if why_past:
            self.turn_away(why_past)
            return
        self.be_patient()
        self.node, self.epoch = claimed.node, claimed.epoch
        self._seal = wire.Seal(secrets.link_key())
        self._frames.bytes_max = wire.PACKET_BYTES_MAX
        self.exchange.is_known(self)


class Outbound(Link):
    """A link that this node opens to a peer, and on which it speaks."""

    def __init__(self, exchange: Exchange, named: bytes, host: str, port: int) -> None:
        super().__init__(exchange, host, port)
        self.named = named  # Who should be there.
        self._myself = wire.Hello(exchange.node, self._nonce, b"", 0, 0)
        self.seal: wire.Seal | None = None  # Once it is proven who is,
        self.opened_at = 0.0  # and when that was.
        self.is_crowded = False  # What can wait is not said now.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=CROWDED_BYTES)
        exchange = self.exchange
        self._myself = wire.Hello(exchange.node, self._nonce, b"", exchange.epoch_of(exchange.node), 0)
        self.say(wire.opening(exchange.node, self._nonce, self._myself.epoch))

    def read(self, frame: bytes) -> None:
        """A frame came in: it can only be the second word."""
        if self.seal is not None:
            raise ProtocolError("a node speaks on links of its own")
        exchange = self.exchange
        hello = wire.hello(frame, True)
        made = wire.Secrets(exchange.secret, self._myself, hello)
        if not wire.same(hello.proof, made.listener_proof()):
            raise ProtocolError("it does not know the secret of this cluster (cluster-secret)")
        # Also to one that is not talked to: it should hear that it was replaced.
        known = exchange.epoch_of(hello.node)
        self.say(wire.proven(made.dialler_proof(known), known))
        why_past = exchange.why_past(hello.node, hello.epoch, hello.known)
        if why_past:
            self.part(why_past)
            return
        self.be_patient()
        self.node, self.epoch = hello.node, hello.epoch
        self.seal = wire.Seal(made.link_key())
        exchange.is_open(self, hello.node, hello.incarnation)

    def post(self, letters: list[Message], scribe: wire.Scribe) -> None:
        """Say something, all of it at once."""
        assert self.seal is not None
        self.say(wire.packets(letters, self.seal, scribe))

    def pause_writing(self) -> None:
        """The other side has much to read."""
        self.is_crowded = True

    def resume_writing(self) -> None:
        """It has read most of it."""
        self.is_crowded = False
        self.exchange.has_room(self)

    def unsent(self) -> int:
        """How many bytes the other side has not read yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()


def certificate_names(certificate: dict[str, Any]) -> set[str]:
    """Return the DNS names and IP addresses that a certificate is for, in lower case, as `getpeercert` tells them."""
    found = set()
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            found.add(value.lower())
        elif kind == "IP Address":
            # OpenSSL writes IPv6 addresses in capitals and in full.
            with contextlib.suppress(ValueError):
                found.add(str(ipaddress.ip_address(value.strip())))
    return found


def _host(name: object) -> str:
    """The address in the name of a socket."""
    if not isinstance(name, tuple):
        return ""
    try:
        return wire.address(str(name[0]).partition("%")[0])
    except ProtocolError:
        return ""
