"""The clients of a simulated cluster: producers add jobs, and consumers take jobs and ack, nack or drop them.

A client is connected to one node at a time and has one command outstanding. If the node is down or does not answer, the
client connects to another one. The outcome of the outstanding command is then unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from mypy_extensions import mypyc_attr

from penstock.core.limits import NEVER
from penstock.testing.sim.history import DONE, REFUSED, UNKNOWN, Ack, Add, Delivery, History, Nack
from penstock.testing.sim.options import Options
from penstock.testing.sim.schedule import MS, SECOND, Schedule, spread
from penstock.wire.resp_client import ErrorReply, ReplyParser

# The average one-way delay between a client and its node.
_DELAY_US = 200

# Refusals after which the job may have been added nevertheless.
_OPEN_REFUSALS = (b"NOREPL", b"LEAVING")


class Session:
    """One connection between a client and its node."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_iproto = client.is_iproto
        self.is_open = True
        self.state: object = None  # Used by the node.
        self.arrives = 0  # When the last reply that was sent arrives. Replies arrive in order.


class ServingNode(Protocol):
    """A node, as clients see it."""

    number: int
    up: bool

    def connect(self, session: Session) -> None:
        """Accept a connection."""

    def request(self, session: Session, args: list[bytes]) -> None:
        """Run a command that a client sent."""

    def end_input(self, session: Session) -> None:
        """Receive the end of a client's input. The client still reads replies."""

    def hang_up(self, session: Session) -> None:
        """Close a connection."""


class Cluster(Protocol):
    """The cluster, as clients see it."""

    schedule: Schedule
    history: History
    options: Options

    def serving(self) -> Sequence[ServingNode]:
        """Return the nodes that clients can connect to."""

    def sometimes(self, what: str) -> None:
        """Increase the counter of the event `what`, which must occur at least once in a run of many seeds."""


