"""Long commands: their slices, the time that they leave to other clients, and commands that are suspended."""

from __future__ import annotations

import pytest

from penstock.node.caller import WRITE, Caller, SlicedCommand
from penstock.node.dispatch import Command, DispatchHooks
from penstock.node.turn import SOON, SuspendedCommand

from .fake_node import FakeClient, FakeNode, resp

SLICE_NS = 1_000_000_000


class RecordedErrors(DispatchHooks):
    """Hooks that record the internal errors of commands."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


class Slices(SlicedCommand):
    """A long command. Each slice takes a second and writes nothing; the last one replies."""

    def __init__(self, node: FakeNode, count: int, defect: Exception | None = None) -> None:
        self.node, self.left, self.defect = node, count, defect

    def step(self, caller: Caller, now: int) -> bool:
        self.node.ns += SLICE_NS
        self.left -= 1
        if self.left == 0 and self.defect is not None:
            raise self.defect
        if self.left == 0:
            caller.reply.ok()
        return self.left == 0


class Suspended(SuspendedCommand):
    """A command that is suspended at once, and replies when it is resumed."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.client: FakeClient | None = None
        self.is_over = self.is_hurried = self.is_cancelled = False

    def step(self, caller: Caller, now: int) -> bool:
        if not self.is_over:
            assert isinstance(caller, FakeClient)
            self.node.turn.park(caller, self)
            return False
        caller.reply.ok()
        return True

    def stop_waiting(self) -> None:
        self.is_hurried = True

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.tube()
    return node


def start(node: FakeNode, client: FakeClient, long: SlicedCommand) -> None:
    """Let a client run a long command, which starts in a turn of its own."""

    def run(caller: Caller, args: list[bytes], now: int) -> None:
        assert isinstance(caller, FakeClient)
        node.turn.start_long(caller, long)

    node.dispatcher.add(Command("long", -1, "", WRITE, "", "", run), b"long")
    client.feed("long")
    node.end()


def test_a_long_command_runs_one_slice_per_turn_and_the_client_waits_for_it(node: FakeNode) -> None:
    long = Slices(node, 3)
    start(node, node.main, long)
    assert long.left == 3 and node.main.is_blocked()
    node.main.feed("put", "t", "a")
    node.turn.send()
    for left in (2, 1):
        node.run()
        assert long.left == left and node.engine.jobs.count == 0
    node.run()
    assert long.left == 0 and node.engine.jobs.count == 1
    node.settle()
    ok, id = node.main.replies()
    assert ok == b"OK" and id.startswith(b"D-")


def test_a_long_command_continues_at_once_while_no_other_client_runs(node: FakeNode) -> None:
    start(node, node.main, Slices(node, 5))
    node.turn.send()
    node.run()  # The first slice runs in the turn after the client's own command.
    node.driver.wakes.clear()
    node.run()
    assert node.driver.wakes == [SOON]
    node.settle()
    assert node.main.replies() == [b"OK"]


def test_a_long_command_leaves_other_clients_nineteen_times_the_time_of_a_slice(node: FakeNode) -> None:
    long, other = Slices(node, 10), node.connect()
    start(node, node.main, long)
    other.feed("qlen", "t")
    node.run()
    assert long.left == 9
    node.ns += 19 * SLICE_NS - 1
    other.feed("qlen", "t")
    node.run()
    assert long.left == 9
    node.ns += 1
    other.feed("qlen", "t")
    node.run()
    assert long.left == 8


def test_a_resting_long_command_continues_by_a_timer(node: FakeNode) -> None:
    long, other = Slices(node, 10), node.connect()
    start(node, node.main, long)
    for _ in range(2):
        other.feed("qlen", "t")
        node.run()
    assert long.left == 9
    node.driver.wakes.clear()
    other.feed("qlen", "t")
    node.run()
    assert node.driver.wakes[-1] == node.clock.ms + 19_000 + 1


def test_two_long_commands_take_turns(node: FakeNode) -> None:
    first, second = Slices(node, 2), Slices(node, 2)
    node.turn.begin()
    node.turn.start_long(node.main, first)
    node.turn.start_long(node.connect(), second)
    seen = []
    for _ in range(4):
        node.ns += 100 * SLICE_NS
        node.turn.plan()
        node.run()
        seen.append((first.left, second.left))
    assert seen[-1] == (0, 0) and max(abs(a - b) for a, b in seen) <= 1


