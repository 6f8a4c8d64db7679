"""The clients of the workload `tubes`: they create, fill and empty tubes of several types through any node.

A client uses RESP or IPROTO, and has a session with a grace time. When it loses its connection, it may connect again,
to the same node or to another one, and resume its session with the jobs that it has taken. Otherwise it begins a new
session, and its jobs must return to their tubes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.core.limits import NEVER
from penstock.testing.sim.clients import Client, Cluster, OnAnswer, ServingNode
from penstock.testing.sim.history import DONE, REFUSED, UNKNOWN, Violation
from penstock.testing.sim.options import BIG_BODIES, CLAIMS, HALF_CLOSE, LATE_TUBES, ONCE
from penstock.testing.sim.schedule import MS, SECOND, spread
from penstock.testing.sim.tube_history import Finish, Lease, Put, Take, TubeHistory
from penstock.testing.sim.tubes import KINDS, ONCE_KIND, PRIORITY, TubeKind
from penstock.wire import iproto
from penstock.wire.iproto import ReplyPackets, Request
from penstock.wire.msgpack import pack, unpack
from penstock.wire.resp_client import ErrorReply

# The keys of the jobs in tubes with keys.
KEYS = (b"ann", b"bob", b"eve")

# The grace time that a client can rely on is shorter by this, for the time until its node gets IDENTIFY.
_RESUME_MARGIN = 300 * MS

# The length of a reply packet up to its body, and the position of the code of the reply.
_HEAD_BYTES = 28
_CODE_AT = 8

# The length of some bodies with the feature BIG_BODIES. It does not fit into one message between nodes.
_BIG_BODY = 300_000

# In a cluster without faults, a wait of a client that sends no more ends within this time.
_STOPS_AFTER = 300 * MS

# A client tries to finish a job this often if the outcome is unknown or the home cannot be reached.
_TRIES_MAX = 20

# The error of a home that accepts no more forwarded clients.
_TOO_MANY = b"max number of clients reached"

# The reply in which IPROTO says that a call was refused.
_DATA, _ERROR = 0x30, 0x31


class TubeCluster(Cluster, Protocol):
    """The cluster, as the clients of this workload see it."""

    tubes: TubeHistory
    disputed: set[bytes]  # The tubes that two nodes created before they met, or of which a home lost its jobs.


class TubeClient(Client):
    """A client with a session."""

    def __init__(self, cluster: TubeCluster, number: int, random: Random) -> None:
        super().__init__(cluster, number, random)
        self.world = cluster
        self.is_iproto = random.random() < cluster.options.iproto_share
        grace_ms = random.choice(cluster.options.grace_ms)
        self.grace_ms = cluster.options.iproto_grace_ms if self.is_iproto else grace_ms
        self.token = b""
        self.held: list[Lease] = []  # Jobs that it has taken and not finished.
        self.kinds = [KINDS[at] for at in cluster.options.tubes]
        if ONCE in cluster.options.features:
            self.kinds.append(ONCE_KIND)
        self._packets = ReplyPackets()
        self._syncs = 0
        self._left: ServingNode | None = None  # The node of its last connection.
        self._left_at = 0  # When it lost that connection.
        self._lost_take = False  # The reply of a take was lost, so its session may hold jobs that it has not received.
        self._unfinished = b""  # The begin of a reply of which more has to arrive.

    def use_resp(self) -> None:
        """Use RESP, before the client begins."""
        if self.is_iproto:
            self.is_iproto = False
            self.grace_ms = self.world.options.grace_ms[0]
            self.kinds += [ONCE_KIND] if ONCE in self.world.options.features else []

    @property
    def now(self) -> int:
        """Return the simulated time."""
        return self.world.schedule.now

    def usable(self) -> list[TubeKind]:
        """Return the tubes that are used now. With LATE_TUBES, they come into use one by one during the faults."""
        options = self.world.options
        if LATE_TUBES not in options.features:
            return self.kinds
        return self.kinds[: 1 + self.now * len(self.kinds) // (options.chaos_ms * MS)]

    # Connections

    def hang_up(self) -> None:
        if self._session is not None:
            self._lost_connection()
        super().hang_up()

    def _give_up(self, asked: int) -> None:
        if asked == self._asked and self._on_answer is not None and self.world.options.is_calm:
            raise Violation(f"W0: a command of client {self.number} was not answered in time")
        super()._give_up(asked)

    def _reset(self, session: object) -> None:
        if self._session is session:
            self._lost_connection()
        super()._reset(session)  # type: ignore[arg-type]

    def _lost_connection(self) -> None:
        self._left, self._left_at = self.node, self.now
        for lease in self.held:
            lease.free_from = min(lease.free_from, self.now + self._grace())
        if self.grace_ms == 0:
            self.end_session()

    def _grace(self) -> int:
        """Return how long the session certainly lives after it has lost its connection.

        A clock that runs fast measures the grace time as shorter, and engines count whole milliseconds.
        """
        slow = 1_000_000 + self.world.options.drift_ppm
        return max(0, self.grace_ms * MS * 1_000_000 // slow - 2 * MS)

    def end_session(self) -> None:
        """Give up the session and its jobs. The next connection begins a new session."""
        if self.held:
            self.world.sometimes("a session ended with jobs")
        self.held = []
        self.token = b""
        self._lost_take = False

    def _choose_node(self) -> ServingNode:
        node = self._left
        if self.token and node is not None and self.home is None and self.random.random() < 0.7:
            return node
        return super()._choose_node()

    def ready(self, act: Callable[[], None]) -> None:
        """Connect and join the session if necessary. Then call `act`."""
        if self._session is not None and self._lost_take and self.is_iproto:
            # An IPROTO client cannot list the jobs of its session, so it begins a new one.
            self._lost_connection()
            self.end_session()
            self.hang_up()
        if self._session is not None:
            if self._lost_take:
                self._list_held(act)
            else:
                act()
            return
        self._connect()
        self._packets = ReplyPackets()
        self._unfinished = b""
        self._identify(act)

    def _identify(self, act: Callable[[], None]) -> None:
        invoked, token = self.now, self.token
        if self.is_iproto:
            self.call("queue.identify", [token] if token else [], SECOND, lambda *a: self._identified(act, invoked, *a))
            return
        words = [b"IDENTIFY", *([token.hex().encode()] if token else [])]
        words += [b"GRACE", b"%dms" % self.grace_ms]
        self.ask(words, 2 * SECOND, lambda *a: self._identified(act, invoked, *a))

    def _identified(self, act: Callable[[], None], invoked: int, answer: object | None, local: int, sent: int) -> None:
        if self.is_loading(answer):
            # The node keeps the connection, and serves it when its journal is loaded.
            self.world.sometimes("a client waited until its node had loaded")
            again = spread(self.random, 100 * MS, SECOND)
            self.later(again, lambda: self.ready(act) if self._session is None else self._identify(act))
            return
        if not isinstance(answer, list):
            if isinstance(answer, ErrorReply):
                self._session_refused(invoked, answer)
                self.hang_up()
            self.later(spread(self.random, 100 * MS, SECOND), lambda: self.ready(act))
            return
        token = answer[0] if self.is_iproto else bytes.fromhex(answer[1].decode())
        token = token.encode("utf-8", "surrogateescape") if isinstance(token, str) else token
        if token != self.token:
            self.token = token
            act()
            return
        self.world.sometimes("a session was resumed")
        if self.held:
            self.world.sometimes("a session was resumed with jobs")
        if self.node is not self._left:
            self.world.sometimes("a session was resumed through another node")
        for lease in self.held:
            lease.resumed = True
            # Only the node through which the job was taken certainly knows that the session uses its home.
            same = self.node is not None and self.node.number == lease.take.node
            in_time = self.now < lease.free_from - _RESUME_MARGIN
            if self.world.options.is_calm and same and in_time and lease.verb_count() == 0:
                # The session is resumed at the homes of its tubes, too, and holds the job without limit.
                lease.free_from = NEVER
        self.ready(act)

    def _session_refused(self, invoked: int, answer: ErrorReply) -> None:
        if not (answer.line.startswith(b"NOSESSION") or b"is unknown" in answer.line):
            raise Violation(f"W8: IDENTIFY was refused with {answer.line!r}")
        in_time = self.now < self._left_at + self._grace() - _RESUME_MARGIN
        if self.world.options.is_calm and in_time and self.node is self._left:
            raise Violation(f"W8: a session was refused within its grace time: {answer.line!r}")
        self.world.sometimes("a session had expired")
        self.end_session()

    def _list_held(self, act: Callable[[], None]) -> None:
        """List the jobs of the session, because the reply of a take was lost."""
        self.ask([b"JOB", b"HELD", b"ENDWAITS"], 2 * SECOND, lambda *a: self._listed(act, *a))

    def _listed(self, act: Callable[[], None], answer: object | None, local: int, sent: int) -> None:
        """Release a job that the session holds and that no reply contained."""
        if not isinstance(answer, list):
            if isinstance(answer, ErrorReply):
                self.refused(answer)
            self.later(spread(self.random, 100 * MS, SECOND), lambda: self.ready(act))
            return
        known = {lease.id for lease in self.held}
        strange = [id for id in answer if id not in known]
        if strange:
            self.world.sometimes("a lost take was found by JOB HELD")
            self.ask([b"RELEASE", strange[0]], 2 * SECOND, lambda *a: self.ready(act))
        else:
            self._lost_take = False
            act()

    # Calls of IPROTO

    def call(self, name: str, args: list[object], timeout: int, on_answer: OnAnswer) -> None:
        """Call a function over IPROTO."""
        self._syncs += 1
        request = Request(iproto.CALL, self._syncs)
        request.name = name.encode()
        request.args = [pack(each) for each in args]
        self.ask([iproto.encode(request)], timeout, on_answer)

    def _parse(self, data: bytes) -> list[object]:
        if not self.is_iproto:
            found = super()._parse(data)
            self._unfinished = b"" if found else self._unfinished + data
            if b"may have been executed" in self._unfinished:
                raise Violation("W0: an error was sent within a reply")
            return found
        return [self._answer_of(packet) for packet in self._packets.feed(data)]

    @staticmethod
    def _answer_of(packet: bytes) -> object:
        body = unpack(packet[_HEAD_BYTES:])
        assert isinstance(body, dict)
        code = int.from_bytes(packet[_CODE_AT : _CODE_AT + 4], "big")
        return ErrorReply(str(body[_ERROR]).encode()) if code else body.get(_DATA, [])

    # Tubes

    def create(self, kind: TubeKind, then: Callable[[], None]) -> None:
        """Create a tube, unless it exists."""
        timeout = 2 * self.world.options.node_timeout_ms * MS + SECOND
        self.world.history.note(self.now, "create", self.number, kind.name)
        if self.is_iproto and not kind.over_iproto:
            then()
        elif self.is_iproto:
            options = {"if_not_exists": True, **dict(kind.options)}
            args: list[object] = [kind.name.decode(), kind.type.decode(), options]
            self.call("queue.create_tube", args, timeout, lambda *a: self._created(kind, then, *a))
        else:
            words = [b"TUBE", b"CREATE", kind.name, b"TYPE", kind.type, *kind.words]
            self.ask(words, timeout, lambda *a: self._created(kind, then, *a))

    def _created(self, kind: TubeKind, then: Callable[[], None], answer: object | None, local: int, sent: int) -> None:
        if isinstance(answer, ErrorReply):
            self.refused(answer)
            if answer.line.startswith(b"TUBEEXISTS"):
                raise Violation(f"W1: TUBE CREATE {kind.name.decode()} was refused with {answer.line!r}")
            if self.world.options.is_calm:
                raise Violation(f"W1: without faults, {kind.name.decode()} was not created: {answer.line!r}")
        then()

    def refused(self, answer: ErrorReply) -> str:
        """Count an error reply by its code, in `history.errors`. Return the outcome of the call.

        The outcome is UNKNOWN if the call may have been executed, otherwise REFUSED.
        """
        code = "a call" if self.is_iproto else answer.line.partition(b" ")[0].decode()
        self.world.history.errors[code] += 1
        if b"internal error" in answer.line:
            raise Violation(f"W0: {answer.line!r}")
        if b"may have been executed" in answer.line:
            self.world.sometimes("a link was lost while a forwarded command ran")
            return UNKNOWN
        return REFUSED

    @staticmethod
    def is_loading(answer: object | None) -> bool:
        """Return whether a command was refused because its node loads its journal."""
        return isinstance(answer, ErrorReply) and b"is loading its journal" in answer.line

    @staticmethod
    def is_unreachable(answer: object | None) -> bool:
        """Return whether a command did not run because the home of its tube cannot be reached, or has too many clients.

        The session then still holds its jobs.
        """
        if not isinstance(answer, ErrorReply):
            return False
        return answer.line.startswith(b"NOHOME") or b" lives on " in answer.line or _TOO_MANY in answer.line

    @staticmethod
    def is_missing(answer: ErrorReply) -> bool:
        """Return whether a command was refused because its tube does not exist."""
        return answer.line.startswith(b"NOTUBE") or b"is not defined" in answer.line


class TubeProducer(TubeClient):
    """Creates tubes, and puts a fixed number of jobs into them."""

    jobs_left = 0
    pause_us = 0  # The average pause between two jobs.
    kind: TubeKind | None = None  # The only tube that it uses, if set.
    must_work = False  # It tries again until every put is accepted.

    def usable(self) -> list[TubeKind]:
        # queue.tube.NAME:put has no option for at-most-once delivery.
        return [kind for kind in super().usable() if not (kind.once and self.is_iproto)]

    def begin(self) -> None:
        """Create all tubes at about the same time as the other producers, and then put jobs."""
        self.later(spread(self.random, 5 * MS, 100 * MS), lambda: self._create_all(list(self.usable())))

    def _create_all(self, kinds: list[TubeKind]) -> None:
        if not kinds:
            self._pause()
            return
        kind = kinds.pop(self.random.randrange(len(kinds)))
        self.ready(lambda: self.create(kind, lambda: self._create_all(kinds)))

    def _pause(self) -> None:
        self.later(spread(self.random, self.pause_us, 20 * self.pause_us), lambda: self.ready(self._put))

    def _put(self) -> None:
        if self.jobs_left <= 0:
            return
        random = self.random
        kind = self.kind or random.choice(self.usable())
        self.jobs_left -= 1
        filling = b"." * random.choice(self.world.options.body_bytes)
        if BIG_BODIES in self.world.options.features and random.random() < 0.1:
            filling = b"." * _BIG_BODY
        body = b"%d-%d" % (self.number, self.jobs_left) + filling
        if body in self.world.tubes.puts:
            body = b"%d-%d-%d" % (self.number, self.jobs_left, self.now) + filling
        assert self.node is not None
        put = Put(body, kind, b"", 0, 0, self.node.number, self.is_iproto, self.now)
        if kind.key_limit:
            put.key = random.choice(KEYS)
        if kind.order == PRIORITY and random.random() < 0.5:
            put.priority = random.randint(0, 3)
            put.delay_ms = random.choice((0, 0, 0, 200))
        self.world.tubes.puts[body] = put
        self.world.history.note(self.now, "put", self.number, put.node, kind.name, body)
        if self.is_iproto:
            self._call_put(put)
        else:
            self._send_put(put)

    def _send_put(self, put: Put) -> None:
        words = [b"PUT", put.tube.name, put.body, b"EXISTING"]
        words += [b"KEY", put.key] if put.key else []
        words += [b"PRIORITY", b"%d" % put.priority] if put.priority else []
        words += [b"DELAY", b"%dms" % put.delay_ms] if put.delay_ms else []
        words += [b"TIMEOUT", b"500ms"] if put.tube.capacity else []
        words += [b"ONCE"] if put.tube.once else []
        self.ask(words, 4 * SECOND, lambda *a: self._was_put(put, *a))

    def _call_put(self, put: Put) -> None:
        options: dict[str, object] = {}
        if put.key:
            options["utube"] = put.key.decode()
        if put.priority:
            options["pri"] = put.priority
        if put.delay_ms:
            options["delay"] = put.delay_ms / 1_000
        if put.tube.capacity:
            options["timeout"] = 0.5
        args: list[object] = [put.body.decode(), options]
        name = f"queue.tube.{put.tube.name.decode()}:put"
        self.call(name, args, 4 * SECOND, lambda *a: self._was_put(put, *a))

    def _was_put(self, put: Put, answer: object | None, local: int, sent: int) -> None:
        put.ended = self.now
        missing = False
        if isinstance(answer, bytes):
            put.outcome, put.id = DONE, answer
        elif isinstance(answer, list):
            put.outcome = REFUSED if answer == [None] else DONE
        elif isinstance(answer, ErrorReply):
            put.outcome = self.refused(answer)
            missing = self.is_missing(answer)
        self.world.history.note(self.now, "was put", put.body, put.outcome, put.id)
        if self.must_work and put.outcome != DONE:
            self.jobs_left += 1
        if isinstance(answer, ErrorReply) and answer.line.startswith((b"LEAVING", b"NOHOME")) and self.home is None:
            self.hang_up()
        if missing:
            self.ready(lambda: self.create(put.tube, self._pause))
        else:
            self._pause()


class HastyProducer(TubeProducer):
    """Puts jobs without a session, so that its first command at a node that loads its journal is a put."""

    def ready(self, act: Callable[[], None]) -> None:
        if self._session is None:
            self._connect()
            self._packets = ReplyPackets()
        act()


class TubeConsumer(TubeClient):
    """Takes jobs, works on them, and acks, releases, nacks or buries them, or loses its connection."""

    careful = False  # Whether it acks everything immediately, because the cluster is being drained.
    _ended_input = NEVER  # When it closed its sending side, while a take waits.

    def begin(self) -> None:
        self._later_step(20 * MS)

    def _later_step(self, mean: int) -> None:
        self.later(spread(self.random, mean, SECOND), self._step)

    def _step(self) -> None:
        self.ready(self._act)

    def _act(self) -> None:
        options, what = self.world.options, self.random.random()
        if self.careful:
            if self.held:
                self._finish(self.held[0], "ack")
            else:
                self._take()
        elif what < options.cut_share:
            self._cut()
        elif what < options.cut_share + 0.03:
            self._kick()
        elif what < options.cut_share + 0.06:
            self._intrude()
        elif self.held and self.random.random() >= options.hold_share:
            self._finish(self.random.choice(self.held), self._choose_verb())
        else:
            self._take()

    def _cut(self) -> None:
        """Close the connection, and resume the session later, perhaps too late, or never."""
        if self.random.random() < self.world.options.drop_share:
            self._lost_connection()
            self.end_session()
        self.hang_up()
        self.later(self.random.randint(0, 2 * self.grace_ms + 100) * MS, self._step)

    # Taking

    def _take(self) -> None:
        random = self.random
        kind = random.choice(self.usable())
        if CLAIMS in self.world.options.features and kind is self.kinds[0] and not self.careful:
            # Leave most of the jobs to the readers of claims.
            if random.random() < 0.95:
                self._later_step(50 * MS)
                return
        timeout_ms = random.choice((0, 50, 500, 2_000)) if not self.careful else 500
        assert self.node is not None
        take = Take(kind, self.node.number, self.number, self.token, self.is_iproto, self.now)
        self.world.tubes.takes.append(take)
        self.world.history.note(self.now, "take", self.number, take.node, kind.name)
        limit = (timeout_ms + 2_500) * MS
        if self.is_iproto:
            args: list[object] = [timeout_ms / 1_000]
            self.call(f"queue.tube.{kind.name.decode()}:take", args, limit, lambda *a: self._took(take, *a))
        else:
            words = [b"TAKE", kind.name, b"COUNT", b"%d" % random.choice((1, 1, 1, 3))]
            words += [b"TIMEOUT", b"%dms" % timeout_ms] if timeout_ms else []
            self.ask(words, limit, lambda *a: self._took(take, *a))
        if HALF_CLOSE in self.world.options.features and not self.careful and random.random() < 0.2:
            asked = self._asked
            self.later(random.randint(5, 50) * MS, lambda: self._end_input(asked))

    def _end_input(self, asked: int) -> None:
        """Close the sending side of the connection while a take waits. The reply must still arrive, and soon."""
        session, node = self._session, self.node
        if asked != self._asked or self._on_answer is None or session is None or node is None:
            return
        self._ended_input = self.now
        node.end_input(session)

    def _check_last_reply(self, answer: object | None, ended_input: int) -> None:
        """Check W0 for a client that has sent nothing since `ended_input`: its reply arrives in time."""
        if answer is not None:
            self.world.sometimes("a client that sent no more got its reply")
        if self.world.options.is_calm and (answer is None or self.now > ended_input + _STOPS_AFTER):
            what = "no reply" if answer is None else "its reply late"
            raise Violation(f"W0: client {self.number}, which sends no more, got {what}")

    def _took(self, take: Take, answer: object | None, local_ms: int, sent: int) -> None:
        take.ended = self.now
        ended_input, self._ended_input = self._ended_input, NEVER
        if ended_input < NEVER:
            self._check_last_reply(answer, ended_input)
        if ended_input == NEVER or answer is None:
            self._process_take(take, answer, sent)
        elif isinstance(answer, list):
            self._process_take(take, answer, sent)
            self._close_after_reply(sent)
        else:
            self._close_after_reply(sent)
            self._process_take(take, answer, sent)

    def _close_after_reply(self, sent: int) -> None:
        """Close a connection that the node closed when it sent the last reply."""
        for lease in self.held:
            lease.free_from = min(lease.free_from, sent + self._grace())
        self.hang_up()

    def _process_take(self, take: Take, answer: object | None, sent: int) -> None:
        if isinstance(answer, ErrorReply):
            take.outcome = self.refused(answer)
            self._lost_take |= take.outcome == UNKNOWN
            if self.is_missing(answer):
                self.ready(lambda: self.create(take.tube, lambda: self._later_step(100 * MS)))
                return
            if self.home is None and self.random.random() < 0.3:
                self.hang_up()
            self._later_step(300 * MS)
            return
        if answer is None:
            self._lost_take = True
            self._later_step(100 * MS)
            return
        take.outcome = DONE
        assert isinstance(answer, list)
        for item in answer:
            self._received(take, item, sent)
        if self.careful:
            # A home that could not be reached when the jobs were listed may still have one. A home that lost its last
            # writes may again have a job that was acked. If a tube has two homes, an ack that one of them refused may
            # be about a job of the other.
            is_doubtful = self._has_lost_writes() or bool(self.world.disputed)
            may_hold = not answer and (not self.is_iproto or is_doubtful)
            self._lost_take = may_hold and self.random.random() < 0.1
            self._later_step(MS if answer else 100 * MS)
        else:
            self._later_step(self.random.choice((1, 20, 200)) * MS)

    def _received(self, take: Take, item: object, sent: int) -> None:
        assert isinstance(item, (list, tuple))
        if self.is_iproto:
            number, letter, data = item
            body = data.encode() if isinstance(data, str) else data
            at = self.world.tubes.delivered_at(take, body, sent)
            lease = Lease(body, take.tube, b"", number, 0, take, self.grace_ms, sent, at, self.now)
            if letter != "t":
                raise Violation(f"W2: take returned {body!r} in the state {letter!r}")
        else:
            facts = dict(zip(item[::2], item[1::2], strict=True))
            body, id, number = facts[b"body"], facts[b"id"], facts[b"number"]
            at = self.world.tubes.delivered_at(take, body, sent)
            lease = Lease(body, take.tube, id, number, facts[b"deliveries"], take, self.grace_ms, sent, at, self.now)
            if facts[b"tube"] != take.tube.name:
                raise Violation(f"W2: a take of {take.tube.name!r} returned a job of {facts[b'tube']!r}")
        self.world.tubes.leases.append(lease)
        self.held.append(lease)
        self.world.history.note(self.now, "lease", self.number, take.node, take.tube.name, body, lease.deliveries)

    def _has_lost_writes(self) -> bool:
        """Return whether a node has lost writes that it had confirmed."""
        return any(fault.forgets for fault in self.world.history.faults)

    # Finishing

    def _choose_verb(self) -> str:
        what, nacks = self.random.random(), self.world.options.nack_share
        if what < nacks:
            return self.random.choice(("release", "release", "nack", "bury"))
        return "ack"

    def _finish(self, lease: Lease, verb: str) -> None:
        if self.is_iproto and verb == "nack":
            verb = "release"
        finish = Finish(verb, self.token, self.number, self.now)
        if verb != "ack":
            lease.free_from = min(lease.free_from, self.now)
        lease.finishes.append(finish)
        self.world.history.note(self.now, verb, self.number, lease.body)
        self._send_finish(lease, finish, lambda answer: self._finished(lease, finish, answer))

    def _send_finish(self, lease: Lease, finish: Finish, then: Callable[[object | None], None]) -> None:
        verb = finish.verb
        if self.is_iproto:
            name = f"queue.tube.{lease.tube.name.decode()}:{verb}"
            self.call(name, [lease.number], 2 * SECOND, lambda answer, local, sent: then(answer))
            return
        number = lease.tube.name + b"#%d" % lease.number
        id = lease.id if lease.id and self.random.random() < 0.7 else number
        words = [b"JOB", b"NACK", id] if verb == "nack" else [verb.upper().encode(), id]
        self.ask(words, 2 * SECOND, lambda answer, local, sent: then(answer))

    def _finished(self, lease: Lease, finish: Finish, answer: object | None) -> None:
        finish.ended = self.now
        keeps = False
        if isinstance(answer, ErrorReply):
            finish.outcome = self.refused(answer)
            finish.refusal = answer.line.decode()
            keeps = finish.outcome == UNKNOWN or self.is_unreachable(answer)
        elif answer is None:
            keeps = True
        else:
            finish.outcome = DONE
            if finish.verb == "ack" and lease.resumed:
                self.world.sometimes("a job was acked by a resumed session")
        if keeps and len(lease.finishes) >= _TRIES_MAX:
            # A worker that gives up a job gives up its session, too. Otherwise the session would hold the job.
            self._lost_connection()
            self.end_session()
            self.hang_up()
        if not keeps and lease in self.held:
            self.held.remove(lease)
        self.world.history.note(self.now, "finished", lease.body, finish.verb, finish.outcome)
        self._later_step(200 * MS if keeps else 5 * MS)

    def _kick(self) -> None:
        kind = self.random.choice(self.usable())
        self.world.tubes.kicks.append((kind, self.now))
        if self.is_iproto:
            args: list[object] = [10]
            self.call(f"queue.tube.{kind.name.decode()}:kick", args, 2 * SECOND, lambda *a: self._later_step(20 * MS))
        else:
            self.ask([b"KICK", kind.name, b"10"], 2 * SECOND, lambda *a: self._later_step(20 * MS))

    def _intrude(self) -> None:
        """Try to ack a job that another session holds."""
        leases = self.world.tubes.leases
        mine = {lease.body for lease in leases if lease.take.token == self.token}
        others = [lease for lease in leases[-10:] if lease.body not in mine and not lease.tube.once]
        if not others:
            self._take()
            return
        lease = self.random.choice(others)
        finish = Finish("ack", self.token, self.number, self.now, intruder=True)
        self._send_finish(lease, finish, lambda answer: self._intruded(lease, finish, answer))

    def _intruded(self, lease: Lease, finish: Finish, answer: object | None) -> None:
        finish.ended = self.now
        if isinstance(answer, ErrorReply) or answer is None:
            finish.outcome = UNKNOWN if answer is None else self.refused(answer)
            self.world.sometimes("an ack of another session was refused")
        elif answer != 0:
            finish.outcome = DONE
            # A node that lost its jobs uses the numbers of a tube again.
            forgot = self._has_lost_writes()
            lost = any(take.token == finish.token and take.outcome == UNKNOWN for take in self.world.tubes.takes)
            if not forgot and not lost:
                raise Violation(
                    f"W6: {lease.body.rstrip(b'.')!r} was acked by client {self.number}, whose session did not hold it"
                )
        lease.finishes.append(finish)
        self._later_step(20 * MS)
