"""Forwarded clients and their sessions, without a bus."""

from __future__ import annotations

from penstock.cluster import messages as m
from penstock.cluster.members import Members
from penstock.cluster.messages import Credentials, TunnelMessage
from penstock.cluster.node import Cluster
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.outbox import Outbox
from penstock.dialects.tarantool.queue_functions import QueueFunctions
from penstock.journal.log import Log
from penstock.node.caller import Caller
from penstock.node.clock import Clock
from penstock.node.context import CommandContext
from penstock.node.dispatch import Dispatcher
from penstock.node.forwarded_clients import Admission, ForwardedClients
from penstock.node.inbox import Inbox, RespInbox
from penstock.node.remote import RemoteCommands
from penstock.node.tunnels import TunnelLinks
from penstock.node.turn import Driver, Turn
from penstock.wire import iproto
from penstock.wire.iproto import Request
from penstock.wire.msgpack import pack
from penstock.wire.resp import RespParser

NODE, OTHER = b"a" * 40, b"b" * 40
TOKEN = b"token of 16 byte"


class ManualClock(Clock):
    ms = 1_000_000

    def now(self) -> int:
        return self.ms

    def wall(self) -> int:
        return self.ms


class NoDriver(Driver):
    def begin(self) -> None: ...

    def wake_at(self, due: int) -> None: ...

    def start_sync(self, log: Log) -> None: ...


class EveryClient(Admission):
    def __init__(self) -> None:
        self._tokens = 0

    def inbox(self, protocol: int) -> Inbox:
        return RespInbox(RespParser(1_024, 1_024), Dispatcher([], lambda: 0))

    def bulk_max(self) -> int:
        return 1_024

    def token(self, length: int) -> bytes:
        self._tokens += 1
        return b"%0*d" % (length, self._tokens)


class Home:
    """A node whose tubes are used by clients of another node."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(1, self.clock.ms, Outbox(), 7)
        mail = PeerOutbox()
        members = Members(NODE, b"incarnation 1234", 3, mail)
        ids = IdForms(NODE[:8], b"k" * 32)
        body_of = self.engine.outbox.body_of
        cluster = Cluster(self.engine, ids, members, mail, 5, body_of, lambda needed: None)
        self.turn = Turn(self.engine, self.clock, NoDriver(), Dispatcher([], lambda: 0))
        self.guests = ForwardedClients(self.turn, cluster, TunnelLinks(self.turn, cluster), EveryClient())

    def admit(self, number: int, grace_ms: int) -> None:
        """Handle the credentials of a client of the other node, in a turn of their own."""
        credentials = Credentials(m.TUNNEL, number, 0, m.RESP_2)
        credentials.token, credentials.grace = TOKEN, grace_ms + 1
        credentials.tubes = [b"*"]
        self.turn.begin()
        self.guests.receive(OTHER, credentials)

    def end(self, number: int) -> None:
        self.guests.receive(OTHER, TunnelMessage(m.TUNNELEND, number, False, 0, b""))


def test_a_client_whose_grace_time_ends_with_this_turn_gets_a_new_session_of_its_token() -> None:
    home = Home()
    home.admit(1, 500)
    first = home.engine.sessions[TOKEN]
    home.end(1)
    assert home.engine.sessions[TOKEN] is first
    # The timer of the session is due, and the credentials arrive before it fires.
    home.clock.ms += 500
    home.turn.end()
    home.turn.begin()
    assert home.turn.now == home.clock.ms
    home.admit(2, 500)
    second = home.engine.sessions[TOKEN]
    assert second is not first and len(second.connections) == 1


def test_a_client_that_comes_back_within_its_grace_time_keeps_its_session() -> None:
    home = Home()
    home.admit(1, 500)
    first = home.engine.sessions[TOKEN]
    home.end(1)
    home.clock.ms += 499
    home.turn.end()
    home.admit(2, 500)
    assert home.engine.sessions[TOKEN] is first and len(first.connections) == 1


class Identified(RemoteCommands):
    """Records the callers whose new sessions are sent to other nodes."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    def identified(self, caller: Caller) -> None:
        self.callers.append(caller)


def test_a_session_that_is_resumed_over_iproto_is_resumed_at_the_other_nodes_that_it_uses() -> None:
    engine = Engine(1, 1_000_000, Outbox(), 7)
    context = CommandContext(engine, IdForms(NODE[:8], b"k" * 32), NODE, engine.outbox.body_of, lambda needed: None)
    remote = context.remote = Identified()
    first, second = engine.connect(TOKEN), engine.connect(b"another 16 bytes")
    caller, call = Caller(second), Request(iproto.CALL, 1)
    identify = QueueFunctions(context).identify
    identify(caller, call, b"", engine.now)
    assert remote.callers == []
    call.args = [pack(TOKEN)]
    identify(caller, call, b"", engine.now)
    assert second.session is first.session and remote.callers == [caller]