def test_a_long_command_of_a_client_that_left_is_dropped(node: FakeNode) -> None:
    long, client = Slices(node, 10), node.connect()
    start(node, client, long)
    client.leave()
    node.settle()
    assert long.left == 10 and client.sent == []


def test_a_long_command_waits_until_its_client_reads(node: FakeNode) -> None:
    long = Slices(node, 3)
    start(node, node.main, long)
    node.main.is_unread = True
    for _ in range(3):
        node.turn.plan()
        node.run()
    assert long.left == 3
    node.main.is_unread = False
    node.turn.reads_again(node.main)
    node.run()
    assert long.left == 2
    node.ns += 100 * SLICE_NS  # Time for other clients.
    node.turn.plan()
    node.settle()
    assert long.left == 0 and node.main.replies() == [b"OK"]


def test_a_client_that_leaves_while_it_does_not_read_drops_its_long_command(node: FakeNode) -> None:
    long, client = Slices(node, 3), node.connect()
    start(node, client, long)
    client.is_unread = True
    node.turn.plan()
    node.run()
    client.leave()
    node.turn.reads_again(node.main)
    node.settle()
    assert long.left == 3


def test_the_error_of_a_slice_is_the_reply_and_closes_the_client(node: FakeNode) -> None:
    node.dispatcher.hooks = hooks = RecordedErrors()
    start(node, node.main, Slices(node, 2, ValueError("a defect")))
    node.settle()
    assert node.main.replies()[0].startswith("ERR internal error") and node.main.is_shut
    assert [str(error) for error in hooks.errors] == ["a defect"]


# ---- Suspended commands ----------------------------------------------------------------------------------------------


def suspended(node: FakeNode, client: FakeClient) -> Suspended:
    """Return a suspended command of a client."""
    parked = Suspended(node)
    start(node, client, parked)
    node.settle()
    assert client.is_blocked() and client.sent == []
    return parked


def test_a_suspended_command_continues_when_it_is_resumed(node: FakeNode) -> None:
    parked = suspended(node, node.main)
    node.main.feed("put", "t", "a")
    node.settle()
    assert node.engine.jobs.count == 0, "the next command of the client waits"
    parked.is_over = True
    node.turn.resume(node.main, parked)
    node.settle()
    ok, id = node.main.replies()
    assert ok == b"OK" and id.startswith(b"D-")


def test_a_suspended_command_does_not_keep_turns_busy(node: FakeNode) -> None:
    suspended(node, node.main)
    node.driver.wakes.clear()
    node.connect().feed("qlen", "t")
    node.run()
    assert node.driver.wakes == [SOON]


def test_a_suspended_command_is_resumed_once(node: FakeNode) -> None:
    parked = suspended(node, node.main)
    parked.is_over = True
    node.turn.resume(node.main, parked)
    node.turn.resume(node.main, parked)
    node.settle()
    assert node.main.replies() == [b"OK"]


def test_a_suspended_command_is_cancelled_when_its_client_leaves(node: FakeNode) -> None:
    client = node.connect()
    parked = suspended(node, client)
    client.leave()
    assert parked.is_cancelled
    parked.is_over = True
    node.turn.resume(client, parked)
    node.settle()
    assert client.sent == []


@pytest.mark.parametrize("how", ["end_input", "stopped_sending", "end_waits"])
def test_a_suspended_command_stops_waiting_when_its_client_sends_no_more(node: FakeNode, how: str) -> None:
    parked = suspended(node, node.main)
    getattr(node.turn, how)(node.main)
    assert parked.is_hurried and not parked.is_cancelled
    parked.is_over = True
    node.turn.resume(node.main, parked)
    node.settle()
    assert node.main.replies() == [b"OK"]
    assert node.main.is_shut == (how == "end_input")


def test_a_real_command_in_slices_replies_once(node: FakeNode) -> None:
    node.turn.received(node.main, b"".join(resp("put", "t", number) for number in range(2_500)))
    node.settle()
    assert len(node.main.replies()) == 2_500
    other = node.connect()
    node.main.feed("tube", "truncate", "t")
    node.end()
    assert 0 < node.engine.jobs.count < 2_500
    other.feed("qlen", "t")
    node.settle()
    assert node.engine.jobs.count == 0
    assert node.main.replies() == [2_500] and len(other.replies()) == 1


def test_many_commands_with_replies_larger_than_the_buffer_run_in_several_turns(node: FakeNode) -> None:
    body = bytes(600_000)
    id = node.ask("put", "t", body)
    node.turn.received(node.main, 4 * resp("job", "peek", id))
    node.end()
    assert len(node.main.reply.take()) < 3 * len(body)
