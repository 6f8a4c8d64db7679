"""A cluster of nodes with engines and Disque's commands, without a server.

Messages are delivered at once, unless a test cuts the link or drops their kind.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from penstock.cluster import messages as m
from penstock.cluster.members import Members
from penstock.cluster.messages import Message
from penstock.cluster.node import Cluster
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import Peer
from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.job import Job
from penstock.core.outbox import Outbox
from penstock.core.waits import Connection, Waiting
from penstock.dialects.disque import Disque
from penstock.dialects.native.batch_commands import BatchCommands
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.global_commands import GlobalCommands
from penstock.dialects.native.job_commands import JobCommands
from penstock.dialects.native.tube_commands import TubeCommands
from penstock.journal.recovery.opening import open_log
from penstock.node.caller import WRITE, Caller
from penstock.node.context import CommandContext
from penstock.node.dispatch import Command, CommandFamily, Dispatcher
from penstock.node.remote import RemoteCommands
from penstock.node.routing import NeedsAnswer, NeedsDecision
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check

from ..dialects.command_engine import decoded

SEGMENT_BYTES = 1 << 20
START = 1_700_000_000_000
NAMES = ["addjob", "getjob", "ackjob", "fastack", "deljob", "nack", "enqueue", "dequeue", "working", "show", "qlen"]
NAMES += ["qstat", "pause"]
NATIVE = ["put", "mput", "take", "ack", "kick", "bury"]


class Client(Caller):
    """A client of a node."""

    def __init__(self, node: Node, connection: Connection) -> None:
        super().__init__(connection)
        self.node = node
        self.reply.resp3 = True

    def ask(self, *words: object) -> Any:
        """Run a command and return its reply, or None while it waits."""
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        if encoded[0] in (b"global", b"job", b"batch"):
            encoded = [b" ".join(encoded[:2]), *encoded[1:]]
        self.node.dispatcher.run_all(self, [encoded], 0, self.node.guild.now)
        self.node.guild.settle()
        return self.answer_so_far()

    def answer_so_far(self) -> Any:
        """Return the reply that arrived since the last call, or None."""
        answer = self.take_replies()
        self.confirm_sent()
        return decoded(answer) if answer else None


class Questions(RemoteCommands):
    """Lets commands ask the other nodes. They are not forwarded."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def ask(self, caller: Caller, question: NeedsAnswer, tag: object, now: int) -> Waiting:
        if isinstance(question, NeedsDecision):
            raise question.where
        return self._context.ask_others(caller, question, tag, now)


class Node:
    """One node of the cluster."""

    def __init__(self, guild: NodeCluster, number: int, disk: MemoryDisk | None = None) -> None:
        self.guild = guild
        self.number = number
        self.id = 5 * (b"%08x" % ((number + 1) * 0x1111_1111))
        self.memory = b"%016d" % number
        self.disk = disk
        self.open()

    def open(self) -> None:
        """Start, with the data of the log if there is one."""
        guild = self.guild
        if self.disk is None:
            self.outbox = Outbox()
            self.engine = Engine(1, guild.now, self.outbox, self.number + 1)
        else:
            self.opened = open_log(self.disk, lambda: guild.now, "boot", segment_bytes=SEGMENT_BYTES)
            self.engine = self.opened.engine
            self.outbox = self.opened.log.writer
        ids = IdForms(self.id[:8], 2 * self.memory)  # After losing its jobs, it must not use the same ids again.
        self.mail = PeerOutbox()
        self.members = Members(self.id, self.memory, self.number + 1, self.mail)
        self.members.announced = f"10.0.0.{self.number + 1}"
        self.members.port, self.members.bus_port = 7711, 17711
        body_of = self.outbox.body_of
        self.cluster = Cluster(self.engine, ids, self.members, self.mail, self.number + 7, body_of, self._make_room)
        self.context = CommandContext(self.engine, ids, self.id, body_of, self._make_room)
        self.context.cluster = self.cluster
        self.disque = Disque(self.context)
        everywhere = GlobalCommands(self.context)
        commands = [Command(name, -1, "", WRITE, "", "", getattr(self.disque, name)) for name in NAMES]
        words = ["qlen", "qpeek", "empty", "scan"]
        commands += [Command(f"global {word}", -1, "", WRITE, "", "", getattr(everywhere, word)) for word in words]
        native, tubes = DeliveryCommands(self.context), TubeCommands(self.context)
        jobs = JobCommands(native)
        commands += [Command(name, -1, "", WRITE, "", "", getattr(native, name)) for name in NATIVE]
        commands += [
            Command(f"job {word}", -1, "", WRITE, "", "", getattr(jobs, word))
            for word in ["peek", "wait", "delete", "move", "switch", "edit"]
        ]
        batches = BatchCommands(native)
        commands += [
            Command(f"batch {word}", -1, "", WRITE, "", "", getattr(batches, word))
            for word in ["create", "seal", "info"]
        ]
        family = CommandFamily("tube")
        for word in ("create", "drop", "info"):
            family.add(Command(f"tube {word}", -1, "", WRITE, "", "", getattr(tubes, word)))
        self.dispatcher = Dispatcher([*commands, family.as_command()], lambda: 0)
        self.dispatcher.remote = Questions(self.context)
        self.clients = 0
        self.client = self.connect()

    def _make_room(self, length: int) -> None:
        if self.disk is not None:
            self.opened.log.make_room(length)

    def connect(self) -> Client:
        """Return another client."""
        self.clients += 1
        return Client(self, self.engine.connect(b"token %d" % self.clients))

    def ask(self, *words: object) -> Any:
        return self.client.ask(*words)

    def turn(self) -> None:
        """Run a turn: advance the time, answer waits that ended, and commit."""
        self.cluster.advance(self.guild.now)
        while self.outbox.ended_waits:
            waits = list(self.outbox.ended_waits)
            self.outbox.ended_waits.clear()
            for wait in waits:
                self.dispatcher.end_wait(cast(Caller, wait.tag), wait, self.guild.now)
        if self.disk is not None:
            self.opened.log.commit(self.guild.now, self.guild.now)
            self.opened.log.make_durable(self.opened.log.written)

    def jobs(self) -> list[Job]:
        return self.engine.jobs.scan(0, 1 << 40)


