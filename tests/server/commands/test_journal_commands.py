"""JOURNAL: the log by position over the wire, and waiting at its head."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.core.states import EVENT_NAMES
from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.history.reader import Reader
from penstock.journal.real_disk import ReadOnlyDisk
from tests.ports import free_port

from ..serving import Refusal, Server, Wire, decoded, pairs, wait_for


def head(wire: Wire) -> dict[bytes, Any]:
    return pairs(wire.call("JOURNAL", "HEAD"))


def frames_of(data: bytes) -> list[f.Frame]:
    """Return the frames of a reply. Their checksums depend on their place in the log."""
    found, at = [], 0
    while at < len(data):
        found.append(f.Frame(data, at))
        at += found[-1].length
    assert at == len(data)
    return found


def events_of(data: bytes) -> list[tuple[int, str]]:
    """Return the events of jobs with their positions."""
    return [
        (frame.position + row, EVENT_NAMES[data[at + 112]])
        for frame in frames_of(data)
        for row in range(frame.rows)
        if data[at := frame.rows_at + row * frame.row_bytes] is not None and data[at + 112] < layout.TUBE_MADE
    ]


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose replies are durable."""
    server = Server(tmp_path_factory.mktemp("durable"), "--appendfsync", "always")
    yield server
    server.stop()


def test_head_returns_the_node_and_the_positions(durable: Server) -> None:
    wire = durable.connect()
    before = head(wire)
    assert list(before) == [b"node", b"epoch", b"first", b"durable", b"written"]
    assert (before[b"node"], before[b"epoch"]) == (wire.call("CLUSTER", "MYID"), 1)
    assert 1 <= before[b"first"] <= before[b"durable"] + 1
    wire.call("PUT", "t", "body")
    after = head(wire)
    assert after[b"durable"] == after[b"written"] > before[b"durable"]


@pytest.mark.parametrize("fsync", ["everysec", "never"])
def test_readers_see_the_last_events_of_an_idle_server(start: Callable[..., Server], fsync: str) -> None:
    wire = start("--fsync", fsync).connect()
    for _ in range(3):
        wire.call("PUT", "t", "body")
        newest = head(wire)[b"written"]
        wait_for(lambda newest=newest: head(wire)[b"durable"] >= newest)
        next_position, _ = wire.call("JOURNAL", "EVENTS", newest, "COUNT", 1)
        assert next_position == newest + 1


def test_a_node_that_is_reset_is_another_and_its_log_the_same_one(start: Callable[..., Server]) -> None:
    wire = start("--cluster-port", str(free_port())).connect()
    wire.call("PUT", "t", "body")
    before, id = head(wire), wire.call("CLUSTER", "MYID")
    assert wire.call("CLUSTER", "RESET", "HARD") == b"OK"
    assert wire.call("CLUSTER", "MYID") != id
    # Otherwise a program that stores events by node and position would have all of them twice.
    assert (head(wire)[b"node"], head(wire)[b"first"]) == (id, before[b"first"])


