"""A simulated node: the real engine, log, turn, commands and cluster protocol on a simulated clock, disk and network.

The node calls the turn of `node/turn.py` as the event loop of a server does. It can crash between any two turns, and
while the log is synced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from mypy_extensions import i64

from penstock.cluster import messages as m
from penstock.cluster.members import Members
from penstock.cluster.messages import CLAIM, MEET, ElectionMessage, JobsMessage, Message, TunnelMessage
from penstock.cluster.node import Cluster
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.peers import Peer
from penstock.cluster.roster import Roster, file_text, first_text, read_file, successor_text
from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed, NoSpace
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import Job
from penstock.core.limits import NEVER, WAITS_PER_CONNECTION_MAX
from penstock.core.outbox import Outbox
from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection
from penstock.dialects.tarantool.calls import CallDispatcher, CallInbox
from penstock.journal.identity import NODE_FILE, Identity, identity, next_opening, take_over
from penstock.journal.log import Log
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.journal.room import RESERVE_BYTES
from penstock.node.caller import WRITE
from penstock.node.client import Client
from penstock.node.clock import Clock
from penstock.node.context import CommandContext
from penstock.node.dispatch import Dispatcher
from penstock.node.forwarded_clients import Admission, ForwardedClient, ForwardedClients
from penstock.node.forwarding import Forwarding
from penstock.node.inbox import Inbox, RespInbox
from penstock.node.links import Messages, PeerLinks
from penstock.node.loading import refuse_calls, refuse_commands
from penstock.node.tunnels import TunnelLinks
from penstock.node.turn import SOON, Driver, Turn
from penstock.testing.sim.clients import Session
from penstock.testing.sim.clocks import MachineClock
from penstock.testing.sim.commands import calls, commands
from penstock.testing.sim.disk import SimDisk
from penstock.testing.sim.links import End, Links
from penstock.testing.sim.network import Network, as_they_arrive
from penstock.testing.sim.options import CROWDED, EVERYSEC, LOADING, NO_JOURNAL, TUBES, Options
from penstock.testing.sim.pipes import Pipe
from penstock.testing.sim.schedule import MS, SECOND, Schedule, Streams, spread
from penstock.wire.bus import INCARNATION_BYTES
from penstock.wire.iproto import IprotoParser, IprotoReply
from penstock.wire.resp import RespParser
from penstock.wire.resp_client import encode

# A little more than the log needs at any time, because opening reads all of it.
_SEGMENT_BYTES = RESERVE_BYTES + 256 * 1024

# No sync takes longer than this.
SYNC_MAX = 5 * SECOND

_NODES_FILE = "nodes.conf"

# The limit of an argument and of a client's buffered input.
_BULK_BYTES_MAX = 1024 * 1024

# A link with more bytes of clients in transit is crowded, with the feature `crowded`. Two or three commands are more.
_CROWDED_BYTES = 100

# A node that loads its journal refuses this many commands at a time, with this error.
_COMMANDS_AT_ONCE = 64
_LOADING_LINE = b"LOADING Penstock is loading its journal; try again soon"

CLIENT_PORT = 7711
BUS_PORT = 17711


class Environment(Protocol):
    """The interface through which a node uses the rest of the simulation."""

    schedule: Schedule
    streams: Streams
    network: Network
    nodes: list[SimNode]
    options: Options

    def node_at(self, host: str) -> SimNode | None:
        """Return the node at an address."""

    def id_of(self, number: int) -> bytes:
        """Return the node id of the node that has this number in the simulation."""

    def others(self, node: SimNode) -> list[SimNode]:
        """Return all nodes except `node`."""

    def added(self, id: bytes, words: list[bytes]) -> None:
        """Check the copies of a job when a node replies with its id. `words` is the ADDJOB command."""

    def handed_out(self, id: bytes) -> None:
        """Record that a node sends an at-most-once job to a client."""

    def wants_back(self, node: SimNode, id: bytes) -> None:
        """Record that `node` received MEET from the node `id`. The message can be older than that node's removal."""

    def gone_astray(self, id: bytes) -> None:
        """Record that a node tries to hand over a job to a process that no longer exists."""

    def forwarded_delivery(self, token: bytes, body: bytes, delivery: int) -> None:
        """Record that a home delivers a job to the session `token`, whose client is connected to another node."""

    def tubes_changed(self, node: SimNode) -> None:
        """Record that a node has started, or has created or dropped tubes."""

    def stopped_by_disk(self, node: SimNode) -> None:
        """Record that a node stopped because its disk failed."""

    def sometimes(self, what: str) -> None:
        """Increase the counter of the event `what`, which must occur at least once in a run of many seeds."""


