"""One link of the bus, from either side: who it is, that they may be, and then what they say.

Each node opens a link of its own to each peer and speaks on it; on those that others opened it listens. Whoever has not
proven to know the secret within some seconds is hung up on, and so is whoever says what makes no sense.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Protocol, cast

from penstock.cluster.messages import Greeting, Message
from penstock.core.errors import ProtocolError
from penstock.wire import bus as wire

# How long a handshake may take at most; less where nodes are soon missed.
HANDSHAKE_S: Final = 5.0


class Exchange(Protocol):
    """Where all links of a node come together."""

    node: bytes
    secret: bytes
    body_max: int
    bytes_in: int
    bytes_out: int

    def patience_s(self) -> float:
        """How long a handshake may take."""

    def why_not(self, host: str) -> str:
        """Why nobody at an address is talked to; empty if they are."""

    def came(self, link: Inbound) -> bool:
        """Somebody has opened a link; tell whether there is room for it."""

    def is_known(self, link: Inbound) -> None:
        """Who opened a link has proven who it is."""

    def heard(self, link: Inbound, said: list[Message]) -> None:
        """A peer has said something."""

    def is_open(self, link: Outbound, found: bytes) -> None:
        """A link of ours leads to a node that has proven who it is."""

    def lost(self, link: Link) -> None:
        """A link is gone."""

    def refused(self, link: Link, why: str) -> None:
        """Somebody has said what makes no sense, or is not one of us."""


class Link(asyncio.Protocol):
    """What both sides have in common. asyncio calls it."""

    def __init__(self, exchange: Exchange, host: str = "", port: int = 0) -> None:
        self.exchange = exchange
        self.node = b""  # Who is at the other end, once that is proven.
        self.host = host  # Where that is.
        self.port = port
        self.own_host = ""  # Where this node is, as seen from there.
        self.is_ours = False  # Whether it was us who opened it.
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

    def close(self) -> None:
        """Hang up."""
        if self.transport is not None:
            self.transport.abort()
            self.transport = None


class Inbound(Link):
    """A link that a peer has opened, on which it speaks."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._proof = b""  # What the other side has to prove.
        self._claimed = b""  # Who it says it is.
        self._key = b""
        self._seal: wire.Seal | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self.host = _host(transport.get_extra_info("peername"))
        why_not = self.exchange.why_not(self.host)
        if why_not:
            self.turn_away(why_not)
        elif not self.exchange.came(self):
            self.turn_away("too many links are being opened")

    def turn_away(self, why: str) -> None:
        """Say why there will be no talk, and hang up."""
        self.exchange.refused(self, why)
        self.say(wire.refusal(self.exchange.node, why))
        if self.transport is not None:
            self.transport.close()
            self.transport = None

    def read(self, frame: bytes) -> None:
        """A frame came in: the first word, the third, or a packet."""
        if self._seal is not None:
            said = wire.messages(wire.opened(frame, self._seal), self.exchange.body_max)
            for message in said:
                if isinstance(message, Greeting) and not message.host:
                    message.host = self.host
            self.exchange.heard(self, said)
        elif not self._proof:
            self._answer(frame)
        elif not wire.same(wire.proof_of(frame), self._proof):
            self.turn_away("it does not know the secret of this cluster (cluster-secret)")
        else:
            self.be_patient()
            self.node = self._claimed
            self._seal = wire.Seal(self._key)
            self._frames.bytes_max = self.exchange.body_max + wire.ENVELOPE_BYTES
            self.exchange.is_known(self)

    def _answer(self, frame: bytes) -> None:
        exchange = self.exchange
        try:
            hello = wire.hello(frame, False)
        except ProtocolError as error:
            self.turn_away(str(error))
            return
        made = wire.Secrets(exchange.secret, hello.node, exchange.node, hello.nonce, self._nonce)
        self._claimed, self._proof, self._key = hello.node, made.dialler_proof(), made.link_key()
        self.say(wire.answer(exchange.node, self._nonce, made.listener_proof()))


class Outbound(Link):
    """A link that this node opens to a peer, and on which it speaks."""

    def __init__(self, exchange: Exchange, named: bytes, host: str, port: int) -> None:
        super().__init__(exchange, host, port)
        self.is_ours = True
        self.named = named  # Who should be there.
        self.seal: wire.Seal | None = None  # Once it is proven who is.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self.say(wire.opening(self.exchange.node, self._nonce))

    def read(self, frame: bytes) -> None:
        """A frame came in: it can only be the second word."""
        if self.seal is not None:
            raise ProtocolError("a node speaks on links of its own")
        exchange = self.exchange
        hello = wire.hello(frame, True)
        made = wire.Secrets(exchange.secret, exchange.node, hello.node, self._nonce, hello.nonce)
        if not wire.same(hello.proof, made.listener_proof()):
            raise ProtocolError("it does not know the secret of this cluster (cluster-secret)")
        self.be_patient()
        self.node = hello.node
        self.seal = wire.Seal(made.link_key())
        self.say(wire.proven(made.dialler_proof()))
        exchange.is_open(self, hello.node)

    def post(self, letters: list[Message], scribe: wire.Scribe) -> None:
        """Say something, all of it at once."""
        assert self.seal is not None
        self.say(wire.packets(letters, self.seal, scribe))

    def unsent(self) -> int:
        """How many bytes the other side has not read yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()


def _host(name: object) -> str:
    """The address in the name of a socket."""
    if not isinstance(name, tuple):
        return ""
    try:
        return wire.address(str(name[0]).partition("%")[0])
    except ProtocolError:
        return ""