def test_frames_are_those_of_the_log_byte_for_byte(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    for number in range(5):
        wire.call("PUT", "t", f"body {number}")
    upto, data = wire.call("JOURNAL", "READ", position)
    assert upto == head(wire)[b"durable"] + 1
    assert [name for _, name in events_of(data)] == ["put"] * 5
    assert any(data in path.read_bytes() for path in durable.home.rglob("segment-*.log"))


def test_a_position_within_a_frame_returns_the_whole_frame(durable: Server) -> None:
    wire = durable.connect()
    wire.call("MPUT", "t", "JOB", "a", "JOB", "b", "JOB", "c")
    durable_upto = head(wire)[b"durable"]
    upto, data = wire.call("JOURNAL", "READ", durable_upto)
    assert upto == durable_upto + 1 and [name for _, name in events_of(data)] == ["put"] * 3


def test_bytes_bound_an_answer_and_one_frame_is_always_in_it(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    for _ in range(6):
        wire.call("PUT", "t", "x" * 1000)
    sizes, found = [], []
    while position <= head(wire)[b"durable"]:
        position, data = wire.call("JOURNAL", "READ", position, "BYTES", 2600)
        sizes.append(len(frames_of(data)))
        found += events_of(data)
    assert [name for _, name in found] == ["put"] * 6
    assert sizes[-2:] == [2, 2] or max(sizes) == 2
    _, data = wire.call("JOURNAL", "READ", position - 1, "BYTES", 1)
    assert len(frames_of(data)) == 1


def test_reading_continues_across_segments(durable: Server) -> None:
    wire, found = durable.connect(), list[tuple[int, str]]()
    position = head(wire)[b"durable"] + 1
    for number in range(3):
        wire.call("PUT", "t", f"{number}")
        wire.call("BGREWRITEAOF")
        wait_for(lambda: wire.info("persistence")["aof_rewrite_in_progress"] == "0")
        wire.call("PUT", "t", f"{number}")
    while position <= head(wire)[b"durable"]:
        position, data = wire.call("JOURNAL", "READ", position, "BYTES", 1)
        found += events_of(data)
    assert [name for _, name in found] == ["put"] * 6


def test_names_of_tubes_are_sent_to_a_reader_that_starts_in_the_middle(durable: Server) -> None:
    wire = durable.connect()
    wire.call("PUT", "first", "a")
    wire.call("PUT", "second", "b")
    middle = head(wire)[b"durable"] + 1
    wire.call("PUT", "first", "c")
    _, data, names = wire.call("JOURNAL", "READ", middle, "NAMES")
    [frame] = frames_of(data)
    row = f.Row(data, frame.rows_at, frame)
    assert pairs(names)[row.tube] == b"first" and b"second" in names
    assert f.var_fields(data, frame.rows_at, frame)[0] == (layout.TAG_BODY, b"c")


def test_without_a_timeout_the_head_is_empty(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    assert wire.call("JOURNAL", "READ", position) == [position, b""]
    assert wire.call("JOURNAL", "READ", position, "NAMES") == [position, b"", []]
    assert wire.call("JOURNAL", "EVENTS", position) == [position, []]


def test_a_waiting_follower_gets_new_rows(durable: Server) -> None:
    waiting, other = durable.connect(), durable.connect()
    position = head(other)[b"durable"] + 1
    for command, found in (("READ", events_of), ("EVENTS", len)):
        waiting.send("JOURNAL", command, position, "TIMEOUT", "forever")
        assert waiting.is_silent(other)
        other.call("PUT", "t", "body")
        upto, data = decoded(waiting.read())
        assert upto == head(other)[b"durable"] + 1 and found(data)
        position = upto


def test_a_waiting_follower_is_answered_after_its_timeout(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    began = time.monotonic()
    assert wire.call("JOURNAL", "READ", position, "TIMEOUT", "50ms") == [position, b""]
    assert time.monotonic() - began >= 0.05
    # A command that was sent after it runs, too.
    wire.send("JOURNAL", "EVENTS", position, "TIMEOUT", "50ms")
    wire.send("PING")
    assert wire.read() == b"*2\r\n:%d\r\n*0\r\n" % position and wire.read() == b"+PONG\r\n"


def test_a_waiting_follower_that_disconnects_is_removed(durable: Server) -> None:
    other = durable.connect()
    position = head(other)[b"durable"] + 1
    for _ in range(3):
        wire = durable.connect()
        wire.send("JOURNAL", "READ", position, "TIMEOUT", "forever")
        assert wire.is_silent(other)
        wire.close()
    other.call("PUT", "t", "body")
    assert other.call("JOURNAL", "READ", position)[0] > position


def test_a_half_closed_follower_is_answered_at_once(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    wire.send("JOURNAL", "READ", position, "TIMEOUT", "forever")
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.read() == b"*2\r\n:%d\r\n$0\r\n\r\n" % position


def test_followers_that_disconnect_during_a_read_do_not_wait_again(durable: Server) -> None:
    crowd = [durable.connect() for _ in range(50)]
    other = durable.connect()
    position = head(other)[b"durable"] + 1
    for wire in crowd:
        wire.send("JOURNAL", "EVENTS", position, "TIMEOUT", "forever", "TUBE", "quiet")
    assert crowd[-1].is_silent(other)
    for number, wire in enumerate(crowd):
        if number % 3 == 0:
            # All followers check whether the event matches, one after the other, and wait again.
            other.call("PUT", "loud", "x")
        wire.socket.shutdown(socket.SHUT_WR)
    for wire in crowd:
        assert decoded(wire.read())[1] == []


def test_many_followers_are_served_and_delay_no_client(durable: Server) -> None:
    crowd = [durable.connect() for _ in range(100)]
    other = durable.connect()
    position = head(other)[b"durable"] + 1
    for wire in crowd:
        wire.send("JOURNAL", "READ", position, "TIMEOUT", 20)
    assert crowd[-1].is_silent(other)
    other.call("PUT", "t", "body")
    answers = {wire.read() for wire in crowd}
    # All get the same frame, and no more than was durable.
    assert len(answers) == 1 and b"body" in answers.pop()


def test_events_match_the_history(durable: Server) -> None:
    wire = durable.connect()
    position = head(wire)[b"durable"] + 1
    id = wire.call("PUT", "told", "hello", "AS", "text")
    [job] = wire.call("TAKE", "told")
    wire.call("BURY", pairs(job)[b"id"], "REASON", "why not")
    upto, events = wire.call("JOURNAL", "EVENTS", position)
    assert upto == head(wire)[b"durable"] + 1
    told = [event for event in map(pairs, events) if event.get(b"job") == id]
    assert [event[b"event"] for event in told] == [b"put", b"taken", b"buried"]
    assert (told[0][b"body"], told[0][b"tube"], told[0][b"after"]) == (b"hello", b"told", b"ready")
    assert told[2][b"reason"] == b"why not" and b"body" not in told[2]
    reader = Reader(ReadOnlyDisk(next(str(path.parent) for path in durable.home.rglob("node.json"))))
    positions = [event.position for event in reader.events(position)]
    assert positions == [pairs(event)[b"position"] for event in events] == list(range(position, upto))


def test_events_have_the_name_and_user_of_the_client_that_caused_them(start: Callable[..., Server]) -> None:
    ann = "ann password:s3cret commands:read,write,admin"
    server = start("--appendfsync", "always", "--requirepass", "x", "--user", ann, password="x")
    wire = server.connect()
    wire.call("AUTH", "ann", "s3cret")
    wire.call("CLIENT", "SETNAME", "worker-3")
    id = wire.call("PUT", "named", "hello")
    wire.call("TAKE", "named")
    wire.call("ACK", id)
    _, events = wire.call("JOURNAL", "EVENTS", 1, "TUBE", "named")
    for told in (events, wire.call("JOB", "HISTORY", id)):
        of_job = [event for event in map(pairs, told) if event.get(b"job") == id]
        assert {(event[b"actor_name"], event[b"actor_user"]) for event in of_job} == {(b"worker-3", b"ann")}
        assert len({event[b"actor"] for event in of_job}) == 1 and len(of_job) == 3
    with penstock.connect(f"penstock://ann:s3cret@127.0.0.1:{server.port}") as queue:
        assert {(event.actor_name, event.actor_user) for event in queue.history(id.decode())} == {("worker-3", "ann")}


def test_events_of_one_tube_skip_the_others_and_return_the_next_position(durable: Server) -> None:
    wire, other = durable.connect(), durable.connect()
    position = head(wire)[b"durable"] + 1
    wire.call("MPUT", "noise", *(word for number in range(50) for word in ("JOB", number)))
    wire.call("PUT", "wanted", "1")
    upto, events = wire.call("JOURNAL", "EVENTS", position, "TUBE", "wanted", "COUNT", 1000)
    assert [pairs(event)[b"body"] for event in events if b"job" in event] == [b"1"]
    assert upto == head(wire)[b"durable"] + 1
    # Events of other tubes wake the follower, and it waits again.
    wire.send("JOURNAL", "EVENTS", upto, "TUBE", "wanted", "TIMEOUT", 20)
    other.call("PUT", "noise", "x")
    assert wire.is_silent(other)
    other.call("PUT", "wanted", "2")
    upto, events = decoded(wire.read())
    assert [pairs(event)[b"body"] for event in events] == [b"2"]


def test_a_deleted_position_is_refused_with_the_first_kept_one(start: Callable[..., Server]) -> None:
    server = start("--history-bytes", "0")
    wire = server.connect()
    wire.call("PUT", "t", "body")
    wire.call("BGREWRITEAOF")
    wait_for(lambda: head(wire)[b"first"] > 1)
    first = head(wire)[b"first"]
    for words in (["READ", 1], ["EVENTS", 1], ["DIGEST", 1, first]):
        with pytest.raises(Refusal, match=f"^TRIMMED position 1 .* {first}$"):
            wire.call("JOURNAL", *words)
    wire.call("PUT", "t", "body")
    wait_for(lambda: wire.call("JOURNAL", "READ", first)[1])


def test_without_a_journal_there_is_none(start: Callable[..., Server]) -> None:
    wire = start("--appendonly", "no").connect()
    for words in (["HEAD"], ["READ", 1], ["EVENTS", 1], ["DIGEST", 1, 2]):
        with pytest.raises(Refusal, match=r"^NOJOURNAL "):
            wire.call("JOURNAL", *words)


def test_waiting_followers_get_an_error_when_the_journal_is_switched_off(start: Callable[..., Server]) -> None:
    server = start()
    wire, other = server.connect(), server.connect()
    wire.send("JOURNAL", "READ", head(other)[b"durable"] + 1, "TIMEOUT", "forever")
    assert wire.is_silent(other)
    other.call("CONFIG", "SET", "appendonly", "no")
    assert wire.read().startswith(b"-NOJOURNAL ")


def test_digests_cover_a_range_in_pages_up_to_what_is_durable(durable: Server) -> None:
    wire = durable.connect()
    first = head(wire)[b"durable"] + 1
    while head(wire)[b"durable"] < first + 10_000:
        wire.call("MPUT", "digested", *(word for number in range(1_000) for word in ("JOB", number)))
    end = head(wire)[b"durable"] + 1
    position, found = first, list[list[Any]]()
    while position < end:
        position, blocks = wire.call("JOURNAL", "DIGEST", position, end + 1_000_000, "COUNT", 2)
        assert 1 <= len(blocks) <= 2 and position == blocks[-1][1]
        found += blocks
    assert [block[0] for block in found] == [first, *(block[1] for block in found[:-1])]
    [home] = {path.parent for path in durable.home.rglob("node.json")}
    reader = Reader(ReadOnlyDisk(str(home)))
    assert [tuple(block) for block in found] == [
        (
            block.first,
            block.end,
            block.rows,
            block.rows_sha256.hex().encode(),
            (block.bodies_sha256 or b"").hex().encode(),
        )
        for block in reader.blocks(first, end)
    ]
    assert wire.call("JOURNAL", "DIGEST", end, end + 5) == [end, []]
    assert wire.call("JOURNAL", "DIGEST", first, first) == [first, []]
    middle = first + 10
    assert wire.call("JOURNAL", "DIGEST", first, middle)[0] == middle


def test_digests_are_the_same_after_a_segment_is_indexed_and_its_bodies_are_removed(
    start: Callable[..., Server],
) -> None:
    server = start("--appendfsync", "always", "--history-bodies", "no")
    wire = server.connect()
    wire.call("MPUT", "t", *(word for number in range(500) for word in ("JOB", number)))
    end = head(wire)[b"durable"] + 1
    before, [[*rows, bodies]] = wire.call("JOURNAL", "DIGEST", 1, end)
    assert before == end and len(bodies) == 64
    wire.call("BGREWRITEAOF")
    wait_for(lambda: wire.call("JOURNAL", "DIGEST", 1, end)[1][0][4] is None)
    wait_for(lambda: list(server.home.rglob("segment-0000000001.idx")))
    assert wire.call("JOURNAL", "DIGEST", 1, end) == [end, [[*rows, None]]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["READ", 0], "RANGE"),
        (["READ", "x"], "RANGE"),
        (["READ", 1 << 70], "RANGE"),
        (["READ", 10_000_000], "RANGE position 10000000 is beyond the end of the log; the next position is "),
        (["READ", 1, "BYTES", 0], "RANGE"),
        (["READ", 1, "BYTES", 1 << 25], "RANGE"),
        (["READ", 1, "BYTES"], "SYNTAX"),
        (["READ", 1, "BITES", 1], "SYNTAX .*did you mean BYTES"),
        (["READ", 1, "TIMEOUT", "soon"], "RANGE"),
        (["EVENTS", 1, "COUNT", 1001], "RANGE"),
        (["EVENTS", 1, "NAMES"], "SYNTAX"),
        (["DIGEST", 0, 1], "RANGE"),
        (["DIGEST", 3, 2], "RANGE the range ends at position 2, before its start at 3"),
        (["DIGEST", 10_000_000, 10_000_001], "RANGE position 10000000 is beyond the end of the log"),
        (["DIGEST", 1, 2, "COUNT", 0], "RANGE"),
        (["DIGEST", 1, 2, "COUNT", 1001], "RANGE"),
        (["DIGEST", 1, 2, "BYTES", 1], "SYNTAX .*COUNT"),
        (["DIGEST", 1], "ERR wrong number"),
        (["READ"], "ERR wrong number"),
        (["HEAD", "x"], "ERR wrong number"),
        (["TAIL"], ""),
    ],
)
def test_bad_words_are_refused(wire: Wire, words: list[Any], code: str) -> None:
    with pytest.raises(Refusal, match=f"^{code}"):
        wire.call("JOURNAL", *words)
