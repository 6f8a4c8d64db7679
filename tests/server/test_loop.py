"""Turns: no reply is sent before the log is durable up to the reply's changes."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.core import policy
from penstock.core.errors import Interrupted, JournalFailed
from penstock.core.job import Draft, Job
from penstock.core.limits import NEVER
from penstock.core.tube import Tube
from penstock.core.waits import Waiting
from penstock.dialects.disque import Disque
from penstock.host.host import Host, Store
from penstock.journal.disk import File
from penstock.journal.real_disk import RealDisk, RealFile
from penstock.node.caller import WRITE, Caller, SlicedCommand
from penstock.node.client import Client
from penstock.node.context import CommandContext
from penstock.node.dispatch import Command, Dispatcher
from penstock.node.inbox import ALL_RUN
from penstock.server.hooks import connect_loop
from penstock.server.loop import LoopHooks, TurnLoop

from .serving import PATIENCE_S


class SlowFile(RealFile):
    """A file whose syncs block until they are released."""

    gate = threading.Event()
    broken = False

    def sync(self) -> None:
        assert self.gate.wait(PATIENCE_S)
        if self.broken:
            raise OSError(errno.EIO, "the disk is broken")
        super().sync()


class SlowDisk(RealDisk):
    """A disk of slow files."""

    def create(self, name: str, size: int, head: bytes) -> File:  # type: ignore[override]
        made = super().create(name, size, head)
        slow = SlowFile(made._fd)
        made._fd = -1
        return slow


class Sent(Client):
    """A client that adds a job when it is run, and records whether the job was durable when the reply was sent."""

    def __init__(self, number: int, loop: TurnLoop, args: list[bytes]) -> None:
        super().__init__(number, loop.turn.engine.connect(b"%16d" % number), loop.turn.now)
        self.loop, self.args = loop, args
        self.sent: list[bool] = []

    def run(self, budget: int, now: int) -> int:
        if self.args:
            self.loop.turn.dispatcher.run_all(self, [self.args], 0, now)
            self.args = []
        return ALL_RUN

    def hold(self) -> None: ...

    def send(self, answers: bytes) -> None:
        self.confirm_sent()
        if answers:
            host = self.loop.host
            job = host.engine.jobs.find(host.ids.parse_long(answers[1:41]))
            assert job is not None and host.journal is not None
            self.sent.append(0 < job.position < host.journal.log.durable)

    def abort(self) -> None: ...


def a_loop(host: Host, clock_ns: Callable[[], int] = time.perf_counter_ns) -> TurnLoop:
    """The loop of a node whose clients can add a job."""
    disque = Disque(CommandContext(host.engine, host.ids, host.node.encode(), host.body_of, host.make_room_now))
    addjob = Command("addjob", -4, "w", WRITE, "", "", disque.addjob)
    loop = TurnLoop(host, asyncio.get_running_loop(), Dispatcher([addjob], clock_ns))
    connect_loop(loop, LoopHooks(loop))
    return loop


Script = Callable[[TurnLoop, Callable[[list[bytes]], Sent]], Awaitable[None]]


@pytest.fixture
def on_a_slow_disk(tmp_path: Path) -> Callable[[Script], None]:
    """Run a test in the loop of a node with a slow disk, until all clients have received a reply."""

    def run(script: Script) -> None:
        async def main() -> None:
            host = Host(0, NEVER, Store(SlowDisk(str(tmp_path))))
            loop = a_loop(host)
            loop.syncs.average_s = 1.0  # It therefore syncs in a thread.
            clients: list[Sent] = []

            def client(args: list[bytes]) -> Sent:
                clients.append(Sent(len(clients), loop, args))
                return clients[-1]

            await script(loop, client)
            until = time.monotonic() + PATIENCE_S
            while not all(each.sent for each in clients):
                assert time.monotonic() < until
                await asyncio.sleep(0.001)
            assert all(all(each.sent) for each in clients)
            loop.stop()
            with host.lock:
                host.close()

        SlowFile.gate.set()
        asyncio.run(main())

    return run


def test_a_sync_that_ends_within_a_turn_sends_no_answers_of_that_turn(
    on_a_slow_disk: Callable[[Script], None],
) -> None:
    async def script(loop: TurnLoop, client: Callable[[list[bytes]], Sent]) -> None:
        first, second = client([b"ADDJOB", b"q", b"a", b"0"]), client([b"ADDJOB", b"q", b"b", b"0"])
        SlowFile.gate.clear()
        loop.turn.run(first)
        while not loop.turn.is_syncing:
            await asyncio.sleep(0)
        SlowFile.gate.set()
        while not loop.loop._ready:  # type: ignore[attr-defined]
            time.sleep(0.001)
        # The end of the sync is scheduled in the loop. The turn that begins now ends after it.
        await asyncio.sleep(0)
        loop.turn.run(second)

    on_a_slow_disk(script)


def test_a_long_body_is_synced_in_a_thread_even_on_a_fast_disk(on_a_slow_disk: Callable[[Script], None]) -> None:
    async def script(loop: TurnLoop, client: Callable[[list[bytes]], Sent]) -> None:
        loop.syncs.average_s = 0.0
        SlowFile.gate.clear()
        loop.turn.run(client([b"ADDJOB", b"q", b"a" * 1_000_000, b"0"]))
        while not loop.turn.is_syncing:
            await asyncio.sleep(0)
        SlowFile.gate.set()

    on_a_slow_disk(script)


@pytest.mark.parametrize("in_thread", [True, False], ids=["in a thread", "in the loop"])
def test_a_failed_sync_ends_the_node_and_no_reply_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    async def main() -> None:
        host = Host(0, NEVER, Store(SlowDisk(str(tmp_path))))
        loop = a_loop(host)
        loop.syncs.average_s = 1.0 if in_thread else 0.0
        client = Sent(1, loop, [b"ADDJOB", b"q", b"a", b"0"])
        monkeypatch.setattr(SlowFile, "broken", True)
        loop.turn.run(client)
        with pytest.raises(JournalFailed):
            await asyncio.wait_for(loop.failed, PATIENCE_S)
        assert client.sent == []
        with host.lock:
            host.close()

    SlowFile.gate.set()
    asyncio.run(main())


@pytest.mark.parametrize("defect", [AssertionError, KeyError, MemoryError])
def test_an_interrupted_change_ends_the_node_and_its_turn_is_not_stored(
    tmp_path: Path, defect: type[Exception]
) -> None:
    def break_off(job: Job, tube: Tube, rule: int, now: int) -> None:
        raise defect

    async def main() -> None:
        host = Host(0, NEVER, Store(RealDisk(str(tmp_path))))
        loop = a_loop(host)
        before, broken = (Sent(number, loop, [b"ADDJOB", b"q", b"a", b"0"]) for number in range(2))
        loop.turn.run(before)
        host.engine.watch = break_off
        loop.turn.run(broken)
        with pytest.raises(Interrupted):
            await asyncio.wait_for(loop.failed, PATIENCE_S)
        assert before.sent == broken.sent == []
        with host.lock:
            host.close()

    asyncio.run(main())
    host = Host(0, NEVER, Store(RealDisk(str(tmp_path))))
    assert host.engine.jobs.count == 0
    host.close()


class Clock:
    """A clock in seconds that advances only by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def ns(self) -> int:
        return round(self.now * 1e9)


