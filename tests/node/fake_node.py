"""A node with an engine, a log in memory, all job commands and one turn, driven by hand.

A test passes bytes in, ends the turn, and ends the sync when it wants to. Nothing happens in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgpack

from penstock.cluster import messages as m
from penstock.core import policy
from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.job import Draft, Job
from penstock.core.outbox import Outbox
from penstock.core.waits import Connection
from penstock.dialects.disque import Disque
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.job_commands import JobCommands
from penstock.dialects.native.tube_commands import TubeCommands
from penstock.dialects.tarantool.calls import CallDispatcher, CallInbox, FunctionFamily
from penstock.dialects.tarantool.queue_functions import QueueFunctions, TubeMethods
from penstock.journal.log import ALWAYS, Log
from penstock.journal.recovery.opening import open_log
from penstock.journal.room import RESERVE_BYTES
from penstock.node.caller import WRITE, Caller
from penstock.node.client import Client
from penstock.node.clock import Clock
from penstock.node.context import CommandContext
from penstock.node.dispatch import Command, Dispatcher
from penstock.node.inbox import Inbox, RespInbox
from penstock.node.turn import SOON, Driver, Turn
from penstock.server.commands.command_table import commands_of
from penstock.server.commands.native_table import native_rows
from penstock.server.commands.pipeline_table import pipeline_rows
from penstock.testing.clock import FakeClock
from penstock.testing.disk import MemoryDisk
from penstock.wire.iproto import IprotoParser, IprotoReply, Request
from penstock.wire.resp import RespParser
from penstock.wire.resp_client import ErrorReply, ReplyParser, encode

from ..server.iproto_wire import call as iproto_call

if TYPE_CHECKING:
    from penstock.server.server import Server

SEGMENT_BYTES = RESERVE_BYTES + 256 * 1024  # The log needs a little more than the reserve.
BULK_BYTES_MAX = 64 * 1024 * 1024
WAITS_MAX = 64
DISQUE = ["addjob", "getjob", "ackjob", "fastack", "nack", "enqueue", "dequeue", "working", "qlen", "show"]


class NodeClock(Clock):
    """The clock of a node: a clock that the test advances."""

    def __init__(self, fake: FakeClock) -> None:
        self.fake = fake

    def now(self) -> int:
        return self.fake.ms

    def wall(self) -> int:
        return self.fake.ms


class FakeDriver(Driver):
    """Records the requests of a turn."""

    def __init__(self) -> None:
        self.begun = 0  # How often the lock was taken.
        self.wakes: list[int] = []  # The arguments of `wake_at`.
        self.syncing: list[int] = []  # The end of the log when the present sync was started.

    def begin(self) -> None:
        self.begun += 1

    def wake_at(self, due: int) -> None:
        self.wakes.append(due)

    def start_sync(self, log: Log) -> None:
        assert not self.syncing, "there is at most one sync at a time"
        self.syncing.append(log.written)


class FakeClient(Client):
    """A client whose connection is a list of the bytes that were sent."""

    def __init__(self, node: FakeNode, connection: Connection) -> None:
        super().__init__(node.turn.next_number(), connection, node.turn.now)
        self.node = node
        self.bulk_max = BULK_BYTES_MAX
        self.sent: list[bytes] = []  # The bytes of each write.
        self.is_shut = False  # The node has closed the connection.
        self.is_aborted = False
        self.is_dead = False  # The connection is closed, and the node has not noticed.
        self._parser = ReplyParser()

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.is_dead

    def close(self) -> None:
        self.is_closed = self.is_shut = True

    def abort(self) -> None:
        self.is_closed = self.is_shut = self.is_aborted = True

    def feed(self, *words: bytes | str | int) -> None:
        """Send a RESP command."""
        self.node.turn.received(self, resp(*words))

    def call(self, name: str, *args: Any, sync: int = 0) -> None:
        """Send an IPROTO call."""
        self.node.turn.received(self, iproto_call(name, args, sync))

    def take_sent(self) -> bytes:
        """Return the bytes that were sent since the last call."""
        sent, self.sent = b"".join(self.sent), []
        return sent

    def replies(self) -> list[Any]:
        """Return the RESP replies that were sent since the last call. An error is its line as text."""
        self._parser.feed(self.take_sent())
        return [each.line.decode() if isinstance(each, ErrorReply) else each for each in self._parser.parse()]

    def results(self) -> dict[int, Any]:
        """Return the IPROTO replies that were sent since the last call, by sync. An error is its text."""
        found = {}
        data = self.take_sent()
        while data:
            length = int.from_bytes(data[1:5], "big")
            unpacker = msgpack.Unpacker(strict_map_key=False)
            unpacker.feed(data[5 : 5 + length])
            header, body = unpacker.unpack(), unpacker.unpack()
            found[header[1]] = body.get(0x30, body.get(0x31))
            data = data[5 + length :]
        return found

    def leave(self) -> None:
        """Disconnect."""
        self.lost = self.is_closed = True
        self.node.turn.leave(self)


class FakeNode:
    """One node."""

    def __init__(self, fsync: str = ALWAYS, clock: FakeClock | None = None, id: bytes = b"", log: bool = True) -> None:
        self.disk = MemoryDisk()
        self.clock = clock or FakeClock()
        self.driver = FakeDriver()
        self.ns = 0  # The clock that measures commands.
        self.log: Log | None = None
        if log:
            opened = open_log(
                self.disk, lambda: self.clock.ms, "boot", fsync=fsync, entropy=1, segment_bytes=SEGMENT_BYTES
            )
            self.engine, self.log = opened.engine, opened.log
            self.log.update_room()
            self.id, key = id or opened.node.encode(), opened.key
        else:
            self.engine, self.id, key = Engine(1, self.clock.ms, Outbox()), id or 40 * b"a", 32 * b"k"
        self.ids = IdForms(self.id[:8], key)
        self.context = CommandContext(self.engine, self.ids, self.id, self.engine.outbox.body_of, self.make_room)
        disque = Disque(self.context)
        self.native, self.tubes = DeliveryCommands(self.context), TubeCommands(self.context)
        self.jobs = JobCommands(self.native)
        commands = [Command(name, -1, "w", WRITE, "", "", getattr(disque, name)) for name in DISQUE]
        server = cast("Server", self)
        rows = [*native_rows(server), *pipeline_rows(server)]
        self.dispatcher = Dispatcher([*commands, *commands_of(rows)], lambda: self.ns)
        self.calls = CallDispatcher(
            self.dispatcher,
            {b"queue": QueueFunctions(self.context)},
            TubeMethods(self.context),
            FunctionFamily(),
            _none,
            _none,
        )
        self.turn = Turn(self.engine, NodeClock(self.clock), self.driver, self.dispatcher)
        self.turn.log = self.log
        self.context.continue_sliced = self.turn.start_long
        self.connections = 0
        self.main = self.connect()

    def make_room(self, length: int) -> None:
        if self.log is not None:
            self.log.make_room(length)

    def tube(self, name: bytes = b"t") -> None:
        """Create a tube, and make it durable. The first put of a tube syncs its range of ids, so do this here."""
        tube = self.engine.create_tube(name, policy.FIFOTTL, self.clock.ms)
        self.engine.delete(self.engine.put(tube, Draft(b"first"), self.clock.ms), self.clock.ms)
        self.flush()

    def put(self, body: bytes = b"body", tube: bytes = b"t") -> Job:
        """Put a job, and make it durable. Create the tube if necessary."""
        if tube not in self.engine.tubes:
            self.tube(tube)
        job = self.engine.put(self.engine.tubes[tube], Draft(body), self.clock.ms)
        self.flush()
        return job

    def flush(self) -> None:
        """Commit the changes that the test itself made, and make them durable."""
        if self.log is not None:
            self.log.commit(self.clock.ms, self.clock.ms)
            self.log.make_durable(self.log.written)

    def connect(self, protocol: int = m.RESP_3) -> FakeClient:
        """Return a new client."""
        self.connections += 1
        client = FakeClient(self, self.engine.connect(self.id[:8] + b"%08d" % self.connections))
        client.inbox = self.inbox(protocol)
        client.reply.resp3 = protocol == m.RESP_3
        if protocol == m.IPROTO:
            client.reply = IprotoReply()
        self.turn.join(client)
        return client

    def inbox(self, protocol: int) -> Inbox:
        """Return a new inbox for a protocol."""
        if protocol in (m.RESP_2, m.RESP_3):
            return RespInbox(RespParser(BULK_BYTES_MAX, BULK_BYTES_MAX), self.dispatcher)
        return CallInbox(IprotoParser(BULK_BYTES_MAX, BULK_BYTES_MAX), self.calls, WAITS_MAX)

    # The driver

    def end(self) -> None:
        """End the turn, if there is one."""
        if self.turn.open_if_planned():
            self.turn.end()

    def run(self) -> None:
        """End the turn and send its output, or start a sync."""
        self.end()
        self.turn.send()

    def sync(self) -> None:
        """End the present sync."""
        position = self.driver.syncing.pop()
        assert self.log is not None
        self.log.make_durable(position)
        # A sync in a thread covers only the bytes that were written when it started.
        self.log.durable = position
        self.turn.synced()

    def settle(self) -> None:
        """Run turns and end syncs until no work is left."""
        self.run()
        while self.driver.syncing or SOON in self.driver.wakes:
            if self.driver.syncing:
                self.sync()
            self.driver.wakes.clear()
            self.run()

    def ask(self, *words: bytes | str | int, client: FakeClient | None = None) -> Any:
        """Run a command in a turn of its own, and return its reply, or None if it waits."""
        client = client or self.main
        client.feed(*words)
        self.settle()
        replies = client.replies()
        assert len(replies) <= 1
        return replies[0] if replies else None

    def pass_ms(self, ms: int) -> None:
        """Advance the time, and run a turn."""
        self.clock.advance(ms)
        self.turn.plan()
        self.settle()


def resp(*words: bytes | str | int) -> bytes:
    """Return a RESP command."""
    return encode([word if isinstance(word, bytes) else str(word).encode() for word in words])


def _none(caller: Caller, request: Request, now: int = 0) -> None:
    raise NotImplementedError
