"""The turn: replies follow durable changes, each client's order is kept, and unsent deliveries are undone."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.core.errors import JournalFailed
from penstock.core.limits import TURN_BYTES_MAX
from penstock.journal.log import EVERYSEC
from penstock.node.client import UNREAD_BYTES_MAX
from penstock.node.turn import COMMANDS_PER_TURN, SOON
from penstock.testing.disk import MemoryFile

from .fake_node import FakeClient, FakeNode, resp


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.tube()
    return node


# ---- Replies and syncs -----------------------------------------------------------------------------------------------


def test_a_reply_is_sent_after_the_sync_of_its_change(node: FakeNode) -> None:
    node.main.feed("put", "t", "a")
    node.run()
    assert node.turn.is_syncing and node.main.sent == []
    node.sync()
    assert len(node.main.replies()) == 1 and not node.turn.is_syncing


def test_a_turn_without_changes_replies_at_once(node: FakeNode) -> None:
    node.main.feed("job", "list", "t", "ready")
    node.run()
    assert node.main.replies() == [[]] and node.driver.syncing == []


def test_a_read_waits_for_the_sync_of_the_changes_that_it_has_seen(node: FakeNode) -> None:
    reader = node.connect()
    node.main.feed("put", "t", "a")
    reader.feed("job", "list", "t", "ready")
    node.run()
    assert node.main.sent == reader.sent == []
    node.sync()
    assert len(node.main.replies()) == 1
    (jobs,) = reader.replies()
    assert [job[b"body"] for job in jobs] == [b"a"]


def test_a_refusal_waits_for_the_sync_as_well(node: FakeNode) -> None:
    other = node.connect()
    node.main.feed("put", "t", "a")
    other.feed("take")
    node.run()
    assert other.sent == []
    node.sync()
    assert other.replies() == ["ERR wrong number of arguments for 'take' command"]


def test_all_clients_of_a_turn_share_one_sync(node: FakeNode) -> None:
    clients = [node.connect() for _ in range(20)]
    for client in clients:
        client.feed("put", "t", "a")
    node.run()
    assert len(node.driver.syncing) == 1
    node.sync()
    assert all(len(client.replies()) == 1 for client in clients) and node.driver.syncing == []


@pytest.mark.parametrize("fsync", [EVERYSEC, "never"])
def test_other_fsync_policies_reply_without_a_sync(fsync: str) -> None:
    node = FakeNode(fsync)
    node.tube()
    node.main.feed("put", "t", "a")
    node.run()
    assert len(node.main.replies()) == 1 and node.driver.syncing == []


def test_a_node_in_memory_replies_without_a_sync() -> None:
    node = FakeNode(log=False)
    node.main.feed("put", "t", "a")
    node.run()
    assert len(node.main.replies()) == 1 and node.driver.syncing == []


def test_the_output_of_a_later_turn_is_not_sent_with_an_earlier_sync(node: FakeNode) -> None:
    later = node.connect()
    node.main.feed("put", "t", "a")
    node.run()
    later.feed("put", "t", "b")
    node.run()
    assert node.turn.is_syncing and node.main.sent == later.sent == []
    node.sync()
    assert len(node.main.replies()) == 1 and later.sent == []
    assert node.turn.is_syncing, "the later turn was committed during the sync, so the next sync starts at once"
    node.sync()
    assert len(later.replies()) == 1


def test_a_later_reply_of_the_same_client_is_not_sent_with_an_earlier_sync(node: FakeNode) -> None:
    node.main.feed("put", "t", "a")
    node.run()
    node.main.feed("put", "t", "b")
    node.run()
    node.sync()
    assert len(node.main.replies()) == 1
    node.sync()
    assert len(node.main.replies()) == 1


def test_a_sync_that_ends_within_a_turn_sends_only_the_output_that_waited_for_it(node: FakeNode) -> None:
    later = node.connect()
    node.main.feed("put", "t", "a")
    node.run()
    later.feed("put", "t", "b")
    node.turn.run(later)
    assert node.turn.is_open
    node.sync()
    assert len(node.main.replies()) == 1 and later.sent == []
    assert node.driver.syncing == [], "the change of the open turn is not in the log yet"
    node.run()
    assert later.sent == []
    node.sync()
    assert len(later.replies()) == 1


def test_a_read_during_a_sync_is_sent_after_it(node: FakeNode) -> None:
    reader = node.connect()
    node.main.feed("put", "t", "a")
    node.run()
    reader.feed("job", "list", "t", "ready")
    node.run()
    assert reader.sent == []
    node.sync()
    assert len(reader.replies()) == 1 and node.driver.syncing == []


def test_frames_that_are_committed_early_stay_unsent_until_the_turn_ends(node: FakeNode) -> None:
    assert node.log is not None
    before = node.log.written
    body = bytes(TURN_BYTES_MAX // 4)
    for _ in range(5):
        node.main.node.turn.received(node.main, resp("put", "t", body))
        node.turn.run(node.main)
    assert node.log.written > before, "the changes filled a frame"
    assert node.turn.is_open and node.main.sent == []
    node.settle()
    assert len(node.main.replies()) == 5


def test_a_failed_commit_raises_from_the_end_of_the_turn_and_nothing_is_sent(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: MemoryFile, offset: int, data: bytes) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    reader = node.connect()
    node.main.feed("put", "t", "a")
    reader.feed("job", "list", "t", "ready")
    monkeypatch.setattr(MemoryFile, "write", fail)
    assert node.turn.open_if_planned()
    with pytest.raises(JournalFailed):
        node.turn.end()
    assert not node.turn.is_open
    assert node.main.sent == reader.sent == []


def test_a_failed_early_commit_raises_from_the_end_of_the_turn(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: MemoryFile, offset: int, data: bytes) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    node.main.feed("put", "t", bytes(TURN_BYTES_MAX))
    monkeypatch.setattr(MemoryFile, "write", fail)
    node.turn.run(node.main)
    with pytest.raises(JournalFailed):
        node.turn.end()
    assert node.main.sent == []


def test_bytes_are_counted(node: FakeNode) -> None:
    node.main.feed("job", "list", "t", "ready")
    node.run()
    assert node.turn.bytes_in == len(resp("job", "list", "t", "ready"))
    assert node.turn.bytes_out == len(b"*0\r\n")


# ---- The driver ------------------------------------------------------------------------------------------------------


def test_input_takes_no_lock_until_the_turn_opens(node: FakeNode) -> None:
    node.main.feed("put", "t", "a")
    node.connect().feed("put", "t", "b")
    assert node.driver.begun == 0 and node.driver.wakes == [SOON] and not node.turn.is_open
    node.run()
    assert node.driver.begun == 1


def test_no_turn_is_opened_without_work(node: FakeNode) -> None:
    assert not node.turn.open_if_planned()
    assert node.driver.begun == 0


def test_the_next_turn_is_planned_for_the_earliest_deadline(node: FakeNode) -> None:
    node.put()
    node.main.feed("take", "t", "TTR", "5s")
    node.run()
    assert node.driver.wakes == [SOON, node.clock.ms + 5_000]


def test_deferred_work_runs_before_the_commands_of_the_turn(node: FakeNode) -> None:
    seen: list[int] = []
    node.main.feed("put", "t", "a")
    node.turn.defer(lambda: seen.append(len(node.engine.jobs.scan(0, 10))))
    node.run()
    assert seen == [0]


def test_work_that_deferred_work_adds_runs_in_the_next_turn(node: FakeNode) -> None:
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        node.turn.defer(lambda: seen.append("second"))

    node.turn.defer(first)
    node.run()
    assert seen == ["first"] and node.driver.wakes == [SOON, SOON]
    node.run()
    assert seen == ["first", "second"]


def test_a_stopped_turn_plans_no_other(node: FakeNode) -> None:
    node.main.feed("take", "t", "TIMEOUT", "5s")
    node.turn.stop()
    node.run()
    assert node.driver.wakes == [SOON]


# ---- The order of commands -------------------------------------------------------------------------------------------


def test_clients_run_in_the_order_in_which_their_bytes_arrived(node: FakeNode) -> None:
    clients = [node.connect() for _ in range(4)]
    for number in (2, 0, 3, 1, 2, 0):
        clients[number].feed("put", "t", str(number))
    node.settle()
    bodies = [job[b"body"] for job in node.ask("job", "list", "t", "ready")]
    assert bodies == [b"2", b"2", b"0", b"0", b"3", b"1"]


def test_a_client_with_many_commands_is_interrupted_and_continues_in_the_next_turn_in_order(node: FakeNode) -> None:
    many, other = node.connect(), node.connect()
    count = 2 * COMMANDS_PER_TURN + 10
    node.turn.received(many, b"".join(resp("put", "t", number) for number in range(count)))
    node.end()
    assert node.engine.jobs.count == COMMANDS_PER_TURN
    other.feed("put", "t", "other")
    node.settle()
    assert len(many.replies()) == count and len(other.replies()) == 1
    bodies = [job[b"body"] for job in node.ask("job", "list", "t", "ready")]
    mine = [int(body) for body in bodies if body != b"other"]
    assert mine == list(range(count))
    assert bodies.index(b"other") == 2 * COMMANDS_PER_TURN, "it runs behind the part of the turn in which it arrived"


def test_an_interrupted_client_needs_no_new_bytes_to_continue(node: FakeNode) -> None:
    node.turn.received(node.main, b"".join(resp("put", "t", number) for number in range(COMMANDS_PER_TURN + 1)))
    node.end()
    node.driver.wakes.clear()
    node.turn.send()
    assert node.driver.wakes == [SOON]
    node.run()
    assert node.engine.jobs.count == COMMANDS_PER_TURN + 1


def test_an_interrupted_client_that_leaves_is_not_run_again(node: FakeNode) -> None:
    client = node.connect()
    node.turn.received(client, b"".join(resp("put", "t", number) for number in range(COMMANDS_PER_TURN + 1)))
    node.end()
    client.leave()
    node.settle()
    assert node.engine.jobs.count == COMMANDS_PER_TURN


def test_bytes_of_every_turn_are_run(node: FakeNode) -> None:
    for number in range(3):
        node.main.feed("put", "t", number)
        node.run()
        assert node.engine.jobs.count == number + 1
    node.settle()
    assert len(node.main.replies()) == 3


def test_bytes_that_arrive_in_pieces_are_run_when_they_are_complete(node: FakeNode) -> None:
    for byte in resp("put", "t", "a"):
        node.turn.received(node.main, bytes([byte]))
        node.run()
    assert node.driver.syncing
    node.sync()
    assert len(node.main.replies()) == 1


def test_a_client_that_sends_more_than_it_may_is_held_and_then_read_again(node: FakeNode) -> None:
    data = b"".join(resp("put", "t", bytes(1_000)) for _ in range(UNREAD_BYTES_MAX // 1_000 + 10))
    node.turn.received(node.main, data)
    assert node.main.is_held
    node.settle()
    assert not node.main.is_held
    assert len(node.main.replies()) == UNREAD_BYTES_MAX // 1_000 + 10


def test_a_client_that_does_not_read_is_not_run_and_continues_when_it_reads_again(node: FakeNode) -> None:
    node.main.is_unread = True
    node.main.feed("put", "t", "a")
    node.settle()
    assert node.engine.jobs.count == 0 and node.main.is_held
    node.main.is_unread = False
    node.turn.reads_again(node.main)
    node.settle()
    assert node.engine.jobs.count == 1 and not node.main.is_held
    assert len(node.main.replies()) == 1


def test_malformed_bytes_are_refused_behind_the_replies_before_them(node: FakeNode) -> None:
    node.turn.received(node.main, resp("put", "t", "a") + b"*1\r\n!oops\r\n" + resp("put", "t", "b"))
    node.settle()
    id, refusal = node.main.replies()
    assert id.startswith(b"D-") and refusal.startswith("ERR Protocol error")
    assert node.main.is_shut and node.engine.jobs.count == 1


def test_quit_closes_the_connection_after_its_reply(node: FakeNode) -> None:
    node.turn.received(node.main, resp("put", "t", "a") + resp("quit") + resp("put", "t", "b"))
    node.run()
    assert not node.main.is_shut
    node.sync()
    assert len(node.main.replies()) == 2 and node.main.is_shut and node.engine.jobs.count == 1


# ---- Pauses ----------------------------------------------------------------------------------------------------------


def test_no_command_runs_during_a_pause_and_all_run_after_it(node: FakeNode) -> None:
    clients = [node.connect() for _ in range(2)]
    node.turn.pause_clients(node.clock.ms + 1_000)
    for client in reversed(clients):
        client.feed("put", "t", client.number)
    node.settle()
    assert node.engine.jobs.count == 0
    assert node.driver.wakes[-1] == node.clock.ms + 1_000
    node.pass_ms(999)
    assert node.engine.jobs.count == 0
    node.pass_ms(1)
    bodies = [job[b"body"] for job in node.ask("job", "list", "t", "ready")]
    assert bodies == [b"%d" % client.number for client in reversed(clients)]


def test_a_client_that_leaves_during_a_pause_is_not_run_afterwards(node: FakeNode) -> None:
    client = node.connect()
    node.turn.pause_clients(node.clock.ms + 1_000)
    client.feed("put", "t", "a")
    node.settle()
    client.leave()
    node.settle()
    node.pass_ms(1_000)
    assert node.engine.jobs.count == 0


def test_a_pause_is_replaced_by_a_shorter_one(node: FakeNode) -> None:
    node.turn.pause_clients(node.clock.ms + 1_000)
    node.turn.pause_clients(0)
    assert node.ask("put", "t", "a")


# ---- Deliveries that were not sent -----------------------------------------------------------------------------------


def is_ready_and_unseen(node: FakeNode) -> bool:
    """Return whether the only job is ready and was never delivered."""
    (job,) = node.engine.jobs.scan(0, 10)
    return job.state == s.READY and job.deliveries == 0 and job.nacks == 0


def test_a_delivery_whose_reply_waits_for_the_sync_is_undone_when_the_client_leaves(node: FakeNode) -> None:
    node.put()
    consumer = node.connect()
    consumer.feed("take", "t")
    node.run()
    assert node.turn.is_syncing
    consumer.leave()
    assert is_ready_and_unseen(node)
    node.settle()
    assert consumer.sent == [] and is_ready_and_unseen(node)


def test_a_delivery_whose_reply_is_in_the_buffer_is_undone_when_the_client_leaves(node: FakeNode) -> None:
    node.put()
    consumer = node.connect()
    consumer.feed("take", "t")
    node.turn.run(consumer)
    consumer.leave()
    assert is_ready_and_unseen(node)
    node.settle()
    assert consumer.sent == []


def test_a_delivery_of_a_later_turn_than_the_sync_is_undone_when_the_client_leaves(node: FakeNode) -> None:
    node.put()
    consumer = node.connect()
    node.main.feed("job", "touch", "t#9")
    node.main.feed("tube", "create", "other")
    node.run()
    consumer.feed("take", "t")
    node.run()
    consumer.leave()
    assert is_ready_and_unseen(node)
    node.settle()
    assert consumer.sent == []


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_wait_that_was_served_in_this_turn_is_undone_when_the_client_leaves(node: FakeNode, protocol: int) -> None:
    consumer = waiting(node, protocol)
    node.main.feed("put", "t", "a")
    node.turn.run(node.main)
    (job,) = node.engine.jobs.scan(0, 10)
    assert job.state == s.TAKEN
    consumer.leave()
    assert is_ready_and_unseen(node)
    node.settle()
    assert consumer.sent == [] and is_ready_and_unseen(node)


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_wait_that_was_served_goes_to_the_next_consumer_when_the_client_leaves(node: FakeNode, protocol: int) -> None:
    consumer, other = waiting(node, protocol), waiting(node, m.RESP_3)
    node.main.feed("put", "t", "a")
    node.turn.run(node.main)
    consumer.leave()
    node.settle()
    ((job,),) = other.replies()
    assert job[b"body"] == b"a" and job[b"deliveries"] == 1


def waiting(node: FakeNode, protocol: int) -> FakeClient:
    """Return a client that waits for a job."""
    consumer = node.connect(protocol)
    if protocol == m.IPROTO:
        consumer.call("queue.tube.t:take", 60)
    else:
        consumer.feed("take", "t", "TIMEOUT", "60s")
    node.settle()
    assert consumer.is_waiting
    return consumer


def test_a_delivery_that_was_sent_is_not_undone_when_the_client_leaves(node: FakeNode) -> None:
    node.engine.session_grace_ms = 10_000
    node.put()
    consumer = node.connect()
    assert node.ask("take", "t", client=consumer)
    consumer.leave()
    node.settle()
    (job,) = node.engine.jobs.scan(0, 10)
    assert job.state == s.TAKEN and job.deliveries == 1, "the session keeps it during its grace time"
    node.pass_ms(10_000)
    assert job.state == s.READY and job.deliveries == 1


def test_only_the_unsent_of_several_deliveries_are_undone(node: FakeNode) -> None:
    node.engine.session_grace_ms = 10_000
    first, second = node.put(b"1"), node.put(b"2")
    consumer = node.connect()
    assert node.ask("take", "t", client=consumer)
    consumer.feed("take", "t")
    node.run()
    consumer.leave()
    assert (first.state, second.state) == (s.TAKEN, s.READY)
    assert (first.deliveries, second.deliveries) == (1, 0)


def test_of_two_unsent_deliveries_the_one_that_the_sync_sent_stays(node: FakeNode) -> None:
    node.engine.session_grace_ms = 10_000
    first, second = node.put(b"1"), node.put(b"2")
    consumer = node.connect()
    consumer.feed("take", "t")
    node.run()
    consumer.feed("take", "t")
    node.run()
    node.sync()
    assert len(consumer.replies()) == 1
    consumer.leave()
    assert (first.state, second.state) == (s.TAKEN, s.READY)


def test_a_delivery_to_a_connection_that_is_already_closed_is_undone(node: FakeNode) -> None:
    node.put()
    consumer = node.connect()
    consumer.is_dead = True
    consumer.feed("take", "t")
    node.settle()
    assert consumer.sent == []
    consumer.leave()
    assert is_ready_and_unseen(node)


def test_a_job_that_was_delivered_again_in_the_meantime_stays_with_its_new_consumer(node: FakeNode) -> None:
    job = node.put()
    consumer = node.connect()
    consumer.is_dead = True
    consumer.feed("take", "t", "TTR", "1s")
    node.settle()
    node.pass_ms(1_000)
    assert node.ask("take", "t")
    consumer.leave()
    assert job.state == s.TAKEN and job.deliveries == 2


def test_a_lost_client_whose_wait_ends_in_the_same_turn_gets_no_job(node: FakeNode) -> None:
    node.put()
    consumer = node.connect()
    consumer.feed("take", "t")
    node.turn.run(consumer)
    consumer.leave()
    assert node.ask("take", "t")


# ---- Clients that leave ----------------------------------------------------------------------------------------------


def test_the_last_commands_of_a_client_run_when_it_leaves(node: FakeNode) -> None:
    client = node.connect()
    client.feed("put", "t", "a")
    client.leave()
    node.settle()
    assert node.engine.jobs.count == 1 and client.sent == []


def test_the_session_of_a_client_ends_when_it_leaves(node: FakeNode) -> None:
    job = node.put()
    consumer = node.connect()
    assert node.ask("take", "t", client=consumer)
    token = consumer.connection.session.token
    consumer.leave()
    node.settle()
    assert token not in node.engine.sessions and job.state == s.READY


def test_the_waits_of_a_client_end_when_it_leaves(node: FakeNode) -> None:
    waiting(node, m.RESP_3).leave()
    node.put()
    assert node.ask("take", "t")


def test_a_client_leaves_once(node: FakeNode) -> None:
    client = node.connect()
    client.leave()
    node.turn.leave(client)
    node.settle()
    assert client.number not in node.turn.clients


def test_a_client_that_leaves_after_the_stop_changes_nothing(node: FakeNode) -> None:
    job = node.put()
    consumer = node.connect()
    assert node.ask("take", "t", client=consumer)
    node.turn.stop()
    consumer.leave()
    assert job.state == s.TAKEN and not node.turn.is_open


@pytest.mark.parametrize("protocol", [m.RESP_3, m.IPROTO], ids=["RESP", "IPROTO"])
def test_a_client_that_sends_no_more_gets_the_replies_of_its_waits_and_is_closed(node: FakeNode, protocol: int) -> None:
    consumer = waiting(node, protocol)
    node.turn.end_input(consumer)
    node.settle()
    assert (consumer.replies() if protocol == m.RESP_3 else list(consumer.results().values())) == [[]]
    assert consumer.is_shut and not consumer.is_waiting


def test_the_commands_behind_a_wait_run_when_the_client_sends_no_more(node: FakeNode) -> None:
    consumer = node.connect()
    node.turn.received(consumer, 3 * resp("take", "t", "TIMEOUT", "60s") + resp("put", "t", "a"))
    node.settle()
    assert consumer.replies() == []
    node.turn.end_input(consumer)
    node.settle()
    assert consumer.replies()[:3] == [[], [], []] and node.engine.jobs.count == 1
    assert consumer.is_shut


def test_has_left_ends_waits_without_closing_the_connection(node: FakeNode) -> None:
    consumer = waiting(node, m.RESP_3)
    consumer.feed("put", "t", "a")
    node.settle()
    assert node.engine.jobs.count == 0
    node.turn.stopped_sending(consumer)
    node.settle()
    assert node.engine.jobs.count == 1 and not consumer.is_shut


def test_end_waits_refuses_the_waiting_command_and_runs_the_next(node: FakeNode) -> None:
    consumer = waiting(node, m.RESP_3)
    consumer.feed("put", "t", "a")
    node.turn.end_waits(consumer, b"UNBLOCKED client unblocked")
    node.settle()
    refusal, id = consumer.replies()
    assert refusal == "UNBLOCKED client unblocked" and id.startswith(b"D-")


def test_end_waits_without_a_wait_does_nothing(node: FakeNode) -> None:
    node.turn.end_waits(node.main)
    assert not node.turn.is_open


def test_end_wait_ends_one_of_several_waits(node: FakeNode) -> None:
    consumer = node.connect(m.IPROTO)
    consumer.call("queue.tube.t:take", 60, sync=1)
    consumer.call("queue.tube.t:take", 60, sync=2)
    node.settle()
    first = next(iter(consumer.connection.waits.values()))
    node.turn.end_wait(first)
    node.settle()
    assert consumer.results() == {1: []} and len(consumer.connection.waits) == 1
    node.turn.end_wait(first)
    node.settle()
    assert consumer.results() == {}


def test_a_timed_out_wait_is_answered_by_the_turn_of_its_deadline(node: FakeNode) -> None:
    consumer = node.connect()
    consumer.feed("take", "t", "TIMEOUT", "1s")
    node.run()
    assert node.driver.wakes[-1] == node.clock.ms + 1_000
    node.pass_ms(999)
    assert consumer.replies() == []
    node.pass_ms(1)
    assert consumer.replies() == [[]]


def test_commands_behind_a_wait_run_in_the_turn_that_serves_it(node: FakeNode) -> None:
    consumer = waiting(node, m.RESP_3)
    consumer.feed("job", "list", "t", "taken")
    node.main.feed("put", "t", "a")
    node.run()
    node.sync()
    (taken, listed) = consumer.replies()
    assert taken[0][b"id"] == listed[0][b"id"]


@pytest.mark.parametrize("step", [lambda node: node.run(), lambda node: node.settle()], ids=["one turn", "all"])
def test_a_closed_client_is_sent_nothing(node: FakeNode, step: Callable[[FakeNode], None]) -> None:
    client = node.connect()
    client.feed("put", "t", "a")
    step(node)
    client.take_sent()
    client.abort()
    client.feed("put", "t", "b")
    node.settle()
    assert client.sent == []