class NodeCluster:
    """All nodes, and the clock."""

    def __init__(self, count: int, disks: bool = False) -> None:
        self.now = START
        self.cut: set[tuple[int, int]] = set()  # Pairs of sender and receiver whose messages are dropped.
        self.lost: set[int] = set()  # Kinds of messages that are dropped.
        self.down: set[int] = set()
        self.sent: Counter[int] = Counter()  # Messages about jobs, by kind.
        self.nodes = [Node(self, number, MemoryDisk() if disks else None) for number in range(count)]
        for node in self.nodes:
            self.introduce(node)
        self.settle()
        self.sent.clear()

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def introduce(self, node: Node) -> None:
        """Add all other nodes to the table of a node, and open its links."""
        others = [other for other in self.nodes if other is not node]
        node.members.restore([Peer(o.id, f"10.0.0.{o.number + 1}", 7711, 17711) for o in others], self.now)
        for other in others:
            node.cluster.link_up(other.id, other.id, other.members.incarnation, self.now)

    def restart(self, number: int, forgets: bool = False) -> None:
        """Kill a node and start it again with its disk."""
        node = self.nodes[number]
        others = [other for other in self.nodes if other is not node]
        for other in others:
            other.cluster.link_down(node.id, self.now)
        if forgets:
            node.memory = b"F%015d" % self.now
            node.disk = None if node.disk is None else MemoryDisk()
        node.open()
        self.introduce(node)
        for other in others:
            other.cluster.link_up(node.id, node.id, node.members.incarnation, self.now)
        self.settle()

    def isolate(self, number: int) -> None:
        """Drop all messages from and to a node."""
        for other in range(len(self.nodes)):
            self.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.cut.clear()

    def settle(self) -> None:
        """Deliver all messages, and those that are sent in response."""
        busy = True
        while busy:
            busy = False
            for node in self.nodes:
                if node.number in self.down:
                    continue
                node.turn()
                self._open_dropped_links(node)
                for to, letters in node.mail.take().items():
                    other = next(other for other in self.nodes if other.id == to)
                    for letter in letters:
                        busy = True
                        self._arrive(node, other, letter)

    def _open_dropped_links(self, node: Node) -> None:
        """Reopen the links that the cluster dropped, as a server does.

        Links to nodes that cannot answer stay as they are.
        """
        for stale in node.members.take_stale():
            other = next(other for other in self.nodes if other.id == stale)
            pair = {(node.number, other.number), (other.number, node.number)}
            if other.number not in self.down and not pair & self.cut:
                node.cluster.link_down(stale, self.now)
                node.cluster.link_up(stale, other.id, other.members.incarnation, self.now)

    def _arrive(self, sender: Node, receiver: Node, letter: Message) -> None:
        if letter.kind > m.FAIL:
            self.sent[letter.kind] += 1
        if (sender.number, receiver.number) in self.cut or receiver.number in self.down or letter.kind in self.lost:
            return
        receiver.cluster.receive(sender.id, letter, self.now)

    def run(self, ms: int) -> None:
        """Advance the time."""
        until = self.now + ms
        while self.now < until:
            alive = [node for node in self.nodes if node.number not in self.down]
            due = min(min(node.engine.deadlines.next_due, node.cluster.next_due) for node in alive)
            self.now = max(self.now + 1, min(due, until))
            self.settle()
        for node in alive:
            check(node.engine)

    def queued(self, queue: str) -> list[int]:
        """Return how many jobs of a queue are ready on each node."""
        return [node.ask("qlen", queue) for node in self.nodes]