class SimClock(Clock):
    """The clock of a node's process. Engine time starts at `started_ms` and advances with the machine's clock."""

    def __init__(self, machine: MachineClock, started_ms: int) -> None:
        self._machine = machine
        self._started_ms = started_ms
        self._started_us = machine.monotonic_us()

    def now(self) -> i64:
        return self._started_ms + (self._machine.monotonic_us() - self._started_us) // MS

    def wall(self) -> i64:
        return self._machine.wall_ms()


class SimConnection(Client):
    """A connected client, as its node sees it."""

    def __init__(self, node: SimNode, session: Session, number: int, connection: Connection) -> None:
        super().__init__(number, connection, node.turn.now)
        self._node = node
        self.session = session
        self.asked: list[bytes] = []
        self.bulk_max = _BULK_BYTES_MAX
        self.produced_ms = -1  # The node's clock when the reply was produced; -1 if there is none.

    def send(self, replies: bytes) -> None:
        if not self.is_closed:
            self._node.on_send(self, replies)
        super().send(replies)

    def write(self, data: bytes) -> None:
        produced_ms, self.produced_ms = self.produced_ms, -1
        self.session.client.hears(self.session, data, produced_ms)

    def close(self) -> None:
        self.closing = self.is_closed = True
        self.session.client.end_of_replies(self.session)
        self._node.closed(self)

    def abort(self) -> None:
        self.closing = self.is_closed = True
        self.session.client.reset(self.session)
        self._node.closed(self)


class SimLinks(PeerLinks):
    """The links of a simulated node, as its turn uses them."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def update(self) -> None:
        self._node.keep_links()

    def send(self, messages: Messages) -> None:
        self._node.send(messages)

    def is_two_way(self, node: bytes) -> bool:
        return self._node.is_two_way(node)

    def is_crowded(self, node: bytes) -> bool:
        return self._node.is_crowded(node)


class SimAdmission(Admission):
    """Accepts forwarded clients up to the limit of the node."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def make_room(self) -> bool:
        return len(self._node.forwarding.guests) < self._node.guests_max

    def inbox(self, protocol: i64) -> Inbox:
        return self._node.inbox(protocol == m.IPROTO)

    def bulk_max(self) -> i64:
        return _BULK_BYTES_MAX

    def token(self, length: i64) -> bytes:
        return self._node.random_bytes(length)