class Slices(SlicedCommand):
    """A long command whose slices take one second each."""

    def __init__(self, clock: Clock, slices: int) -> None:
        self.clock, self.left = clock, slices

    def step(self, caller: Caller, now: int) -> bool:
        self.clock.now += 1
        self.left -= 1
        return self.left == 0


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def turns(loop: TurnLoop, other: Client | None = None, count: int = 20) -> None:
    """Run turns. In each of them, `other` runs a command, if it is given."""
    for _ in range(count):
        if other is not None:
            loop.turn.run(other)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_a_long_command_continues_at_once_while_no_other_client_runs(clock: Clock) -> None:
    async def main() -> None:
        loop = a_loop(Host(0, NEVER), clock.ns)
        long = Slices(clock, 10)
        loop.turn.start_long(Sent(1, loop, []), long)
        loop.turn.begin()
        await turns(loop)
        assert long.left == 0

    asyncio.run(main())


def test_a_long_command_leaves_others_nineteen_times_the_time_that_it_takes(clock: Clock) -> None:
    async def main() -> None:
        loop = a_loop(Host(0, NEVER), clock.ns)
        long, other = Slices(clock, 10), Sent(2, loop, [])
        loop.turn.start_long(Sent(1, loop, []), long)
        loop.turn.run(other)  # This turn runs a slice, because there was none before.
        await turns(loop, other)
        assert long.left == 9
        clock.now += 18.9
        await turns(loop, other)
        assert long.left == 9
        clock.now += 0.1
        await turns(loop, other)
        assert long.left == 8
        loop.stop()

    asyncio.run(main())


