"""Random interleavings of clients' bytes, turns, syncs and disconnects, compared with what clients were sent.

- A byte is sent when the log is durable up to the turn that produced it. A power cut therefore undoes nothing that a
  client has seen.
- The replies of a client have the order of its commands.
- A job counts as delivered if the reply with it was sent, and only then.
"""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.journal.recovery.opening import open_log
from penstock.testing.disk import crashes
from penstock.testing.invariants import check

from .fake_node import SEGMENT_BYTES, FakeClient, FakeNode, resp

CLIENTS = 2
JOBS = 3  # Jobs that are there from the start, so that most takes find one.
COMMANDS = ["put", "take", "wait", "ack"]
OPS = st.one_of(
    st.tuples(st.sampled_from(COMMANDS), st.integers(0, CLIENTS - 1)),
    st.tuples(st.sampled_from(["run", "leave"]), st.integers(0, CLIENTS - 1)),
    st.tuples(st.sampled_from(["turn", "sync", "time"]), st.just(0)),
)


class User:
    """A client, and all that it has sent and received."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = Connection(world, self)
        self.client.inbox = world.node.inbox(m.RESP_3)
        self.client.reply.resp3 = True
        world.node.turn.join(self.client)
        self.asked: list[str] = []
        self.answered = 0
        self.held: list[bytes] = []  # The bodies of jobs that it received and did not ack.
        self.made: list[tuple[int, int]] = []  # For each turn: the bytes of all replies, and the end of the log.
        self.bytes_sent = 0

    def bytes_made(self) -> int:
        return self.bytes_sent + int(self.client.reply.length + self.client.sending)

    def ask(self, what: str) -> None:
        """Send a command, and an unknown one, whose error shows that the order is kept."""
        world = self.world
        if what == "put":
            world.puts += 1
            words: tuple[Any, ...] = ("put", "t", b"%d" % world.puts)
            what = f"put {world.puts}"
        elif what == "ack" and self.held:
            body = self.held.pop()
            world.acks.add(body)
            words = ("ack", world.ids[body])
            what = f"ack {body.decode()}"
        else:
            words = ("take", "t", "TIMEOUT", "2s") if what == "wait" else ("take", "t")
            what = "take"
        mark = f"mark{world.marks}"
        world.marks += 1
        self.asked += [what, mark]
        world.node.turn.received(self.client, resp(*words) + resp(mark))

    def receive(self, data: bytes) -> None:
        """Check bytes that are sent: the turn that produced them is durable."""
        log = self.world.node.log
        assert log is not None
        self.bytes_sent += len(data)
        needed = next((end for made, end in self.made if made >= self.bytes_sent), None)
        assert needed is not None, "the turn of this reply has not ended"
        assert needed <= log.durable, "the turn of this reply is not durable"
        self.client.sent.append(data)
        for reply in self.client.replies():
            self._check(self.asked[self.answered], reply)
            self.answered += 1

    def _check(self, asked: str, reply: Any) -> None:
        what, _, body = asked.partition(" ")
        if what == "put":
            self.world.ids[body.encode()] = reply
        elif what == "take":
            for job in reply:
                self.held.append(job[b"body"])
                self.world.ids[job[b"body"]] = job[b"id"]
                self.world.delivered[job[b"body"]] = self.world.delivered.get(job[b"body"], 0) + 1
                assert job[b"deliveries"] == self.world.delivered[job[b"body"]]
        elif what == "ack":
            assert reply == 1
            self.world.acked.add(body.encode())
        else:
            assert reply == f"ERR unknown command '{what}'"


class Connection(FakeClient):
    """The connection of a user."""

    def __init__(self, world: World, user: User) -> None:
        world.node.connections += 1
        super().__init__(world.node, world.node.engine.connect(b"%016d" % world.node.connections))
        self.user = user

    def write(self, data: bytes) -> None:
        self.user.receive(data)


class World:
    """A node and its users."""

    def __init__(self) -> None:
        self.node = FakeNode()
        self.node.tube()
        self.puts = self.marks = 0
        self.ids: dict[bytes, bytes] = {}  # The ids of jobs, by their bodies, as clients have received them.
        self.delivered: dict[bytes, int] = {}  # How often each job was sent to a client.
        self.acked: set[bytes] = set()
        self.users = [User(self) for _ in range(CLIENTS)]
        for _ in range(JOBS):
            self.puts += 1
            self.node.put(b"%d" % self.puts)
        self.acks: set[bytes] = set()  # The jobs that clients have asked to ack. The replies may be lost.

    def turn(self) -> None:
        """End the turn and send its output."""
        self.node.end()
        assert self.node.log is not None
        for user in self.users:
            user.made.append((user.bytes_made(), self.node.log.written))
        self.node.turn.send()

    def step(self, what: str, number: int) -> None:
        user = self.users[number]
        if what in COMMANDS:
            user.ask(what)
        elif what == "run":
            self.node.turn.run(user.client)
        elif what == "leave":
            user.client.leave()
            self.users[number] = User(self)
        elif what == "turn":
            self.turn()
        elif what == "time":
            self.node.clock.advance(700)
            self.node.turn.plan()
        elif self.node.driver.syncing:
            self.node.sync()

    def settle(self) -> None:
        """Run turns until no work is left and all waits have ended, because acks may be sent behind them."""
        for _ in range(60):
            self.node.clock.advance(2_100)
            self.node.turn.plan()
            self.turn()
            while self.node.driver.syncing:
                self.node.sync()
            if all(user.answered == len(user.asked) for user in self.users):
                break

    def check(self) -> None:
        """Compare the jobs with what clients were sent."""
        check(self.node.engine)
        held = {body for user in self.users for body in user.held}
        for job in self.node.engine.jobs.scan(0, 1_000):
            body = job.user_body()
            assert isinstance(body, bytes)
            assert job.deliveries == self.delivered.get(body, 0)
            assert job.state == (s.TAKEN if body in held else s.READY)

    def cut_power(self) -> None:
        """Check that the durable part of the log contains all that clients were sent."""
        disk = next(iter(crashes(self.node.disk, len(self.node.disk.effects))))
        engine = open_log(disk, lambda: self.node.clock.ms, "boot", segment_bytes=SEGMENT_BYTES).engine
        found = {job.user_body() for job in engine.jobs.scan(0, 1_000)}
        assert not found & self.acked
        assert set(self.ids) - self.acks <= found


@settings(deadline=None)
@example([("turn", 0), *[("take", 0)] * 3, ("turn", 0), ("sync", 0), ("wait", 0), ("ack", 0)])
@given(st.lists(OPS, min_size=8, max_size=40))
def test_clients_are_sent_durable_changes_in_order_and_jobs_count_as_delivered_if_they_were_sent(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    for what, number in steps:
        world.step(what, number)
    world.cut_power()
    world.settle()
    world.check()
    for user in world.users:
        assert user.answered == len(user.asked)
    world.cut_power()
