"""Queues: length, statistics, peeking, pausing, and waiting for jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from ..serving import Refusal, Wire, bulks, command, decoded, wait_for

NOT_A_NUMBER = b"-ERR value is not an integer or out of range\r\n"
PAUSED = b"-PAUSED Queue paused in input, try later\r\n"


# ---- QLEN, QPEEK, QSTAT ----------------------------------------------------------------------------------------------


def test_qlen_counts_the_jobs_that_can_be_taken(wire: Wire, queue: bytes) -> None:
    assert wire.ask("QLEN", queue) == b":0\r\n"
    ids = [wire.add(queue) for _ in range(3)]
    wire.add(queue, "", "DELAY", 60)
    assert wire.ask("QLEN", queue) == b":3\r\n"
    wire.get(queue)
    assert wire.ask("QLEN", queue) == b":2\r\n"
    wire.call("DEQUEUE", ids[1])
    assert wire.ask("QLEN", queue) == b":1\r\n"
    wire.call("NACK", *ids)
    assert wire.ask("QLEN", queue) == b":3\r\n"


def test_qpeek_shows_the_oldest_or_with_a_minus_the_newest_and_takes_nothing(wire: Wire, queue: bytes) -> None:
    ids = [wire.add(queue, str(number)) for number in range(4)]
    shown = [bulks(queue, id, str(number)) for number, id in enumerate(ids)]
    assert wire.ask("QPEEK", queue, 2) == b"*2\r\n" + shown[0] + shown[1]
    assert wire.ask("QPEEK", queue, -2) == b"*2\r\n" + shown[3] + shown[2]
    assert wire.ask("QPEEK", queue, 9) == b"*4\r\n" + b"".join(shown)
    assert wire.ask("QPEEK", queue, -9) == b"*4\r\n" + b"".join(reversed(shown))
    assert wire.ask("QPEEK", queue, 0) == b"*0\r\n"
    assert wire.call("QLEN", queue) == 4
    assert wire.show(ids[0])[b"state"] == b"queued"


@pytest.mark.parametrize("count", [1, -1, 0])
def test_qpeek_of_no_queue_or_one_without_ready_jobs_is_empty(wire: Wire, queue: bytes, count: int) -> None:
    assert wire.ask("QPEEK", queue, count) == b"*0\r\n"
    wire.add(queue, "", "DELAY", 60)
    assert wire.ask("QPEEK", queue, count) == b"*0\r\n"


@pytest.mark.parametrize("count", ["x", "", " 1", "1.0", "9223372036854775808", "-9223372036854775809"])
def test_qpeek_wants_a_number(wire: Wire, queue: bytes, count: str) -> None:
    wire.add(queue)
    assert wire.ask("QPEEK", queue, count) == NOT_A_NUMBER


def test_qstat_of_no_queue_is_null(wire: Wire, queue: bytes) -> None:
    assert wire.ask("QSTAT", queue) == b"*-1\r\n"


def test_qstat_returns_ten_fields_in_disques_order_and_types(wire: Wire, queue: bytes) -> None:
    for _ in range(3):
        wire.add(queue)
    [id] = wire.get(queue)
    wire.call("NACK", id)
    wire.get(queue, "NOHANG", "COUNT", 2)
    shape = (
        command("name", queue, "len").replace(b"*3", b"*20", 1)
        + b":1\r\n$3\r\nage\r\n:#\r\n$4\r\nidle\r\n:#\r\n$7\r\nblocked\r\n:0\r\n$11\r\nimport-from\r\n*0\r\n"
        + b"$11\r\nimport-rate\r\n:0\r\n$7\r\njobs-in\r\n:4\r\n$8\r\njobs-out\r\n:3\r\n$5\r\npause\r\n$4\r\nnone\r\n"
    )
    answer = wire.ask("QSTAT", queue)
    assert re.fullmatch(re.escape(shape).replace(rb"\#", rb"\d+"), answer), answer


def test_qstat_shows_a_queue_with_only_delayed_jobs(wire: Wire, queue: bytes) -> None:
    wire.add(queue, "", "DELAY", 60)
    assert wire.stat(queue)[b"len"] == 0


def test_jobs_in_and_out_count_every_move(wire: Wire, queue: bytes) -> None:
    id = wire.add(queue, "", "DELAY", 60)
    assert (wire.stat(queue)[b"jobs-in"], wire.stat(queue)[b"jobs-out"]) == (0, 0)
    wire.call("ENQUEUE", id)
    assert (wire.stat(queue)[b"jobs-in"], wire.stat(queue)[b"jobs-out"]) == (1, 0)
    wire.call("DEQUEUE", id)
    assert (wire.stat(queue)[b"jobs-in"], wire.stat(queue)[b"jobs-out"]) == (1, 1)
    wire.call("ENQUEUE", id)
    wire.get(queue)
    wire.call("ACKJOB", id)
    assert (wire.stat(queue)[b"jobs-in"], wire.stat(queue)[b"jobs-out"]) == (2, 2)
    wire.call("ACKJOB", wire.add(queue))
    wire.call("DELJOB", wire.add(queue))
    wire.call("WORKING", wire.add(queue))
    wire.add(queue)
    # The difference of both counters is the number of jobs left, independent of their fates.
    told = wire.stat(queue)
    assert (told[b"len"], told[b"jobs-in"], told[b"jobs-out"]) == (1, 6, 5)


# ---- PAUSE -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("in", "in"),
        ("out", "out"),
        ("all", "all"),
        ("none", "none"),
        ("in out", "all"),
        ("out in", "all"),
        ("none in", "in"),
        ("in none", "none"),
        ("all none out", "out"),
        ("in state", "in"),
        ("state in", "in"),
        ("in bcast", "in"),
        ("bcast none", "none"),
        ("OUT Bcast", "out"),
    ],
)
@pytest.mark.parametrize("before", [[], ["in"], ["all"]], ids=["open", "in", "all"])
def test_pause_returns_the_new_state_of_the_queue(
    wire: Wire, queue: bytes, before: list[str], words: str, state: str
) -> None:
    if before:
        wire.call("PAUSE", queue, *before)
    assert wire.ask("PAUSE", queue, *words.split()) == f"+{state}\r\n".encode()
    assert wire.ask("PAUSE", queue, "state") == f"+{state}\r\n".encode()
    if before or state != "none":
        assert wire.stat(queue)[b"pause"] == state.encode()


@pytest.mark.parametrize("words", ["state", "bcast", "state bcast"])
def test_pause_without_a_direction_changes_nothing(wire: Wire, queue: bytes, words: str) -> None:
    assert wire.ask("PAUSE", queue, *words.split()) == b"+none\r\n"
    assert wire.ask("QSTAT", queue) == b"*-1\r\n"
    wire.call("PAUSE", queue, "out")
    assert wire.ask("PAUSE", queue, *words.split()) == b"+out\r\n"


@pytest.mark.parametrize("words", ["nosuch", "in nosuch", "nosuch in", "''"])
def test_pause_with_an_unknown_word_changes_nothing(wire: Wire, queue: bytes, words: str) -> None:
    assert wire.ask("PAUSE", queue, *words.split()) == b"-ERR syntax error\r\n"
    assert wire.ask("PAUSE", queue, "state") == b"+none\r\n"


def test_resuming_an_unknown_queue_creates_none(wire: Wire, queue: bytes) -> None:
    assert wire.ask("PAUSE", queue, "none") == b"+none\r\n"
    assert wire.ask("QSTAT", queue) == b"*-1\r\n"


def test_a_queue_paused_for_input_refuses_new_jobs_and_delivers_present_ones(wire: Wire, queue: bytes) -> None:
    id = wire.add(queue)
    wire.call("PAUSE", queue, "in")
    assert wire.ask("ADDJOB", queue, "", 0) == PAUSED
    assert wire.ask("ADDJOB", queue, "", 0, "DELAY", 5) == PAUSED
    assert wire.get(queue) == [id]
    wire.call("PAUSE", queue, "none")
    wire.add(queue)


def test_a_queue_paused_for_output_accepts_jobs_and_delivers_none(wire: Wire, queue: bytes) -> None:
    wire.call("PAUSE", queue, "out")
    id = wire.add(queue)
    assert wire.call("QLEN", queue) == 1
    assert wire.call("QPEEK", queue, 1)[0][1] == id
    assert wire.ask("GETJOB", "NOHANG", "FROM", queue) == b"*-1\r\n"
    assert wire.ask("GETJOB", "TIMEOUT", 1, "COUNT", 5, "FROM", queue) == b"*-1\r\n"
    other = wire.add(queue + b"2")
    got = wire.call("GETJOB", "COUNT", 5, "FROM", queue, queue + b"2")
    assert [job[1] for job in got] == [other]
    wire.call("PAUSE", queue, "none")
    assert wire.get(queue) == [id]


def test_a_retry_time_that_passes_while_input_is_paused_begins_anew(wire: Wire, queue: bytes) -> None:
    """The other job may be delivered only once and was in no queue yet. It is queued when its delay ends."""
    job = wire.add(queue, "again", "RETRY", 1)
    delayed = wire.add(queue, "once", "RETRY", 0, "DELAY", 1)
    began = time.monotonic()
    # In one packet, because the retry time must not pass between the two.
    wire.send_raw(command("GETJOB", "NOHANG", "FROM", queue) + command("PAUSE", queue, "in"))
    assert [found[1] for found in decoded(wire.read())] == [job] and wire.read() == b"+in\r\n"
    taken = time.monotonic()
    assert wire.get(queue, "TIMEOUT", 5_000) == [delayed]
    wait_for(lambda: time.monotonic() > taken + 1.05)
    # A command that arrives in the turn in which the time ends finds the job gone.
    shown = wait_for(lambda: (found := wire.show(job))[b"next-requeue-within"] and found)
    assert shown[b"state"] == b"active"
    assert 0 < shown[b"next-requeue-within"] <= 1_000
    assert shown[b"additional-deliveries"] == 0
    wire.call("PAUSE", queue, "none")
    assert wire.get(queue, "TIMEOUT", 5_000) == [job]
    assert time.monotonic() - began >= 1.99


# ---- Waiting for jobs ------------------------------------------------------------------------------------------------


@pytest.fixture
def block(wire: Wire, wires: Callable[[], Wire]) -> Callable[..., Wire]:
    """Start a GETJOB on a new connection. Return when the server has it waiting."""

    def block(*words: bytes | str | int) -> Wire:
        queue = words[-1]
        stat = wire.call("QSTAT", queue)
        before = stat[9] if stat else 0
        client = wires()
        client.send("GETJOB", *words)
        wait_for(lambda: (stat := wire.call("QSTAT", queue)) and stat[9] == before + 1)
        return client

    return block


Block = Callable[..., Wire]


def test_waiting_clients_are_served_in_order_of_arrival(wire: Wire, queue: bytes, block: Block) -> None:
    clients = [block("FROM", queue) for _ in range(3)]
    assert wire.stat(queue)[b"blocked"] == 3
    ids = [wire.add(queue, str(number)) for number in range(3)]
    for number, (client, id) in enumerate(zip(clients, ids, strict=True)):
        assert client.read() == b"*1\r\n" + bulks(queue, id, str(number))
    assert wire.stat(queue)[b"blocked"] == 0


def test_a_waiting_client_gets_a_job_once(wire: Wire, queue: bytes, block: Block) -> None:
    client = block("FROM", queue)
    id = wire.add(queue)
    assert client.read() == b"*1\r\n" + bulks(queue, id, "body")
    assert wire.get(queue) == []
    assert wire.state(id) == b"active"


def test_a_waiting_getjob_gets_counters_if_requested(wire: Wire, queue: bytes, block: Block) -> None:
    id = wire.add(queue)
    wire.get(queue)
    client = block("WITHCOUNTERS", "FROM", queue)
    wire.call("NACK", id)
    assert decoded(client.read()) == [[queue, id, b"body", b"nacks", 1, b"additional-deliveries", 0]]


@pytest.mark.parametrize("count", [1, 2, 10])
def test_count_also_holds_for_a_waiting_getjob(wire: Wire, queue: bytes, block: Block, count: int) -> None:
    wire.call("PAUSE", queue, "out")
    ids = [wire.add(queue) for _ in range(3)]
    client = block("COUNT", count, "FROM", queue)
    assert client.is_silent(wire)
    wire.call("PAUSE", queue, "none")
    assert [job[1] for job in decoded(client.read())] == ids[:count]
    assert wire.call("QLEN", queue) == max(0, 3 - count)


def test_a_waiting_client_gets_the_available_jobs_without_waiting_for_count(
    wire: Wire, queue: bytes, block: Block
) -> None:
    client = block("COUNT", 10, "FROM", queue)
    id = wire.add(queue)
    assert client.read() == b"*1\r\n" + bulks(queue, id, "body")


def test_a_client_that_waits_on_several_queues_is_served_by_any_of_them(wire: Wire, queue: bytes, block: Block) -> None:
    names = [queue + b"%d" % number for number in range(3)]
    client, later = block("FROM", *names), block("FROM", names[2])
    second = wire.add(names[1])
    assert client.read() == b"*1\r\n" + bulks(names[1], second, "body")
    assert [wire.stat(name)[b"blocked"] for name in names] == [0, 0, 1]
    third = wire.add(names[2])
    assert later.read() == b"*1\r\n" + bulks(names[2], third, "body")


def test_a_timeout_ends_a_wait_not_before_its_time(wire: Wire, queue: bytes) -> None:
    for ms in (1, 50, 150):
        began = time.monotonic()
        assert wire.ask("GETJOB", "TIMEOUT", ms, "FROM", queue) == b"*-1\r\n"
        assert (time.monotonic() - began) * 1000 >= ms - 1
    assert wire.stat(queue)[b"blocked"] == 0


def test_commands_after_a_wait_run_when_it_ends(wire: Wire, queue: bytes, block: Block) -> None:
    client = block("FROM", queue)
    client.send_raw(command("PING", "1") + command("GETJOB", "TIMEOUT", 5_000, "FROM", queue) + command("PING", "2"))
    assert client.is_silent(wire)
    first = wire.add(queue)
    assert client.read() == b"*1\r\n" + bulks(queue, first, "body")
    assert client.read() == b"$1\r\n1\r\n"
    wait_for(lambda: wire.stat(queue)[b"blocked"] == 1)
    assert client.is_silent(wire)
    second = wire.add(queue)
    assert client.read() == b"*1\r\n" + bulks(queue, second, "body")
    assert client.read() == b"$1\r\n2\r\n"


def test_a_pipeline_may_follow_a_waiting_getjob(wire: Wire, queue: bytes, block: Block) -> None:
    client = block("FROM", queue)
    client.send_raw(command("PING") * 5_000)
    wire.add(queue)
    client.read()
    assert [client.read() for _ in range(5_000)] == [b"+PONG\r\n"] * 5_000


def test_a_client_that_disconnects_while_it_waits_gets_no_job(wire: Wire, queue: bytes, block: Block) -> None:
    gone, stays = block("FROM", queue), block("FROM", queue)
    gone.close()
    wait_for(lambda: wire.stat(queue)[b"blocked"] == 1)
    id = wire.add(queue)
    assert stays.read() == b"*1\r\n" + bulks(queue, id, "body")


def test_jobs_of_a_disconnected_client_stay_active_until_their_retry_time(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    id = wire.add(queue)
    client = wires()
    assert client.get(queue) == [id]
    number = client.call("CLIENT", "ID")
    client.close()
    wait_for(lambda: f"id={number} ".encode() not in wire.call("CLIENT", "LIST"))
    assert wire.state(id) == b"active"
    assert wire.call("ACKJOB", id) == 1


@pytest.mark.parametrize("what", ["ADDJOB", "NACK", "ENQUEUE", "delayed ENQUEUE", "PAUSE none", "dequeued ENQUEUE"])
def test_every_way_to_make_a_job_ready_serves_a_waiting_client(
    wire: Wire, queue: bytes, block: Block, what: str
) -> None:
    id = b""
    if what == "PAUSE none":
        wire.call("PAUSE", queue, "out")
    if what != "ADDJOB":
        id = wire.add(queue, "body", *(["DELAY", 60] if what.startswith("delayed") else []))
    if what in ("NACK", "ENQUEUE"):
        wire.get(queue)
    if what.startswith("dequeued"):
        wire.call("DEQUEUE", id)
    client = block("FROM", queue)
    assert client.is_silent(wire)
    if what == "ADDJOB":
        id = wire.add(queue)
    elif what == "PAUSE none":
        wire.call("PAUSE", queue, "none")
    else:
        assert wire.call(what.split()[-1], id) == 1
    assert client.read() == b"*1\r\n" + bulks(queue, id, "body")


def test_a_client_that_waits_on_a_paused_queue_is_not_served(wire: Wire, queue: bytes, block: Block) -> None:
    client = block("FROM", queue)
    wire.call("PAUSE", queue, "out")
    id = wire.add(queue)
    assert client.is_silent(wire)
    assert wire.call("QLEN", queue) == 1
    wire.call("PAUSE", queue, "in")
    assert client.read() == b"*1\r\n" + bulks(queue, id, "body")


def test_an_at_most_once_job_that_was_not_sent_is_still_queued(wire: Wire, queue: bytes, block: Block) -> None:
    """A client that disconnects before its take runs gets no delivery."""
    client = block("FROM", queue)
    client.close()
    wait_for(lambda: wire.stat(queue)[b"blocked"] == 0)
    id = wire.add(queue, "", "RETRY", 0)
    assert wire.get(queue) == [id]
    assert wire.get(queue) == []


def test_no_more_queues_than_a_wait_can_watch(wire: Wire) -> None:
    with pytest.raises(Refusal, match="ERR a GETJOB may name up to 1024 queues"):
        wire.call("GETJOB", "NOHANG", "FROM", *range(1_025))
    assert wire.ask("GETJOB", "NOHANG", "FROM", *range(1_024)) == b"*-1\r\n"