class Waits(Sent):
    """A client that waits, and records the end of its wait."""

    def __init__(self, number: int, loop: TurnLoop) -> None:
        super().__init__(number, loop, [])
        self.ended = asyncio.Event()

    def end_wait(self, wait: Waiting, now: int, refusal: bytes = b"") -> None:
        self.ended.set()


def test_a_wait_ended_by_another_thread_is_answered_in_a_turn() -> None:
    async def main() -> None:
        host = Host(0, NEVER)
        loop = a_loop(host)
        client = Waits(1, loop)
        tube = host.engine.create_tube(b"t", policy.FIFO, host.now())
        host.engine.wait(client.connection, [tube], host.now(), tag=client)

        def put() -> None:
            with host.lock, host:
                host.engine.put(tube, Draft(b""), host.now())

        await asyncio.to_thread(put)
        await asyncio.wait_for(client.ended.wait(), PATIENCE_S)
        loop.stop()

    asyncio.run(main())


class Arrives(Sent):
    """A client that records when it is run, and may raise an error then."""

    def __init__(self, number: int, loop: TurnLoop, ran: list[int], defect: Exception | None = None) -> None:
        super().__init__(number, loop, [])
        self.ran_in_order, self.defect, self.aborted = ran, defect, False
        loop.turn.join(self)

    def run(self, budget: int, now: int) -> int:
        assert self.loop.host.lock.locked()
        self.ran_in_order.append(self.number)
        if self.defect is not None:
            raise self.defect
        return ALL_RUN

    def abort(self) -> None:
        self.aborted = True


def test_commands_of_a_round_run_once_at_its_end_in_order() -> None:
    async def main() -> None:
        loop = a_loop(Host(0, NEVER))
        ran: list[int] = []
        clients = [Arrives(number, loop, ran) for number in (1, 2)]
        for client in (*reversed(clients), *clients):
            loop.turn.arrived(client)
        assert ran == [] and not loop.host.lock.locked(), "sockets are read without the lock"
        await asyncio.sleep(0)
        assert ran == [2, 1]
        loop.turn.arrived(clients[0])
        await asyncio.sleep(0)
        assert ran == [2, 1, 1]
        loop.stop()

    asyncio.run(main())


def test_commands_of_a_disconnected_client_run_exactly_once() -> None:
    async def main() -> None:
        loop = a_loop(Host(0, NEVER))
        ran: list[int] = []
        client = Arrives(1, loop, ran)
        loop.turn.arrived(client)
        loop.turn.leave(client)
        assert ran == [1]
        await asyncio.sleep(0)
        assert ran == [1]
        loop.stop()

    asyncio.run(main())


def test_an_internal_error_closes_its_client_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        loop = a_loop(Host(0, NEVER))
        ran: list[int] = []
        clients = [Arrives(1, loop, ran), Arrives(2, loop, ran, ValueError("a defect")), Arrives(3, loop, ran)]
        for client in clients:
            loop.turn.arrived(client)
        await asyncio.sleep(0)
        assert ran == [1, 2, 3] and [client.aborted for client in clients] == [False, True, False]
        assert "a defect" in caplog.text and loop.turn.dispatcher.internal_errors == 1
        assert not loop.failed.done()
        loop.stop()

    asyncio.run(main())
