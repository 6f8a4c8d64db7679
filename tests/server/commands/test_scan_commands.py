"""QSCAN and JSCAN: complete iterations, and filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ..serving import Wire, command, decoded, pairs, wait_for

CURSOR = "ERR invalid cursor or option name"
SYNTAX = "ERR syntax error"
NOT_A_NUMBER = "ERR value is not an integer or out of range"


@pytest.fixture
def wire(wire: Wire) -> Wire:
    """A connection to the shared server, after all jobs of other tests were removed."""
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    return wire


def all_of(wire: Wire, name: str, *options: str | int) -> list[Any]:
    """Return everything that a complete scan returns."""
    found, cursor = [], b"0"
    while True:
        cursor, page = wire.call(name, cursor, *options)
        found += page
        if cursor == b"0":
            return found


def add_queues(wire: Wire, count: int) -> list[bytes]:
    """Create this many queues, with 0, 1, 2, 0, 1, 2 … jobs."""
    names = [b"queue%d" % number for number in range(count)]
    for number, name in enumerate(names):
        wire.send_raw(command("ADDJOB", name, "", 0, "DELAY", 60) + command("ADDJOB", name, "", 0) * (number % 3))
        for _ in range(1 + number % 3):
            assert wire.read()[:1] == b"+"
    return names


def test_a_job_scan_with_a_condition_says_how_far_it_looked(wire: Wire) -> None:
    ids = [wire.call("PUT", "orders", f'{{"user": {n % 10}, "n": {n}}}', "AS", "json") for n in range(100)]
    where = ["WHERE", "body.user == 4"]
    cursor, found, looked = wire.call("JOB", "SCAN", 0, *where, "IDS")
    assert (cursor, found, pairs(looked)) == (b"0", ids[4::10], {b"examined": 100, b"skipped": 0})
    cursor, found, looked = wire.call("JOB", "SCAN", 0, *where, "IDS", "EXAMINE", 30)
    assert (found, pairs(looked)[b"examined"]) == (ids[4:30:10], 30) and cursor != b"0"
    cursor, found, looked = wire.call("JOB", "SCAN", cursor, *where, "IDS", "EXAMINE", 70, "COUNT", 2)
    assert (found, pairs(looked)[b"examined"]) == (ids[34:50:10], 15)
    _, [job], _ = wire.call("JOB", "SCAN", 0, "TUBE", "orders", "STATE", "ready", "WHERE", "body.n == 7", "NOBODIES")
    assert (pairs(job)[b"id"], pairs(job)[b"body"], pairs(job)[b"state"]) == (ids[7], b"", b"ready")
    # Without a condition, the reply is as before.
    assert len(wire.call("JOB", "SCAN", 0, "IDS")) == 2


def test_wrong_conditions_are_refused(wire: Wire) -> None:
    for words in (["WHERE"], ["WHERE", "body = 1"], ["WHERE", b"\xff"], ["WHERE", "key", "PACKED"]):
        assert wire.ask("JOB", "SCAN", 0, *words)[:1] == b"-"
    for number in (0, -1, 1_000_001, "x"):
        assert wire.ask("JOB", "SCAN", 0, "WHERE", "key", "EXAMINE", number)[:1] == b"-"
    assert wire.call("JOB", "SCAN", 0, "WHERE", "key", "EXAMINE", 1) == [b"0", [], [b"examined", 0, b"skipped", 0]]


def test_with_nothing_there_a_scan_ends_at_once(wire: Wire) -> None:
    for words in (["QSCAN"], ["QSCAN", 0], ["JSCAN"], ["JSCAN", 0, "BUSYLOOP"], ["JSCAN", "QUEUE", "none", 0]):
        assert wire.ask(*words) == b"*2\r\n$1\r\n0\r\n*0\r\n"


def test_qscan_answers_its_cursor_and_names_as_bulks(wire: Wire) -> None:
    wire.add("one")
    assert wire.ask("QSCAN", 0) == b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\none\r\n"


def test_jscan_answers_ids_as_simple_strings_or_whole_jobs(wire: Wire) -> None:
    id = wire.add("q", "hello")
    for words in ([], [0], ["REPLY", "id"], ["reply", "ID", 0]):
        assert wire.ask("JSCAN", *words) == b"*2\r\n$1\r\n0\r\n*1\r\n+" + id + b"\r\n"
    [job] = decoded(wire.ask("JSCAN", 0, "REPLY", "all"))[1]
    shown = wire.show(id)
    assert list(pairs(job)) == list(shown)
    assert [pairs(job)[key] for key in (b"id", b"queue", b"state", b"body")] == [id, b"q", b"queued", b"hello"]


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_a_scan_of_queues_meets_every_queue(wire: Wire, count: int) -> None:
    names = add_queues(wire, 40)
    assert set(all_of(wire, "QSCAN", "COUNT", count)) == set(names)
    assert set(wire.call("QSCAN", "COUNT", count, "BUSYLOOP")[1]) == set(names)


def test_count_sets_the_length_of_a_page(wire: Wire) -> None:
    wire.send_raw(b"".join(command("ADDJOB", f"q{number}", "", 0) for number in range(120)))
    ids = [wire.read()[1:-2] for _ in range(120)]
    for scan, found in (("JSCAN", ids), ("QSCAN", [b"q%d" % number for number in range(120)])):
        first, page = wire.call(scan, "COUNT", 5)
        assert page == found[:5]
        second, page = wire.call(scan, first, "COUNT", 5)
        assert page == found[5:10]
        third, page = wire.call(scan, second)
        assert (page, third == b"0") == (found[10:110], False)
        assert wire.call(scan, third) == [b"0", found[110:]]
    cursor, page = wire.call("JSCAN", "STATE", "queued", "COUNT", 7)
    assert page == ids[:7]
    assert wire.call("JSCAN", cursor, "QUEUE", "q7", "COUNT", 7) == [b"0", ids[7:8]]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_scan_of_jobs_meets_every_job(wire: Wire, count: int) -> None:
    wire.send_raw(command("ADDJOB", "q", "", 0) * 150)
    ids = {wire.read()[1:-2] for _ in range(150)}
    assert set(all_of(wire, "JSCAN", "COUNT", count)) == ids
    cursor, found = wire.call("JSCAN", "BUSYLOOP", "COUNT", count)
    assert (cursor, set(found)) == (b"0", ids)


def test_a_scan_returns_every_job_that_exists_all_the_time(wire: Wire) -> None:
    ids = [wire.add("q") for _ in range(60)]
    stay, go = ids[::2], ids[1::2]
    found, cursor = [], b"0"
    while True:
        cursor, page = wire.call("JSCAN", cursor, "COUNT", 5)
        found += page
        if cursor == b"0":
            break
        if go:
            wire.call("ACKJOB", go.pop())
            wire.add("q")
    assert set(stay) <= set(found)


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        (["MINLEN", 1], {1, 2}),
        (["MINLEN", 2], {2}),
        (["MAXLEN", 0], {0}),
        (["MAXLEN", 1], {0, 1}),
        (["MINLEN", 1, "MAXLEN", 1], {1}),
        (["minlen", 3], set()),
        (["IMPORTRATE", 0], {0, 1, 2}),
        (["IMPORTRATE", 1], set()),
        (["COUNT", 0], {0, 1, 2}),
    ],
)
def test_filters_of_qscan(wire: Wire, options: list[str | int], lengths: set[int]) -> None:
    names = add_queues(wire, 9)
    wanted = {name for number, name in enumerate(names) if number % 3 in lengths}
    assert set(all_of(wire, "QSCAN", *options)) == wanted


def test_filters_of_jscan(wire: Wire) -> None:
    queued, delivered, delayed = wire.add("a"), wire.add("b"), wire.add("b", "", "DELAY", 60)
    assert wire.get("b") == [delivered]
    acked = wire.add("a")
    wire.call("ACKJOB", acked)
    for options, ids in [
        (["QUEUE", "a"], [queued]),
        (["QUEUE", "b"], [delivered, delayed]),
        (["QUEUE", "none"], []),
        (["STATE", "queued"], [queued]),
        (["STATE", "active"], [delivered, delayed]),
        (["STATE", "ACTIVE", "state", "queued"], [queued, delivered, delayed]),
        (["STATE", "acked"], []),
        (["STATE", "wait-repl"], []),
        (["STATE", "queued", "QUEUE", "b"], []),
        (["STATE", "active", "QUEUE", "b", "BUSYLOOP"], [delivered, delayed]),
        (["QUEUE", "b", "QUEUE", "a"], [queued]),  # The last one of a repeated option counts.
    ]:
        assert sorted(all_of(wire, "JSCAN", *options)) == sorted(ids), options


def test_the_cursor_can_be_in_any_place(wire: Wire) -> None:
    id = wire.add("q")
    for words in ("0 COUNT 5 QUEUE q", "COUNT 5 0 QUEUE q", "COUNT 5 QUEUE q 0", "QUEUE q", "+0 QUEUE q", "00"):
        assert wire.call("JSCAN", *words.split()) == [b"0", [id]]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("QSCAN x", CURSOR),
        ("QSCAN 1.0", CURSOR),
        ("QSCAN 99999999999999999999", CURSOR),
        ("QSCAN 0 0", SYNTAX),
        ("QSCAN 0 x", SYNTAX),
        ("QSCAN COUNT", CURSOR),
        ("QSCAN MINLEN", CURSOR),
        ("QSCAN MAXLEN", CURSOR),
        ("QSCAN IMPORTRATE", CURSOR),
        ("QSCAN 0 COUNT", SYNTAX),
        ("QSCAN COUNT x", NOT_A_NUMBER),
        ("QSCAN MINLEN x", NOT_A_NUMBER),
        ("QSCAN MAXLEN x", NOT_A_NUMBER),
        ("QSCAN IMPORTRATE x", NOT_A_NUMBER),
        ("QSCAN QUEUE q", CURSOR),
        ("QSCAN STATE queued", CURSOR),
        ("JSCAN x", CURSOR),
        ("JSCAN 0 0", SYNTAX),
        ("JSCAN COUNT", CURSOR),
        ("JSCAN QUEUE", CURSOR),
        ("JSCAN STATE", CURSOR),
        ("JSCAN REPLY", CURSOR),
        ("JSCAN 0 REPLY", SYNTAX),
        ("JSCAN COUNT x", NOT_A_NUMBER),
        ("JSCAN STATE nosuch", "ERR Invalid job state name"),
        ("JSCAN REPLY nosuch", "ERR Invalid REPLY type, try ID or ALL"),
        ("JSCAN MINLEN 1", CURSOR),
    ],
)
def test_scans_refuse_in_disques_words(wire: Wire, words: str, refusal: str) -> None:
    assert wire.ask(*words.split()) == f"-{refusal}\r\n".encode()


def test_a_long_scan_delays_no_client_and_is_answered_in_order(wire: Wire) -> None:
    """There are more jobs than one slice visits."""
    wire.send_raw(command("ADDJOB", "q", "", 0) * 2_500)
    ids = [wire.read()[1:-2] for _ in range(2_500)]
    wire.send_raw(command("JSCAN", "BUSYLOOP") + command("QPEEK", "q", -3) + command("PING"))
    cursor, found = decoded(wire.read())
    assert (cursor, set(found)) == (b"0", set(ids))
    assert [job[1] for job in decoded(wire.read())] == ids[:-4:-1]
    assert wire.read() == b"+PONG\r\n"


def test_a_long_reply_waits_for_its_reader_and_delays_no_other_client(wire: Wire, wires: Callable[[], Wire]) -> None:
    bodies = [b"%03d" % number * 10_000 for number in range(300)]
    wire.send_raw(b"".join(command("ADDJOB", "q", body, 0) for body in bodies))
    for _ in bodies:
        assert wire.read()[:1] == b"+"
    scanner = wires()
    scanner.send_raw(command("JSCAN", "BUSYLOOP", "REPLY", "all") + command("PING"))
    wait_for(lambda: re.search(rb"cmd=jscan.*", wire.ask("CLIENT", "LIST")))
    assert wire.ask("PING") == b"+PONG\r\n"
    cursor, found = decoded(scanner.read())
    assert cursor == b"0" and [pairs(job)[b"body"] for job in found] == bodies
    assert scanner.read() == b"+PONG\r\n"


def test_a_long_scan_with_replies_off_sends_nothing(wire: Wire) -> None:
    wire.send_raw(command("ADDJOB", "q", "", 0) * 600)
    for _ in range(600):
        wire.read()
    wire.send("CLIENT", "REPLY", "SKIP")
    wire.send("JSCAN", "BUSYLOOP")
    assert wire.ask("PING") == b"+PONG\r\n"


def test_a_disconnect_during_a_long_reply_leaks_nothing(wire: Wire, wires: Callable[[], Wire]) -> None:
    body = b"x" * 30_000
    wire.send_raw(command("ADDJOB", "q", body, 0) * 300)
    for _ in range(300):
        wire.read()
    scanner = wires()
    scanner.send("JSCAN", "BUSYLOOP", "REPLY", "all")
    assert scanner.socket.recv(4)
    address = scanner.address
    scanner.close()
    wait_for(lambda: address.encode() not in wire.ask("CLIENT", "LIST"))
    assert len(wire.call("JSCAN", "BUSYLOOP")[1]) == 300


def test_a_page_ends_where_it_is_full_and_the_cursor_goes_on_from_there(wire: Wire) -> None:
    ids = [wire.add("q", b"x" * length) for length in (400_000, 400_000, 400_000, 3_000_000, 1, 400_000)]
    wire.add("none of it", b"x" * 900_000)
    pages, cursor = [], b"0"
    while not pages or cursor != b"0":
        cursor, page = wire.call("JSCAN", cursor, "COUNT", 100, "QUEUE", "q", "REPLY", "all")
        pages.append([pairs(job)[b"id"] for job in page])
    assert pages == [ids[:2], ids[2:3], ids[3:4], ids[4:]]
    assert len(all_of(wire, "JSCAN", "REPLY", "all")) == 7


def test_a_page_of_long_names_is_full_with_few(wire: Wire) -> None:
    names = [b"%d" % number + b"q" * 60_000 for number in range(40)]
    for name in names:
        wire.call("PAUSE", name, "in")
    cursor, page = wire.call("QSCAN", "COUNT", 100)
    assert page == names[:17]
    assert page + wire.call("QSCAN", cursor, "COUNT", 17)[1] == names[:34]
    assert wire.call("QSCAN", "BUSYLOOP") == [b"0", names]


def test_jobs_are_shown_without_their_bodies(wire: Wire, queue: bytes) -> None:
    wire.add(queue, b"body")
    _, [job] = wire.call("JOB", "SCAN", 0, "TUBE", queue, "NOBODIES", "COUNT", 1000)
    assert pairs(job)[b"body"] == b""