# Called with the answer, or None if there was none, the node's time and the time at which the answer was sent.
OnAnswer = Callable[[object | None, int, int], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Client:
    """A client with one connection at a time."""

    def __init__(self, cluster: Cluster, number: int, random: Random) -> None:
        self.cluster = cluster
        self.number = number
        self.random = random
        self.node: ServingNode | None = None
        self.home: ServingNode | None = None  # The only node that it connects to, if set.
        self.stopped = False
        self.is_iproto = False
        self.tube_patterns: list[bytes] | None = None  # The tubes that it may use; None: all.
        self._session: Session | None = None
        self._parser = ReplyParser()
        self._asked = 0  # The number of commands that it has sent.
        self._on_answer: OnAnswer | None = None

    def begin(self) -> None:
        """Schedule the first action."""
        raise NotImplementedError

    def later(self, delay: int, act: Callable[[], None]) -> None:
        """Schedule an action. It is skipped if the client has stopped by then."""
        self.cluster.schedule.after(delay, lambda: None if self.stopped else act())

    def ask(self, args: list[bytes], timeout: int, on_answer: OnAnswer) -> None:
        """Send a command. `on_answer` is called with the reply, or with None after the timeout."""
        schedule = self.cluster.schedule
        if self._session is None:
            self._connect()
        session, node = self._session, self.node
        assert session is not None and node is not None
        self._asked += 1
        asked = self._asked
        self._on_answer = on_answer
        schedule.after(spread(self.random, _DELAY_US, SECOND), lambda: node.request(session, args))
        schedule.after(timeout, lambda: self._give_up(asked))

    def _connect(self) -> None:
        node = self._choose_node()
        session = Session(self)
        self._session, self.node = session, node
        self._parser = ReplyParser()
        self.cluster.schedule.after(0, lambda: node.connect(session))

    def _choose_node(self) -> ServingNode:
        return self.random.choice([self.home] if self.home is not None else self.cluster.serving())

    def hang_up(self) -> None:
        """Close the connection, even if a command is outstanding."""
        session, node = self._session, self.node
        if session is not None and node is not None:
            session.is_open = False
            self._session = None
            self.cluster.schedule.after(spread(self.random, _DELAY_US, SECOND), lambda: node.hang_up(session))
            self._end(None, 0, 0)

    def hears(self, session: Session, data: bytes, local_ms: int) -> None:
        """Process data that the node sends, after a network delay."""
        sent = self.cluster.schedule.now
        session.arrives = max(session.arrives, sent + spread(self.random, _DELAY_US, SECOND))
        self.cluster.schedule.at(session.arrives, lambda: self._hear(session, data, local_ms, sent))

    def reset(self, session: Session) -> None:
        """End the connection that the node closed, after a network delay. Replies in transit can be lost."""
        delay = spread(self.random, _DELAY_US, SECOND)
        self.cluster.schedule.after(delay, lambda: self._reset(session))

    def end_of_replies(self, session: Session) -> None:
        """End the connection that the node closed, after all replies have arrived."""
        delay = spread(self.random, _DELAY_US, SECOND)
        at = max(session.arrives, self.cluster.schedule.now + delay)
        self.cluster.schedule.at(at, lambda: self._reset(session))

    def _reset(self, session: Session) -> None:
        if session.is_open:
            session.is_open = False
            self._session = None
            self._end(None, 0, 0)

    def _hear(self, session: Session, data: bytes, local_ms: int, sent: int) -> None:
        if session.is_open:
            for answer in self._parse(data):
                self._end(answer, local_ms, sent)

    def _parse(self, data: bytes) -> list[object]:
        """Add received bytes. Return the replies that are complete now."""
        self._parser.feed(data)
        return list(self._parser.parse())

    def _give_up(self, asked: int) -> None:
        if asked == self._asked and self._on_answer is not None:
            self.hang_up()

    def _end(self, answer: object | None, local_ms: int, sent: int) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(answer, local_ms, sent)


class Operator(Client):
    """A client that sends a command to a node and ignores the reply."""

    def ask_at(self, node: ServingNode, args: list[bytes]) -> None:
        self.hang_up()
        self.home = node
        self.ask(args, 2 * SECOND, lambda answer, local_ms, sent: None)


class Producer(Client):
    """Adds a fixed number of jobs."""

    jobs_left = 0
    pause_us = 0  # The average pause between two jobs.
    must_work = False  # Whether every job must be accepted, because the cluster has healed.

    def begin(self) -> None:
        self.later(spread(self.random, self.pause_us, 20 * self.pause_us), self._add)

    def _add(self) -> None:
        if self.jobs_left <= 0:
            return
        self.jobs_left -= 1
        random, options, history = self.random, self.cluster.options, self.cluster.history
        queue = b"q%d" % random.randrange(options.queues)
        filling = random.choice(options.body_bytes)
        body = b"%d-%d" % (self.number, self.jobs_left) + b"." * filling
        timeout_ms = random.choice((50, 200, 500, 2_000))
        if self._session is None:
            self._connect()
        assert self.node is not None
        add = Add(body, queue, self.cluster.schedule.now, self.node.number)
        add.retry_ms = random.choice(options.retry_s) * 1_000
        add.ttl_ms = random.choice(options.ttl_s) * 1_000
        add.delay_ms = random.choice(options.delay_s) * 1_000
        if add.delay_ms >= add.ttl_ms:
            add.delay_ms = 0
        add.replicate = 1 if add.retry_ms == 0 else random.choice(options.replicate)
        add.is_async = random.random() < options.async_share
        words = [b"ADDJOB", queue, body, b"%d" % timeout_ms, b"REPLICATE", b"%d" % add.replicate]
        words += [b"RETRY", b"%d" % (add.retry_ms // 1_000), b"TTL", b"%d" % (add.ttl_ms // 1_000)]
        if add.delay_ms:
            words += [b"DELAY", b"%d" % (add.delay_ms // 1_000)]
        if add.is_async:
            words.append(b"ASYNC")
        history.adds[body] = add
        history.note(add.invoked, "add", self.number, add.node, body, add.replicate, add.retry_ms)
        self.ask(words, (timeout_ms + 1_000) * MS, lambda answer, local_ms, sent: self._added(add, answer))

    def _added(self, add: Add, answer: object | None) -> None:
        add.ended = self.cluster.schedule.now
        if isinstance(answer, bytes):
            add.outcome, add.id = DONE, answer
        elif isinstance(answer, ErrorReply):
            word = answer.line.partition(b" ")[0]
            add.refusal = answer.line
            add.outcome = UNKNOWN if word in _OPEN_REFUSALS else REFUSED
            self.cluster.history.errors[word.decode()] += 1
            if word == b"LEAVING" and self.home is None:
                self.hang_up()
        self.cluster.history.note(add.ended, "added", add.body, add.outcome, add.id)
        self.begin()


class Consumer(Client):
    """Takes jobs, works on them, and usually acks them."""

    careful = False  # Whether it acks everything immediately, because the cluster is being drained.

    def begin(self) -> None:
        self.later(spread(self.random, 5 * MS, SECOND), self._take)

    def _take(self) -> None:
        random = self.random
        names = [b"q%d" % number for number in range(self.cluster.options.queues)]
        random.shuffle(names)
        if not self.careful:
            names = names[: random.randint(1, len(names))]
        words = [b"GETJOB"]
        timeout_ms = random.choice((50, 500, 2_000, 5_000)) if not self.careful else 5_000
        if random.random() < 0.1 and not self.careful:
            words.append(b"NOHANG")
        words += [b"TIMEOUT", b"%d" % timeout_ms, b"COUNT", b"%d" % random.choice((1, 1, 2, 10)), b"WITHCOUNTERS"]
        self.ask([*words, b"FROM", *names], (timeout_ms + 2_000) * MS, self._took)

    def _took(self, answer: object | None, local_ms: int, sent: int) -> None:
        if isinstance(answer, ErrorReply):
            self.cluster.history.errors[answer.line.partition(b" ")[0].decode()] += 1
            self.hang_up()
            self.later(spread(self.random, 300 * MS, 2 * SECOND), self._take)
            return
        if not isinstance(answer, list) or not answer:
            self.later(spread(self.random, 100 * MS, SECOND), self._take)
            return
        jobs = [self._delivered(item, local_ms, sent) for item in answer]
        work = 0 if self.careful else spread(self.random, self.random.choice((1, 20, 300)) * MS, 2 * SECOND)
        self.later(work, lambda: self._finish(jobs))

    def _delivered(self, item: object, local_ms: int, sent: int) -> bytes:
        assert isinstance(item, list)
        queue, id, body, _, nacks, _, returns = item
        delivery = Delivery(id, queue, body)
        delivery.at = self.cluster.schedule.now
        delivery.sent = sent
        assert self.node is not None
        delivery.node = self.node.number
        delivery.local_ms = local_ms
        delivery.nacks, delivery.returns = nacks, returns
        delivery.client = self.number
        self.cluster.history.deliveries.append(delivery)
        self.cluster.history.note(delivery.at, "delivery", self.number, delivery.node, id, body, nacks, returns)
        return bytes(id)

    def _finish(self, jobs: list[bytes]) -> None:
        """Ack, nack or drop all jobs that were delivered together, or extend the time of all with WORKING."""
        random, options = self.random, self.cluster.options
        what = random.random()
        if self.careful:
            self._ack(jobs)
        elif what < options.drop_share:
            self.cluster.sometimes("a consumer dropped a job")
            self._take()
        elif what < options.drop_share + options.nack_share:
            self._nack(jobs)
        elif what < options.drop_share + options.nack_share + options.working_share:
            self._ask_for_time(jobs)
        else:
            self._ack(jobs)

    def _ack(self, jobs: list[bytes]) -> None:
        random, options, history = self.random, self.cluster.options, self.cluster.history
        if random.random() < options.elsewhere_share and self.home is None:
            self.hang_up()
        if self._session is None:
            self._connect()
        assert self.node is not None
        fast = random.random() < options.fast_share
        acks = []
        for id in jobs:
            ack = Ack(id, self.cluster.schedule.now, self.node.number, fast)
            history.acks.setdefault(id, []).append(ack)
            acks.append(ack)
        history.note(self.cluster.schedule.now, "ack", self.node.number, jobs)
        self.ask(
            [b"FASTACK" if fast else b"ACKJOB", *jobs],
            2 * SECOND,
            lambda answer, local_ms, sent: self._acked(acks, answer),
        )

    def _acked(self, acks: list[Ack], answer: object | None) -> None:
        for ack in acks:
            ack.ended = self.cluster.schedule.now
            ack.outcome = DONE if isinstance(answer, int) else UNKNOWN if answer is None else REFUSED
            ack.counted = answer == len(acks)
        if answer is None and self.random.random() < 0.8:
            # The worker tries again, possibly at another node.
            self.later(spread(self.random, 50 * MS, SECOND), lambda: self._ack([ack.id for ack in acks]))
        else:
            self.begin()

    def _nack(self, jobs: list[bytes]) -> None:
        nacks = []
        for id in jobs:
            nack = Nack(self.cluster.schedule.now)
            self.cluster.history.nacks.setdefault(id, []).append(nack)
            nacks.append(nack)
        self.cluster.history.note(self.cluster.schedule.now, "nack", jobs)
        self.ask([b"NACK", *jobs], 2 * SECOND, lambda answer, local_ms, sent: self._nacked(nacks, answer))

    def _nacked(self, nacks: list[Nack], answer: object | None) -> None:
        for nack in nacks:
            nack.ended = NEVER if answer is None else self.cluster.schedule.now
        self.begin()

    def _ask_for_time(self, jobs: list[bytes]) -> None:
        self.ask([b"WORKING", jobs[0]], 2 * SECOND, lambda answer, local_ms, sent: self._ack(jobs))