class SimNode(Driver):
    """One simulated node, with its machine and disk."""

    engine: Engine
    cluster: Cluster
    context: CommandContext
    dispatcher: Dispatcher
    calls: CallDispatcher
    turn: Turn
    forwarding: Forwarding
    links: Links

    def __init__(self, world: Environment, number: int) -> None:
        self.world = world
        self.number = number
        self.host = f"10.0.0.{number + 1}"
        self.id = b""
        self.life = 0  # Raised with every start and crash. Input for an earlier life is discarded.
        self.up = False
        self.paused = False
        self.leaving = False
        self.disk = SimDisk()
        self.clock = MachineClock(world.schedule)
        self.sync_us = world.options.sync_us
        self.memory_max = NEVER
        self.guests_max = NEVER  # The limit of forwarded clients.
        self.has_room = True  # Whether it was below the memory limit when the limit was set.
        self.on_sync: Callable[[], None] | None = None  # Called at the begin of its next sync.
        self.left_at = NEVER  # When it was ordered to leave, in simulated time.
        self.ordered_to_meet: set[bytes] = set()  # The ids of the nodes that CLUSTER MEET named to it.
        self.installs = 0  # How often it was started with an empty disk.
        self.boots = 0
        self.log: Log | None = None
        self._random = world.streams.stream(f"node {number}")
        self._clients: dict[Session, SimConnection] = {}
        self._came: list[Callable[[int], None]] = []
        self._turn_planned = False
        self._reads_input = False  # The input of a turn is being passed in. The end of the turn follows.
        self._timer_at = NEVER
        self._sync_over = False  # A sync ended while the node was suspended.
        self._sync_position = 0  # The end of the log when the sync began.
        self._table_changes = -1
        # Only with the workload `tubes`: see pipes.py.
        self._uses_pipes = world.options.workload == TUBES
        self._pipe_random = world.streams.stream(f"pipes {number}")
        self._pipes: dict[bytes, Pipe] = {}  # The links to other nodes.
        self._inbound: dict[bytes, Pipe] = {}  # The links from other nodes.
        self._tubes_count = 0
        # Only with the feature `loading`: the connected clients of a node that loads its journal.
        self.is_loading = False
        self._waiting: dict[Session, RespParser | IprotoParser] = {}
        self._loading_random = world.streams.stream(f"loading {number}")

    # Start and end

    def start(self) -> bool:
        """Start the process with the data on disk. Return False if the disk is full or fails.

        With the feature `loading`, a node that is started again first loads its journal for a while. If the node
        is loading already, this call ends the loading. A node with an empty disk has no journal to load.
        """
        assert not self.up
        if LOADING in self.world.options.features and self._has_journal() and not self.is_loading:
            self.is_loading = True
            self.life += 1
            life = self.life
            self.world.schedule.after(self._loading_random.randint(0, 2 * SECOND), lambda: self._loaded(life))
            return True
        waiting, self._waiting, self.is_loading = self._waiting, {}, False
        self.disk.lock()
        try:
            self._open()
        except (NoSpace, JournalFailed):
            self.disk.unlock()
            for session in waiting:
                session.client.reset(session)
            return False
        self.up = True
        for session, parser in waiting.items():
            self._take_over(session, parser)
        self._tubes_count = len(self.engine.tubes)
        self.world.tubes_changed(self)
        self.turn.plan()
        return True

    # Loading

    def _has_journal(self) -> bool:
        """Return whether the node ran before and its disk has the journal of an earlier process."""
        return self.joined and self.log is not None and NODE_FILE in self.disk.names()

    def _loaded(self, life: int) -> None:
        if life == self.life and self.is_loading:
            self.start()

    def _refuse(self, session: Session, data: bytes) -> None:
        """Refuse the commands of a client that is connected while the journal is loaded."""
        parser = self._waiting.get(session)
        if parser is None:
            # It was connected to the process before.
            session.client.reset(session)
            return
        parser.feed(data)
        if isinstance(parser, IprotoParser):
            replies = refuse_calls(parser, _COMMANDS_AT_ONCE, _LOADING_LINE)
        else:
            replies = refuse_commands(parser, _COMMANDS_AT_ONCE, _LOADING_LINE, None)
        if replies:
            self.world.sometimes("a command was refused because its node was loading")
            session.client.hears(session, replies, -1)

    def _send_in_parts(self, session: Session, args: list[bytes]) -> None:
        """Let a command of a client arrive in two parts. The journal may be loaded in between."""
        data = args[0] if session.is_iproto else encode(args)
        half = self._loading_random.randint(0, len(data))
        self._refuse(session, data[:half])
        life = self.life
        later = self._loading_random.randint(0, 300 * MS)
        self.world.schedule.after(later, lambda: self._send_rest(session, data[half:], life))

    def _send_rest(self, session: Session, data: bytes, life: int) -> None:
        if life == self.life and self.is_loading:
            self._refuse(session, data)
        elif session.is_open and self.up and life + 1 == self.life:
            if data:
                self.world.sometimes("a command was completed after its node had loaded")
            self._came_in(lambda now: self._receive_bytes(session, data))

    def _take_over(self, session: Session, parser: RespParser | IprotoParser) -> None:
        """Turn a client that was connected while the journal was loaded into an ordinary client."""
        if isinstance(parser, IprotoParser):
            inbox: Inbox = CallInbox(parser, self.calls, WAITS_PER_CONNECTION_MAX)
        else:
            inbox = RespInbox(parser, self.dispatcher)
        self._came_in(lambda now: self._let_in(session, inbox))
        self._came_in(lambda now: self._receive_bytes(session, b""))

    def _open(self) -> None:
        world = self.world
        self.life += 1
        self._came = []
        self._clients = {}
        self._pipes, self._inbound = {}, {}
        self._turn_planned = self._reads_input = self._sync_over = False
        self._timer_at = NEVER
        wall = self.clock.wall_ms()
        if NODE_FILE not in self.disk.names():
            self.installs += 1
            self._new_identity().write(self.disk)
        entropy = self._random.getrandbits(32)
        if world.options.journal == NO_JOURNAL:
            opening = next_opening(self.disk)
            self.log = None
            self.engine = Engine(opening.epoch, wall, Outbox(), entropy)
            node, key = opening.node, opening.key
        else:
            fsync = world.options.journal
            boot = f"boot {self.number} {self.boots}"
            opened = open_log(
                self.disk,
                lambda: wall,
                boot,
                fsync=fsync,
                entropy=entropy,
                segment_bytes=_SEGMENT_BYTES,
                grace_ms=world.options.iproto_grace_ms,
            )
            self.log, self.engine = opened.log, opened.engine
            self.log.update_room()
            node, key = opened.node, opened.key
        self.id = node.encode()
        self.engine.memory_max = self.memory_max
        self.engine.session_grace_ms = world.options.iproto_grace_ms
        self.context = CommandContext(self.engine, IdForms(self.id[:8], key), self.id, self._body_of, self._make_room)
        self.leaving = self.context.leaving = identity(self.disk).leaving
        memory = self._random.randbytes(INCARNATION_BYTES)
        mail = PeerOutbox()
        members = Members(self.id, memory, self._random.getrandbits(32), mail, world.options.node_timeout_ms)
        entropy = self._random.getrandbits(32)
        self.cluster = Cluster(self.engine, self.context.ids, members, mail, entropy, self._body_of, self._make_room)
        self.context.cluster = self.cluster
        self._join()
        self.dispatcher = Dispatcher(commands(self.context), lambda: 0)
        self.calls = calls(self.context, self.dispatcher)
        self._start_turn()
        self.links = Links(
            world.schedule,
            world.network,
            self._random,
            self,
            world.node_at,
            lambda named, end: self._came_in(lambda now: self._link_up(named, end, now)),
        )
        if world.options.journal == EVERYSEC:
            self._sync_later(self.life)

    def _start_turn(self) -> None:
        turn = self.turn = Turn(self.engine, SimClock(self.clock, self.engine.now), self, self.dispatcher)
        turn.log, turn.cluster, turn.links = self.log, self.cluster, SimLinks(self)
        guests = ForwardedClients(turn, self.cluster, TunnelLinks(turn, self.cluster), SimAdmission(self))
        self.forwarding = Forwarding(turn, self.context, self.cluster, guests)
        turn.remote = self.dispatcher.remote = self.context.remote = self.forwarding
        self.context.continue_sliced = turn.start_long

    def crash(self, power: bool) -> None:
        """End the process immediately. With `power`, also cut the power of the machine, which loses unsynced data."""
        assert self.up
        self.up = self.paused = False
        life = self.life
        self.life += 1
        if power:
            self.boots += 1
            if self.disk.power_cut(self._random):
                self.world.sometimes("a power cut lost a write")
        else:
            self.disk.process_ended()
        for session in self._clients:
            session.client.reset(session)
        for node in list(self._pipes):
            self._close_pipe(node)
        for other in self.world.others(self):
            other.peer_ended(self, life)

    def peer_ended(self, other: SimNode, life: int) -> None:
        """Close the links to the ended process `life` of `other`. If the network is cut, do nothing."""
        if self.up and not self.world.network.is_cut(other.number, self.number):
            self._came_in(lambda now: self._link_down(other, life, now))

    def pause(self) -> None:
        """Suspend the process. Its input waits until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Resume the process. Its input has accumulated, and its timers are late."""
        self.paused = False
        if self.up:
            self._plan_turn()
            if self._sync_over:
                self._synced(self.life)

    def wipe(self) -> None:
        """Remove all data of the disk. The next start creates a node with a new id at the same address."""
        assert not self.up
        self.disk.wipe()
        self.left_at = NEVER
        self.ordered_to_meet.clear()

    @property
    def joined(self) -> bool:
        """Return whether the node was ever started."""
        return self.life > 0

    @property
    def incarnation(self) -> bytes:
        """Return the incarnation of the current process."""
        return self.cluster.members.incarnation

    # The clock

    def now(self) -> int:
        """Return the engine time in ms."""
        return int(self.turn.clock.now())

    # Input

    def connect(self, session: Session) -> None:
        if self.is_loading:
            self._waiting[session] = self._parser(session.is_iproto)
        elif self._is_there(session):
            self._came_in(lambda now: self._let_in(session))

    def request(self, session: Session, args: list[bytes]) -> None:
        if self.is_loading:
            self._send_in_parts(session, args)
        elif self._is_there(session):
            self._came_in(lambda now: self._receive_command(session, args))

    def end_input(self, session: Session) -> None:
        self._came_in(lambda now: self._end_input(session))

    def hang_up(self, session: Session) -> None:
        self._waiting.pop(session, None)
        self._came_in(lambda now: self._leave(session))

    def receive(self, sender: int, life: int, messages: list[Message]) -> None:
        """Receive messages of another node. If they are for an earlier process (`life`), the sender gets a reset."""
        if life == self.life:
            self._came_in(lambda now: self._receive(sender, messages, now))
        elif self.up:
            self.world.nodes[sender].peer_ended(self, life)

    def _is_there(self, session: Session) -> bool:
        if not self.up:
            session.client.reset(session)
        return self.up

    def _came_in(self, act: Callable[[int], None]) -> None:
        if self.up:
            self._came.append(act)
            self._plan_turn()

    # Turns

    def begin(self) -> None:
        """Do nothing: a simulated process has one thread, so the engine needs no lock."""

    def wake_at(self, due: i64) -> None:
        """Run a turn at the engine time `due`, or as soon as possible if `due` is SOON."""
        if due == SOON:
            if not self._reads_input:
                self._plan_turn()
            return
        schedule = self.world.schedule
        at = schedule.now + max(0, self.clock.truly((due - self.now()) * MS))
        if at < self._timer_at:
            self._timer_at = at
            life = self.life
            schedule.at(at, lambda: self._on_timer(life, at))

    def _plan_turn(self) -> None:
        assert self.up
        if not self._turn_planned and not self.paused:
            self._turn_planned = True
            life = self.life
            self.world.schedule.after(self.world.options.turn_us, lambda: self._run_turn(life))

    def _on_timer(self, life: int, at: int) -> None:
        if life == self.life and at == self._timer_at:
            self._timer_at = NEVER
            self._run_turn(life)

    def _run_turn(self, life: int) -> None:
        if life != self.life:
            return
        self._turn_planned = False
        if self.paused:
            return
        turn = self.turn
        try:
            self._read_input(turn)
            turn.open_if_planned()
            turn.end()
            self._note_replies()
        except JournalFailed:
            self._stop_by_disk()
            return
        turn.send()
        if self.cluster.members.superseded:
            self._step_down()
            return
        if len(self.engine.tubes) != self._tubes_count:
            self._tubes_count = len(self.engine.tubes)
            self.world.tubes_changed(self)

    def _read_input(self, turn: Turn) -> None:
        self._reads_input = True
        turn.begin()
        came, self._came = self._came, []
        for act in came:
            act(int(turn.now))
        self._reads_input = False
        if self.links.is_stale:
            self.keep_links()

    def _note_replies(self) -> None:
        """Record which replies the turn has produced. They are not sent if the node crashes first."""
        for client in self._clients.values():
            if client.reply.length and client.produced_ms < 0:
                client.produced_ms = int(self.turn.now)
            for job in client.unsent:
                if job.once:
                    self.world.handed_out(self.context.id_of(job))
        if self._uses_pipes:
            self._note_forwarded_deliveries()

    def _note_forwarded_deliveries(self) -> None:
        for client in self.turn.clients.values():
            if client.unsent and isinstance(client, ForwardedClient):
                token = client.connection.session.token
                for job, delivery in zip(client.unsent, client.unsent_deliveries, strict=True):
                    self.world.forwarded_delivery(token, self._body_of(job), delivery)

    def _stop_by_disk(self) -> None:
        self.crash(power=False)
        self.world.stopped_by_disk(self)

    # Clients

    def _let_in(self, session: Session, inbox: Inbox | None = None) -> None:
        turn = self.turn
        connection = self.engine.connect(self._random.randbytes(16))
        client = self._clients[session] = SimConnection(self, session, turn.next_number(), connection)
        client.inbox = inbox or self.inbox(session.is_iproto)
        if session.is_iproto:
            client.reply = IprotoReply()
        if session.client.tube_patterns is not None:
            client.log_in("user", WRITE, TubePatterns(session.client.tube_patterns))
        turn.join(client)

    def inbox(self, is_iproto: bool) -> Inbox:
        """Return the inbox of a new client."""
        parser = self._parser(is_iproto)
        if isinstance(parser, IprotoParser):
            return CallInbox(parser, self.calls, WAITS_PER_CONNECTION_MAX)
        return RespInbox(parser, self.dispatcher)

    @staticmethod
    def _parser(is_iproto: bool) -> RespParser | IprotoParser:
        if is_iproto:
            return IprotoParser(_BULK_BYTES_MAX, _BULK_BYTES_MAX)
        return RespParser(_BULK_BYTES_MAX, _BULK_BYTES_MAX)

    def random_bytes(self, length: int) -> bytes:
        """Return random bytes that follow from the seed."""
        return self._random.randbytes(length)

    def _receive_command(self, session: Session, args: list[bytes]) -> None:
        client = self._clients.get(session)
        if client is not None:
            client.asked = args
            self.turn.received(client, args[0] if session.is_iproto else encode(args))

    def _end_input(self, session: Session) -> None:
        client = self._clients.get(session)
        if client is not None:
            self.turn.end_input(client)

    def _receive_bytes(self, session: Session, data: bytes) -> None:
        client = self._clients.get(session)
        if client is not None:
            self.turn.received(client, data)

    def _leave(self, session: Session) -> None:
        client = self._clients.pop(session, None)
        if client is not None:
            client.lost = client.is_closed = True
            self.turn.leave(client)

    def on_send(self, client: SimConnection, replies: bytes) -> None:
        """Check the replies that are handed to a client's connection."""
        if replies.startswith(b"+D-"):
            self.world.added(replies[1:41], client.asked)

    def closed(self, client: SimConnection) -> None:
        """Remove a client whose connection this node has closed."""
        self._came_in(lambda now: self._leave(client.session))

    # Syncs

    def start_sync(self, log: Log) -> None:
        """Plan the end of a sync of the log for a random time from now."""
        self._sync_position = log.written
        life = self.life
        self.world.schedule.after(spread(self._random, self.sync_us, SYNC_MAX), lambda: self._synced(life))
        if self.on_sync is not None:
            self.on_sync()

    def _synced(self, life: int) -> None:
        """End the sync: the turn sends the output that waited for it."""
        if life != self.life:
            return
        if self.paused:
            self._sync_over = True
            return
        self._sync_over = False
        log = self.log
        assert log is not None
        try:
            log.make_durable(self._sync_position)
        except JournalFailed:
            self._stop_by_disk()
            return
        self.turn.synced()

    def _sync_later(self, life: int) -> None:
        """Sync the log every second, under the fsync policy `everysec`."""
        if life == self.life and self.log is not None:
            if not self.paused:
                try:
                    self.log.make_durable(self.log.written)
                except JournalFailed:
                    self._stop_by_disk()
                    return
            self.world.schedule.after(SECOND, lambda: self._sync_later(life))

    # Other nodes

    def meet(self, other: SimNode) -> None:
        """Run CLUSTER MEET with the address of `other`, and save the table of nodes."""
        self.cluster.members.meet(other.host, CLIENT_PORT, BUS_PORT, self.now())
        self.ordered_to_meet.add(other.id)
        self._save_table()
        self.turn.plan()

    def set_leaving(self, leaving: bool) -> None:
        """Run CLUSTER LEAVING: begin or stop handing over all jobs to other nodes.

        A node that is down or loads its journal only stores the setting, which it reads when it is opened.
        """
        self.leaving = leaving
        self.left_at = self.world.schedule.now if leaving else NEVER
        replace(identity(self.disk), leaving=leaving).write(self.disk)
        if self.up:
            self.context.leaving = leaving
            self.cluster.set_leaving(leaving, self.now())
            self.turn.plan()

    def _join(self) -> None:
        members = self.cluster.members
        members.announced = members.host = self.host
        members.port, members.bus_port = CLIENT_PORT, BUS_PORT
        members.leaving = self.leaving
        members.epoch = identity(self.disk).node_epoch
        if _NODES_FILE in self.disk.names():
            roster = read_file(self.disk.read(_NODES_FILE).decode())
            if self._uses_pipes:
                now = self.engine.now
            elif self.log is None:
                # Engine time begins at the wall clock, which may have been set back.
                now = min(self.engine.now, self.now())
            else:
                now = self.now()
            members.restore(roster.peers, now, roster.past)
        self._table_changes = members.changes

    def _receive(self, sender: int, messages: list[Message], now: int) -> None:
        # The sender's id is that of its link. A reinstalled node has its own links.
        node = self.world.id_of(sender)
        for message in messages:
            if message.kind == MEET:
                self.world.wants_back(self, node)
        self.turn.receive(node, self.world.nodes[sender].host, messages)

    def send(self, messages: Messages) -> None:
        """Send messages to other nodes. Messages to a node without a link are dropped."""
        self._look_for_strays(messages)
        for node, some in messages.items():
            if self._uses_pipes:
                self._send_on_pipe(node, some)
                continue
            other = self.links.to(node)
            if other is not None:
                self.world.network.send(self.number, other.number, self.links.life_of(node), some)

    def _look_for_strays(self, messages: Messages) -> None:
        """Record handovers to a process that has ended, if this node has not detected its end yet."""
        for node, some in messages.items():
            other = self.links.to(node)
            if other is not None and other.up and self.links.life_of(node) == other.life:
                continue
            for message in some:
                if isinstance(message, JobsMessage) and message.number:
                    for image in message.jobs:
                        self.world.gone_astray(image.id)

    def is_two_way(self, node: bytes) -> bool:
        """Return whether this node and another one have links to each other's present processes."""
        if self._uses_pipes:
            return node in self._inbound and self.cluster.members.is_linked(node)
        other = self.links.to(node)
        if not isinstance(other, SimNode) or not other.up or self.links.life_of(node) != other.life:
            return False
        return other.links.to(self.id) is self and other.links.life_of(self.id) == self.life

    def keep_links(self) -> None:
        """Open and close links to match the table of nodes, and save the table."""
        members = self.cluster.members
        for node in self.links.keep(members):
            self._lost_link(node)
        for node in list(self._pipes):
            if self.links.to(node) is None:
                self._lost_link(node)
        self._save_table()

    def _lost_link(self, node: bytes) -> None:
        self._close_pipe(node)
        self.cluster.link_down(node, self.turn.now)
        self.forwarding.link_lost(node)

    # Ordered links, of the workload `tubes`

    def _open_pipe(self, other: End) -> None:
        assert isinstance(other, SimNode)
        world, id, life = self.world, self.id, other.life
        pipe = Pipe(world.schedule, world.network, self._pipe_random, self.number, other.number)
        pipe.epoch = int(self.cluster.members.epoch)
        self._pipes[other.id] = pipe
        pipe.send(lambda: other.pipe_opened(id, pipe, life))

    def _send_on_pipe(self, node: bytes, messages: list[Message]) -> None:
        pipe, network = self._pipes.get(node), self.world.network
        if pipe is None:
            return
        if network.loss and self._pipe_random.random() < network.loss:
            pipe.break_off()
            self.world.schedule.after(0, lambda: self._came_in(lambda now: self._pipe_broke(node, pipe)))
            self._end_pipe(node, pipe)
            return
        other, id, life = self.world.nodes[pipe.receiver], self.id, self.links.life_of(node)
        some = as_they_arrive(messages) if self.world.options.encoded else messages
        if CROWDED in self.world.options.features:
            self._count_in_transit(node, pipe, sum(len(each.data) for each in some if isinstance(each, TunnelMessage)))
        pipe.send(lambda: other.pipe_received(id, pipe, life, some))

    def _count_in_transit(self, node: bytes, pipe: Pipe, length: int) -> None:
        """Count bytes of clients as in transit until they arrive. The link may then have room again."""
        pipe.bytes += length

        def arrived() -> None:
            was_crowded = pipe.bytes > _CROWDED_BYTES
            pipe.bytes -= length
            if was_crowded and pipe.bytes <= _CROWDED_BYTES and self._pipes.get(node) is pipe:
                self._came_in(lambda now: self.forwarding.send_waiting(node))

        if length:
            pipe.send(arrived)

    def is_crowded(self, node: bytes) -> bool:
        """Return whether the link to a node is too full, so that clients' bytes have to wait."""
        pipe = self._pipes.get(node)
        if pipe is None or pipe.bytes <= _CROWDED_BYTES:
            return False
        self.world.sometimes("a link was crowded")
        return True

    def _close_pipe(self, node: bytes) -> None:
        pipe = self._pipes.pop(node, None)
        if pipe is not None and not pipe.is_broken:
            other, id = self.world.nodes[pipe.receiver], self.id
            pipe.send(lambda: other.pipe_ended(id, pipe))

    def _end_pipe(self, node: bytes, pipe: Pipe) -> None:
        """Make the receiver of a broken pipe detect the break, after a network delay."""
        other, id = self.world.nodes[pipe.receiver], self.id
        self.world.schedule.after(self.world.network.delay, lambda: other.pipe_ended(id, pipe))

    def _pipe_broke(self, node: bytes, pipe: Pipe) -> None:
        if self._pipes.get(node) is pipe:
            self.world.sometimes("a link broke")
            self.links.drop(node)
            self._lost_link(node)

    def pipe_opened(self, sender: bytes, pipe: Pipe, life: int) -> None:
        """Accept a link from another node."""
        if life == self.life:
            self._came_in(lambda now: self._accept_pipe(sender, pipe))

    def pipe_received(self, sender: bytes, pipe: Pipe, life: int, messages: list[Message]) -> None:
        """Receive messages on a link. They are for the process `life`, which may be an earlier one."""
        if life == self.life:
            self._came_in(lambda now: self._receive_on_pipe(sender, pipe, messages))
        elif self.up:
            self.world.nodes[pipe.sender].peer_ended(self, life)

    def pipe_ended(self, sender: bytes, pipe: Pipe) -> None:
        """Close this end of a link that another node had opened."""
        self._came_in(lambda now: self._lose_pipe(sender, pipe))

    def _accept_pipe(self, sender: bytes, pipe: Pipe) -> None:
        before = self._inbound.get(sender)
        if before is not None and pipe.epoch < before.epoch:
            # The process at the other end was replaced, and its successor has a link already.
            return
        self._inbound[sender] = pipe
        if before is not None:
            self.forwarding.link_lost(sender)

    def _receive_on_pipe(self, sender: bytes, pipe: Pipe, messages: list[Message]) -> None:
        if pipe.epoch < self.cluster.members.epoch_of(sender):
            # A standby has replaced the process at the other end.
            self._lose_pipe(sender, pipe)
            return
        if self._inbound.get(sender) is pipe:
            for message in messages:
                if message.kind == MEET:
                    self.world.wants_back(self, sender)
                elif isinstance(message, ElectionMessage) and message.kind == CLAIM:
                    if message.tube in self.cluster.elections.by_tube:
                        self.world.sometimes("two nodes wanted to create a tube at the same time")
            self.turn.receive(sender, self.world.nodes[pipe.sender].host, messages)

    def _lose_pipe(self, sender: bytes, pipe: Pipe) -> None:
        if self._inbound.get(sender) is pipe:
            del self._inbound[sender]
            self.forwarding.link_lost(sender)

    def _save_table(self) -> None:
        members = self.cluster.members
        if members.changes != self._table_changes:
            self._table_changes = members.changes
            self.disk.replace(_NODES_FILE, file_text(members).encode())

    # Standbys

    def raise_epoch(self, node: bytes, epoch: int) -> None:
        """Run CLUSTER EPOCH: a standby replaces a node."""
        self.cluster.members.raise_epoch(node, epoch, self.now())
        self._save_table()
        self.turn.plan()

    def become(self, disk: SimDisk, epoch: int, peers: list[SimNode]) -> None:
        """Prepare this unused machine to replace a lost node. `disk` has a copy of the data of that node."""
        assert not self.up
        who = identity(disk)
        take_over(disk, who, epoch)
        known = [Peer(peer.id, peer.host, CLIENT_PORT, BUS_PORT) for peer in peers]
        disk.replace(_NODES_FILE, first_text(who.node.encode(), known).encode())
        self.disk = disk

    def is_successor_of(self, node: SimNode) -> bool:
        """Return whether this process has replaced the process of another machine."""
        return self.up and node.up and self.id == node.id and self.cluster.members.epoch > node.cluster.members.epoch

    def _shake_hands(self, other: SimNode) -> bool:
        """Exchange epochs with another node, as the handshake of a link does. Return whether both accept the link."""
        mine, theirs = self.cluster.members, other.cluster.members
        accepts = mine.accept_epoch(other.id, theirs.epoch, theirs.epoch_of(self.id))
        id, epoch, known = self.id, int(mine.epoch), int(mine.epoch_of(other.id))
        is_accepted = id != other.id and epoch >= theirs.epoch_of(id)
        other.meet_epoch(id, epoch, known)
        return accepts and is_accepted

    def meet_epoch(self, node: bytes, epoch: int, known: int) -> None:
        """Receive the epoch of a node that opens a link. `known` is the epoch that it has stored for this node."""
        self._came_in(lambda now: self._meet_epoch(node, epoch, known))

    def _meet_epoch(self, node: bytes, epoch: int, known: int) -> None:
        self.cluster.members.accept_epoch(node, epoch, known)

    def _step_down(self) -> None:
        """Become a new node without jobs, because a standby has replaced this node."""
        epoch = self.cluster.members.superseded
        known = self._known()
        self.crash(power=False)
        self.wipe()
        self.installs += 1
        fresh = self._new_identity()
        fresh.write(self.disk)
        self.disk.replace(_NODES_FILE, successor_text(known, epoch, fresh.node.encode()).encode())
        self.world.sometimes("a node that was replaced stepped down")
        self.world.schedule.after(50 * MS, lambda: None if self.up else self._start_again())

    def _known(self) -> Roster:
        """Return the stored table of nodes. A node that was replaced before it met another one has stored none."""
        known = read_file(self.disk.read(_NODES_FILE).decode()) if _NODES_FILE in self.disk.names() else Roster(b"")
        known.myself = self.id
        return known

    def _start_again(self) -> None:
        self.start()

    def _new_identity(self) -> Identity:
        return Identity(self._secret("node")[:40], bytes.fromhex(self._secret("key")[:64]))

    def _link_up(self, named: bytes, other: End, now: int) -> None:
        if self._uses_pipes and isinstance(other, SimNode) and other.up and not self._shake_hands(other):
            self.links.discard(named)
            return
        if other.up and self.cluster.link_up(named, other.id, other.incarnation, now):
            self.links.record_up(named, other.id, other)
            if self._uses_pipes:
                self._open_pipe(other)
        else:
            self.links.discard(named)

    def _link_down(self, other: SimNode, life: int, now: int) -> None:
        for node in self.links.leading_to(other, life):
            self.links.drop(node)
            self._lost_link(node)

    # Queries of checkers and nemeses

    def holds(self, id: bytes) -> bool:
        """Return whether the node has a copy of a job."""
        number = self.context.number_of(id)
        return number != NOT_AN_ID and self.engine.jobs.find(number) is not None

    def ids_of(self, state: int) -> list[bytes]:
        """Return the ids of the node's jobs in a state."""
        jobs = self.engine.jobs.scan(0, self.engine.jobs.count + 1)
        return [self.context.id_of(job) for job in jobs if job.state == state]

    def keeps_ack(self, id: bytes) -> bool:
        """Return whether the node has the ack of a job, or its tombstone."""
        return id in self.cluster.acks.by_id or self.cluster.state.recent.contains(id)

    def leftovers(self) -> list[str]:
        """Return a text for each ack and handover that the node has not finished yet."""
        found = [f"the ack of {id.decode()}" for id in self.cluster.acks.by_id]
        return [*found, *(f"handover {number}" for number in self.cluster.handovers.under_way)]

    def set_memory_max(self, limit: int | None) -> None:
        """Set the memory limit, or remove it with None."""
        self.memory_max = NEVER if limit is None else limit
        self.has_room = not self.up or self.engine.memory_used() <= self.memory_max
        if self.up:
            self.engine.memory_max = self.memory_max

    # Maintenance

    def snapshot(self) -> bool:
        """Replace the log by a snapshot. Return whether this was possible."""
        log = self.log
        if log is None or self.turn.is_syncing or self.disk.full or self.disk.sync_error is not None:
            return False
        take_snapshot(self.disk, log, self.engine, self.now(), self.clock.wall_ms())
        return True

    def _body_of(self, job: Job) -> bytes:
        return self.engine.outbox.body_of(job)

    def _make_room(self, length: int) -> None:
        if self.log is not None:
            self.log.make_room(length)

    def _secret(self, what: str) -> str:
        text = f"{self.world.streams.seed} {self.number} {self.installs} {what}"
        return hashlib.blake2b(text.encode()).hexdigest()
