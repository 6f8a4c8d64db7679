"""Disque's job commands: their grammar, their raw replies, and the effects of time on jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from ..serving import Refusal, Wire, bulks, command, decoded, is_left, pairs, wait_for

NO_SUCH_JOB = b"D-deadbeef-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"
SYNTAX = "ERR syntax error"
BAD_TIMEOUT = "ERR timeout is not an integer or out of range"
BAD_COUNT = "ERR COUNT must be a number greater than zero"
BAD_ID = b"-BADID Invalid Job ID format.\r\n"
BAD_REPLICATE = "ERR REPLICATE must be between 1 and 65535"
BAD_TTL = "ERR TTL must be a number > 0"
BAD_RETRY = "ERR RETRY time must be a non negative number"
BAD_DELAY = "ERR DELAY time must be a non negative number"
BAD_MAXLEN = "ERR MAXLEN must be a positive number"
ONCE_AND_MORE = "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
LATE = "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
NOREPL = "NOREPL Not enough reachable nodes for the requested replication level"
FULL = "MAXLEN Queue is already longer than the specified MAXLEN count"
PAUSED = "PAUSED Queue paused in input, try later"
ACTIVE_COMMANDS = ["ACKJOB", "FASTACK", "DELJOB", "ENQUEUE", "DEQUEUE", "NACK"]

TOO_BIG = "9223372036854775808"


# ---- ADDJOB ----------------------------------------------------------------------------------------------------------


def test_addjob_answers_an_id_of_this_node_as_a_simple_string(wire: Wire, queue: bytes) -> None:
    node = wire.call("CLUSTER", "MYID")
    answer = wire.ask("ADDJOB", queue, "body", 0)
    assert re.fullmatch(rb"\+D-%s-[A-Za-z0-9+/]{24}-05a1\r\n" % node[:8], answer)


@pytest.mark.parametrize(
    ("options", "minutes"),
    [
        ([], b"05a1"),
        (["RETRY", 0], b"05a0"),
        (["TTL", 30], b"0001"),
        (["TTL", 30, "RETRY", 0], b"0000"),
        (["TTL", 3_600], b"003d"),
        (["TTL", 3_600, "RETRY", 0], b"003c"),
        (["TTL", 3_000_000_000], b"ffff"),
        (["TTL", 3_000_000_000, "RETRY", 0], b"fffe"),
    ],
)
def test_an_id_ends_in_the_minutes_of_the_ttl_even_only_for_at_most_once(
    wire: Wire, queue: bytes, options: list[str | int], minutes: bytes
) -> None:
    assert wire.add(queue, "", *options)[-4:] == minutes


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        # Each option by itself.
        ("0 REPLICATE 0", BAD_REPLICATE),
        ("0 REPLICATE 65536", BAD_REPLICATE),
        ("0 REPLICATE -1", BAD_REPLICATE),
        ("0 REPLICATE x", BAD_REPLICATE),
        ("0 TTL 0", BAD_TTL),
        ("0 TTL -1", BAD_TTL),
        ("0 TTL 1.5", BAD_TTL),
        (f"0 TTL {TOO_BIG}", BAD_TTL),
        ("0 RETRY -1", BAD_RETRY),
        ("0 RETRY x", BAD_RETRY),
        (f"0 RETRY {TOO_BIG}", BAD_RETRY),
        ("0 DELAY -1", BAD_DELAY),
        ("0 DELAY 1s", BAD_DELAY),
        (f"0 DELAY {TOO_BIG}", BAD_DELAY),
        ("0 MAXLEN 0", BAD_MAXLEN),
        ("0 MAXLEN -1", BAD_MAXLEN),
        ("0 MAXLEN x", BAD_MAXLEN),
        ("0 NOSUCH", SYNTAX),
        ("0 NOSUCH 1", SYNTAX),
        ("0 ASYNC 1", SYNTAX),
        *((f"0 {option}", SYNTAX) for option in ("REPLICATE", "TTL", "RETRY", "DELAY", "MAXLEN")),
        ("x", BAD_TIMEOUT),
        ("1.0", BAD_TIMEOUT),
        ("+-1", BAD_TIMEOUT),
        (TOO_BIG, BAD_TIMEOUT),
        ("-1", "ERR timeout is negative"),
        ("0 RETRY 0 REPLICATE 2", ONCE_AND_MORE),
        ("0 DELAY 10 TTL 10", LATE),
        ("0 DELAY 11 TTL 10", LATE),
        ("0 DELAY 86400", LATE),
        ("0 REPLICATE 2", NOREPL),
        ("0 REPLICATE 2 ASYNC", NOREPL),
        # The order of checks, if there are several mistakes: options from the left, the timeout, and then the rest.
        ("x RETRY -1 TTL 0", BAD_RETRY),
        ("x TTL 0 RETRY -1", BAD_TTL),
        ("x NOSUCH TTL 0", SYNTAX),
        ("x TTL 1 MAXLEN 0", BAD_MAXLEN),
        ("-1 RETRY 0 REPLICATE 2", "ERR timeout is negative"),
        ("0 RETRY 0 REPLICATE 2 DELAY 9 TTL 9", ONCE_AND_MORE),
        ("0 REPLICATE 2 DELAY 9 TTL 9", LATE),
        ("0 REPLICATE 2 MAXLEN 1", NOREPL),
        ("0 MAXLEN 1", FULL),
        ("0", PAUSED),
    ],
)
def test_addjob_refuses_in_disques_words_and_order(wire: Wire, queue: bytes, words: str, refusal: str) -> None:
    """The queue has one job and is paused, so that these checks come last."""
    wire.add(queue)
    wire.call("PAUSE", queue, "in")
    assert wire.ask("ADDJOB", queue, "body", *words.split()) == f"-{refusal}\r\n".encode()
    assert wire.call("QLEN", queue) == 1


def test_an_empty_word_is_not_a_number(wire: Wire, queue: bytes) -> None:
    """Disque reads it as 0, which would be a job without retries."""
    assert wire.ask("ADDJOB", queue, "", "") == f"-{BAD_TIMEOUT}\r\n".encode()
    assert wire.ask("ADDJOB", queue, "", 0, "RETRY", "") == f"-{BAD_RETRY}\r\n".encode()


@pytest.mark.parametrize(
    "words",
    [
        "0 REPLICATE 1",
        "0 ASYNC",
        "0 async replicate 1 Ttl 5 rEtry 1 delay 0 maxlen 1",
        "0 TTL 1 TTL 60",
        "0 TTL 60 TTL 60 RETRY 0 RETRY 7 REPLICATE 1 ASYNC ASYNC",
        "9223372036",
        "+0",
        "00",
        "0 RETRY +5",
        "0 RETRY 100 TTL 5",
        "0 RETRY 5000000",
        "0 DELAY 5000000 TTL 3000000000",
        "0 MAXLEN 9223372036854775807",
        "0 DELAY 9 TTL 10",
    ],
)
def test_addjob_accepts_the_same_options_as_disque(wire: Wire, queue: bytes, words: str) -> None:
    assert len(wire.call("ADDJOB", queue, "body", *words.split())) == 40


@pytest.mark.parametrize(
    ("options", "ttl", "retry"),
    [
        ([], 86_400, 300),
        (["TTL", 1], 1, 1),
        (["TTL", 19], 19, 1),
        (["TTL", 20], 20, 2),
        (["TTL", 100], 100, 10),
        (["TTL", 2_999], 2_999, 299),
        (["TTL", 3_000], 3_000, 300),
        (["TTL", 5_000_000_000], 5_000_000_000, 300),
        (["RETRY", 0], 86_400, 0),
        (["RETRY", 5_000_000], 86_400, 5_000_000),
        (["RETRY", 7, "RETRY", 8], 86_400, 8),
    ],
)
def test_defaults_of_ttl_and_retry(wire: Wire, queue: bytes, options: list[str | int], ttl: int, retry: int) -> None:
    began = time.monotonic()
    # Checked at once, because a ttl of a second may be over when the job is shown.
    added, scanned = command("ADDJOB", queue, "", 0, *options), ("JSCAN", "QUEUE", queue, "BUSYLOOP", "REPLY", "all")
    wire.send_raw(added + command(*scanned))
    assert wire.read()[:3] == b"+D-"
    _, [job] = decoded(wire.read())
    shown = pairs(job)
    assert shown[b"retry"] == retry
    assert is_left(shown[b"ttl"] * 1000, ttl, began)


def test_maxlen_counts_the_jobs_that_are_queued(wire: Wire, queue: bytes) -> None:
    first = wire.add(queue, "", "MAXLEN", 2)
    wire.add(queue, "", "DELAY", 60)
    wire.add(queue, "", "MAXLEN", 2)
    with pytest.raises(Refusal, match=FULL):
        wire.add(queue, "", "MAXLEN", 2)
    assert wire.get(queue) == [first]
    wire.add(queue, "", "MAXLEN", 2)


@pytest.mark.parametrize("body", [b"", b"\r\n", bytes(range(256)), b"x" * 100_000, b"*1\r\n$4\r\nPING\r\n"])
def test_a_body_is_any_bytes(wire: Wire, queue: bytes, body: bytes) -> None:
    id = wire.add(queue, body)
    assert wire.ask("QPEEK", queue, 1) == b"*1\r\n" + bulks(queue, id, body)
    assert wire.ask("GETJOB", "FROM", queue) == b"*1\r\n" + bulks(queue, id, body)


@pytest.mark.parametrize("name", [b"\0", b"\r\n", b"with space", b"\xff" * 100, b"n" * 65_535, "ä".encode()])
def test_the_name_of_a_queue_is_any_bytes(wire: Wire, name: bytes) -> None:
    id = wire.add(name)
    assert wire.ask("GETJOB", "FROM", name) == b"*1\r\n" + bulks(name, id, b"body")
    assert wire.call("QSTAT", name)[1] == name
    assert wire.call("ACKJOB", id) == 1


@pytest.mark.parametrize("name", [b"", b"n" * 65_536])
def test_a_name_of_no_or_too_many_bytes_is_refused(wire: Wire, name: bytes) -> None:
    for words in (["ADDJOB", name, "", 0], ["GETJOB", "NOHANG", "FROM", name], ["PAUSE", name, "in"]):
        with pytest.raises(Refusal, match=r"^BADNAME "):
            wire.call(*words)


def test_a_body_over_the_limit_is_refused_and_leaves_no_queue_behind(wire: Wire, queue: bytes) -> None:
    limit = wire.call("CONFIG", "GET", "max-body")[1]
    wire.call("CONFIG", "SET", "max-body", 1024)
    try:
        wire.add(queue + b"2", b"x" * 1024)
        with pytest.raises(Refusal, match=r"^TOOBIG "):
            wire.add(queue, b"x" * 1025)
    finally:
        wire.call("CONFIG", "SET", "max-body", limit)
    assert wire.ask("QSTAT", queue) == b"*-1\r\n"


def test_a_leaving_node_refuses_jobs_and_ends_waits(wire: Wire, wires: Callable[[], Wire], queue: bytes) -> None:
    wire.call("DEBUG", "FLUSHALL")  # Queues that other tests have paused would be shown.
    id, empty, waiting = wire.add(queue), queue + b"empty", wires()
    waiting.send("GETJOB", "FROM", empty)
    wait_for(lambda: wire.call("QSTAT", empty))
    assert wire.ask("CLUSTER", "LEAVING") == b"+no\r\n"
    assert wire.ask("CLUSTER", "LEAVING", "yes") == b"+OK\r\n"
    try:
        assert wire.ask("CLUSTER", "LEAVING") == b"+yes\r\n"
        leaving = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"
        assert waiting.read() == leaving
        assert wire.ask("GETJOB", "FROM", empty) == leaving
        assert wire.ask("GETJOB", "NOHANG", "FROM", empty) == b"*-1\r\n"
        assert wire.get(queue) == [id]
        reason = "since I'm unable to hold a copy of the message for the following reason: I'm leaving the cluster"
        assert wire.ask("ADDJOB", queue, "", 0) == f"-{NOREPL}, {reason}\r\n".encode()
        assert wire.call("HELLO")[2][3] == b"100"
        assert b" myself,leaving " in wire.call("CLUSTER", "NODES")
    finally:
        assert wire.ask("CLUSTER", "LEAVING", "no") == b"+OK\r\n"
    assert wire.call("HELLO")[2][3] == b"1"
    wire.add(queue)


# ---- GETJOB ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("FROM", SYNTAX),
        ("NOHANG", SYNTAX),
        ("NOHANG FROM", SYNTAX),
        ("NOHANG q", SYNTAX),
        ("NOSUCH FROM q", SYNTAX),
        ("COUNT FROM q", BAD_COUNT),
        ("NOHANG COUNT 0 FROM q", BAD_COUNT),
        ("NOHANG COUNT -1 FROM q", BAD_COUNT),
        ("NOHANG COUNT x FROM q", BAD_COUNT),
        (f"NOHANG COUNT {TOO_BIG} FROM q", BAD_COUNT),
        ("TIMEOUT x FROM q", BAD_TIMEOUT),
        ("TIMEOUT FROM q", BAD_TIMEOUT),
        (f"TIMEOUT {TOO_BIG} FROM q", BAD_TIMEOUT),
        ("TIMEOUT -1 FROM q", "ERR timeout is negative"),
        ("NOHANG TIMEOUT", SYNTAX),
        ("NOHANG COUNT", SYNTAX),
        ("COUNT 0 TIMEOUT -1 FROM q", BAD_COUNT),
        ("TIMEOUT -1 COUNT 0 FROM q", "ERR timeout is negative"),
    ],
)
def test_getjob_refuses_in_disques_words_and_order(wire: Wire, words: str, refusal: str) -> None:
    assert wire.ask("GETJOB", *words.split()) == f"-{refusal}\r\n".encode()


def test_getjob_answers_arrays_of_three_or_with_counters_of_seven(wire: Wire, queue: bytes) -> None:
    id = wire.add(queue, "hello")
    assert wire.ask("GETJOB", "FROM", queue) == b"*1\r\n" + bulks(queue, id, "hello")
    assert wire.ask("NACK", id) == b":1\r\n"
    counters = b"$5\r\nnacks\r\n:1\r\n$21\r\nadditional-deliveries\r\n:0\r\n"
    told = bulks(queue, id, "hello").replace(b"*3", b"*7") + counters
    assert wire.ask("getjob", "withcounters", "from", queue) == b"*1\r\n" + told


def test_getjob_that_finds_nothing_answers_a_null_array(wire: Wire, queue: bytes) -> None:
    assert wire.ask("GETJOB", "NOHANG", "FROM", queue, queue + b"2") == b"*-1\r\n"
    assert wire.ask("GETJOB", "TIMEOUT", 1, "FROM", queue) == b"*-1\r\n"
    assert wire.ask("GETJOB", "NOHANG", "TIMEOUT", 0, "COUNT", 3, "WITHCOUNTERS", "FROM", queue) == b"*-1\r\n"


def test_everything_behind_from_is_the_name_of_a_queue(wire: Wire) -> None:
    ids = [wire.add(name) for name in (b"NOHANG", b"FROM", b"COUNT")]
    got = wire.call("GETJOB", "COUNT", 9, "FROM", "NOHANG", "FROM", "COUNT")
    assert [job[:2] for job in got] == [[name, id] for name, id in zip((b"NOHANG", b"FROM", b"COUNT"), ids)]


def test_count_goes_round_the_queues_one_job_at_a_time(wire: Wire, queue: bytes) -> None:
    names = {letter: queue + letter for letter in (b"a", b"b", b"c")}
    for letter, count in ((b"a", 3), (b"b", 2), (b"c", 4)):
        for number in range(count):
            wire.add(names[letter], letter + b"%d" % number)
    got = wire.call("GETJOB", "COUNT", 7, "FROM", *names.values())
    assert [job[2] for job in got] == [b"a0", b"b0", b"c0", b"a1", b"b1", b"c1", b"a2"]
    got = wire.call("GETJOB", "COUNT", 7, "FROM", *names.values())
    assert [job[2] for job in got] == [b"c2", b"c3"]


def test_a_queue_that_is_named_twice_is_visited_twice(wire: Wire, queue: bytes) -> None:
    other = queue + b"b"
    for number in range(4):
        wire.add(queue, b"a%d" % number)
    wire.add(other, b"b")
    got = wire.call("GETJOB", "COUNT", 4, "FROM", queue, queue, other)
    assert [job[2] for job in got] == [b"a0", b"a1", b"b", b"a2"]


# ---- ACKJOB and similar commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVE_COMMANDS)
def test_unknown_ids_and_empty_lists_count_zero(wire: Wire, name: str) -> None:
    assert wire.ask(name) == b":0\r\n"
    assert wire.ask(name, NO_SUCH_JOB, NO_SUCH_JOB) == b":0\r\n"


@pytest.mark.parametrize("name", ACTIVE_COMMANDS)
@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"x",
        NO_SUCH_JOB[:-1],
        NO_SUCH_JOB + b"0",
        b"d" + NO_SUCH_JOB[1:],
        b"DX" + NO_SUCH_JOB[2:],
        NO_SUCH_JOB[:10] + b"x" + NO_SUCH_JOB[11:],
        NO_SUCH_JOB[:35] + b"x" + NO_SUCH_JOB[36:],
    ],
)
def test_one_bad_id_among_many_changes_nothing(wire: Wire, queue: bytes, name: str, bad: bytes) -> None:
    id = wire.add(queue)
    if name in ("ENQUEUE", "NACK"):
        wire.get(queue)
    before = wire.state(id)
    assert wire.ask(name, id, bad) == BAD_ID
    assert wire.state(id) == before


@pytest.mark.parametrize("name", ["SHOW", "WORKING"])
def test_show_and_working_refuse_a_bad_id_too(wire: Wire, name: str) -> None:
    assert wire.ask(name, b"x" * 40) == BAD_ID


@pytest.mark.parametrize("part", [3, 15, 38])
def test_an_id_with_another_digit_is_of_no_job(wire: Wire, queue: bytes, part: int) -> None:
    id = wire.add(queue)
    forged = id[:part] + (b"0" if id[part : part + 1] != b"0" else b"1") + id[part + 1 :]
    assert wire.ask("SHOW", forged) == b"$-1\r\n"
    assert wire.ask("ACKJOB", forged) == b":0\r\n"
    assert wire.state(id) == b"queued"


class Life:
    """Jobs in each of Disque's states."""

    def __init__(self, wire: Wire, queue: bytes) -> None:
        self._wire, self._queue = wire, queue

    def queued(self, *options: str | int) -> bytes:
        return self._wire.add(self._queue, "", *options)

    def delivered(self, *options: str | int) -> bytes:
        id = self.queued(*options)
        assert self._wire.get(self._queue) == [id]
        return id

    def delayed(self, *options: str | int) -> bytes:
        return self.queued("DELAY", 60, *options)

    def dequeued(self, *options: str | int) -> bytes:
        id = self.queued(*options)
        assert self._wire.call("DEQUEUE", id) == 1
        return id

    def acked(self, *options: str | int) -> bytes:
        id = self.queued(*options)
        assert self._wire.call("ACKJOB", id) == 1
        return id


@pytest.fixture
def life(wire: Wire, queue: bytes) -> Life:
    return Life(wire, queue)


@pytest.mark.parametrize("options", [[], ["RETRY", 0]], ids=["at-least-once", "at-most-once"])
@pytest.mark.parametrize(
    ("stage", "name", "count", "after"),
    [
        *(("queued", name, 1, None) for name in ("ACKJOB", "FASTACK", "DELJOB")),
        *(("delivered", name, 1, None) for name in ("ACKJOB", "FASTACK", "DELJOB")),
        *(("delayed", name, 1, None) for name in ("ACKJOB", "FASTACK", "DELJOB")),
        *(("dequeued", name, 1, None) for name in ("ACKJOB", "FASTACK", "DELJOB")),
        *(("acked", name, 0, None) for name in ACTIVE_COMMANDS),
        *(("queued", name, 0, b"queued") for name in ("ENQUEUE", "NACK")),
        *(("delayed", name, 1, b"queued") for name in ("ENQUEUE", "NACK")),
        *(("dequeued", name, 1, b"queued") for name in ("ENQUEUE", "NACK")),
        ("queued", "DEQUEUE", 1, b"active"),
        ("delivered", "DEQUEUE", 0, b"active"),
        ("delayed", "DEQUEUE", 0, b"active"),
        ("dequeued", "DEQUEUE", 0, b"active"),
    ],
)
def test_the_effect_of_each_command_on_a_job_in_each_state(
    wire: Wire, life: Life, options: list[str | int], stage: str, name: str, count: int, after: bytes | None
) -> None:
    id = getattr(life, stage)(*options)
    assert wire.call(name, id, id, NO_SUCH_JOB) == count  # A job that is named twice counts once.
    assert wire.state(id) == after


@pytest.mark.parametrize("name", ["ENQUEUE", "NACK"])
def test_a_delivered_job_is_queued_again_unless_it_may_be_delivered_only_once(
    wire: Wire, queue: bytes, life: Life, name: str
) -> None:
    once, more = life.delivered("RETRY", 0), life.delivered()
    assert wire.call(name, once, more) == 1
    assert (wire.state(once), wire.state(more)) == (b"active", b"queued")
    assert wire.get(queue) == [more]


def test_a_job_that_was_dequeued_and_may_be_delivered_only_once_can_be_enqueued(
    wire: Wire, queue: bytes, life: Life
) -> None:
    id = life.dequeued("RETRY", 0)
    assert wire.get(queue) == []
    assert wire.call("ENQUEUE", id) == 1
    assert wire.get(queue) == [id]
    assert wire.call("ENQUEUE", id) == 0


@pytest.mark.parametrize(
    ("stage", "options"),
    [(stage, options) for stage in ("delayed", "dequeued") for options in ([], ["RETRY", 0])] + [("delivered", [])],
)
@pytest.mark.parametrize(("name", "nacks"), [("NACK", 1), ("ENQUEUE", 0)])
def test_a_nack_counts_nacks_and_nothing_else(
    wire: Wire, life: Life, stage: str, options: list[str | int], name: str, nacks: int
) -> None:
    """ENQUEUE counts as an additional delivery if the job was delivered before."""
    id = getattr(life, stage)(*options)
    assert wire.call(name, id) == 1
    shown = wire.show(id)
    returned = 1 - nacks if stage == "delivered" else 0
    assert (shown[b"nacks"], shown[b"additional-deliveries"]) == (nacks, returned)


def test_counters_add_up_and_are_returned_with_the_job(wire: Wire, queue: bytes) -> None:
    id = wire.add(queue)
    for name in ("NACK", "ENQUEUE", "NACK", "NACK", "ENQUEUE"):
        wire.get(queue)
        assert wire.call(name, id) == 1
    assert wire.call("GETJOB", "WITHCOUNTERS", "FROM", queue)[0][3:] == [b"nacks", 3, b"additional-deliveries", 2]
    shown = wire.show(id)
    assert (shown[b"nacks"], shown[b"additional-deliveries"]) == (3, 2)


def test_a_job_that_comes_back_goes_before_younger_ones(wire: Wire, queue: bytes) -> None:
    first, second, third = (wire.add(queue) for _ in range(3))
    assert wire.get(queue, "NOHANG", "COUNT", 2) == [first, second]
    wire.call("NACK", second)
    wire.call("ENQUEUE", first)
    assert wire.get(queue, "NOHANG", "COUNT", 9) == [first, second, third]


def test_many_ids_in_one_command(wire: Wire, queue: bytes) -> None:
    wire.send_raw(command("ADDJOB", queue, "", 0) * 1_000)
    ids = [wire.read()[1:-2] for _ in range(1_000)]
    assert wire.call("DEQUEUE", *ids) == 1_000
    assert wire.call("ENQUEUE", *ids) == 1_000
    assert wire.get(queue, "NOHANG", "COUNT", 1_001) == ids
    assert wire.call("ACKJOB", *ids) == 1_000
    assert wire.call("ACKJOB", *ids) == 0


# ---- WORKING ---------------------------------------------------------------------------------------------------------


def test_working_answers_the_retry_time(wire: Wire, queue: bytes, life: Life) -> None:
    assert wire.ask("WORKING", life.delivered("RETRY", 7)) == b":7\r\n"
    assert wire.ask("WORKING", life.delivered("RETRY", 0)) == b":0\r\n"


@pytest.mark.parametrize("stage", ["delayed", "dequeued", "queued"])
def test_working_on_a_job_that_was_not_delivered_postpones_it_as_well(wire: Wire, life: Life, stage: str) -> None:
    id = getattr(life, stage)("RETRY", 7)
    worked = time.monotonic()
    assert wire.ask("WORKING", id) == b":7\r\n"
    shown = wire.show(id)
    assert shown[b"state"] == b"active"
    assert is_left(shown[b"next-requeue-within"], 7, worked)


def test_working_on_an_unknown_or_acked_job_is_an_error(wire: Wire, life: Life) -> None:
    for id in (NO_SUCH_JOB, life.acked()):
        assert wire.ask("WORKING", id) == b"-NOJOB Job not known in the context of this node.\r\n"


def test_working_gives_another_retry_time_until_half_of_the_ttl_is_over(wire: Wire, queue: bytes) -> None:
    """Meanwhile the other job's ttl ends."""
    began = time.monotonic()
    # Long enough, if the test is suspended for a while before WORKING.
    other = wire.add(queue + b"2", "", "TTL", 4, "RETRY", 60)
    id = wire.add(queue, "", "TTL", 8, "RETRY", 60)
    assert wire.get(queue) + wire.get(queue + b"2") == [id, other]
    assert wire.call("WORKING", id) == 60
    too_late = b"-TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery.\r\n"
    wait_for(lambda: wire.ask("WORKING", id) == too_late)
    assert time.monotonic() - began >= 3.99
    wait_for(lambda: wire.state(other) is None)
    assert time.monotonic() - began >= 3.99
    assert wire.ask("WORKING", other) == b"-NOJOB Job not known in the context of this node.\r\n"
    assert wire.ask("ACKJOB", other) == b":0\r\n"


# ---- Time ------------------------------------------------------------------------------------------------------------


def test_retry_counts_from_the_delivery_and_working_begins_it_anew(wire: Wire, queue: bytes) -> None:
    added = time.monotonic()
    # Long enough that the job has not come back when it is shown, if the test is suspended for a while.
    id = wire.add(queue, "", "RETRY", 4)
    wait_for(lambda: time.monotonic() > added + 0.1)
    delivered = time.monotonic()
    wire.get(queue)
    assert is_left(wire.show(id)[b"next-requeue-within"], 4, delivered)
    wait_for(lambda: wire.show(id)[b"next-requeue-within"] < 3_950)
    worked = time.monotonic()
    wire.call("WORKING", id)
    assert is_left(wire.show(id)[b"next-requeue-within"], 4, worked)
    got = wire.call("GETJOB", "TIMEOUT", 15_000, "WITHCOUNTERS", "FROM", queue)
    assert got == [[queue, id, b"", b"nacks", 0, b"additional-deliveries", 1]]
    assert time.monotonic() - worked >= 3.99


def test_a_delayed_job_comes_when_its_delay_is_over_before_younger_ones(wire: Wire, queue: bytes) -> None:
    began = time.monotonic()
    shown = wire.show(wire.add(queue + b"2", "later", "DELAY", 60))
    assert (shown[b"state"], shown[b"delay"]) == (b"active", 60)
    assert is_left(shown[b"next-requeue-within"], 60, began)
    began = time.monotonic()
    delayed = wire.add(queue, "old", "DELAY", 1)
    assert wire.get(queue, "TIMEOUT", 5_000) == [delayed]
    assert time.monotonic() - began >= 0.99
    young = wire.add(queue, "young")
    assert wire.call("NACK", delayed) == 1
    assert wire.get(queue, "NOHANG", "COUNT", 2) == [delayed, young]


def test_a_job_that_may_be_delivered_only_once_waits_for_no_retry(wire: Wire, queue: bytes) -> None:
    id = wire.add(queue, "", "RETRY", 0)
    assert wire.get(queue) == [id]
    shown = wire.show(id)
    assert (shown[b"state"], shown[b"retry"], shown[b"next-requeue-within"]) == (b"active", 0, None)
    assert shown[b"next-awake-within"] > 86_000_000  # Only its ttl is left.
    assert wire.call("ACKJOB", id) == 1


# ---- SHOW ------------------------------------------------------------------------------------------------------------


def test_show_returns_fifteen_fields_in_disques_order_and_types(wire: Wire, queue: bytes) -> None:
    node = wire.call("CLUSTER", "MYID")
    id = wire.add(queue, "hello", "TTL", 60, "RETRY", 5)
    wire.get(queue)
    answer = wire.ask("SHOW", id)
    shape = (
        command("id", id, "queue", queue, "state", "active", "repl").replace(b"*7", b"*30")
        + b":1\r\n$3\r\nttl\r\n:#\r\n$5\r\nctime\r\n:#\r\n$5\r\ndelay\r\n:0\r\n$5\r\nretry\r\n:5\r\n$5\r\nnacks\r\n"
        + b":0\r\n$21\r\nadditional-deliveries\r\n:0\r\n$15\r\nnodes-delivered\r\n"
        + bulks(node)
        + b"$15\r\nnodes-confirmed\r\n*0\r\n$19\r\nnext-requeue-within\r\n:#\r\n$17\r\nnext-awake-within\r\n:#\r\n"
        + b"$4\r\nbody\r\n$5\r\nhello\r\n"
    )
    assert re.fullmatch(re.escape(shape).replace(rb"\#", rb"\d+"), answer), answer
    shown = wire.show(id)
    assert abs(shown[b"ctime"] / 1e9 - time.time()) < 5
    assert 0 < shown[b"next-awake-within"] <= shown[b"next-requeue-within"] <= 5_000


def test_ctime_grows_with_every_job(wire: Wire, queue: bytes) -> None:
    wire.send_raw(command("ADDJOB", queue, "", 0) * 100)
    ids = [wire.read()[1:-2] for _ in range(100)]
    times = [wire.show(id)[b"ctime"] for id in ids]
    assert times == sorted(set(times))


def test_show_of_a_queued_job_has_a_number_for_its_next_requeue(wire: Wire, queue: bytes) -> None:
    """It would be queued again one retry time after its delivery. A job with RETRY 0 never is."""
    assert wire.show(wire.add(queue, "body", "RETRY", 5))[b"next-requeue-within"] == 5_000
    assert wire.show(wire.add(queue, "body", "RETRY", 0))[b"next-requeue-within"] is None


def test_show_of_a_job_that_is_not_there_is_null(wire: Wire, life: Life) -> None:
    assert wire.ask("SHOW", NO_SUCH_JOB) == b"$-1\r\n"
    assert wire.ask("SHOW", life.acked()) == b"$-1\r\n"


# ---- The protocol ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["ADDJOB", "q", "body"], "addjob"),
        (["GETJOB"], "getjob"),
        (["Show"], "show"),
        (["SHOW", NO_SUCH_JOB, "x"], "show"),
        (["WORKING"], "working"),
        (["WORKING", NO_SUCH_JOB, "x"], "working"),
        (["LOADJOB"], "loadjob"),
        (["QLEN"], "qlen"),
        (["QSTAT", "a", "b"], "qstat"),
        (["QPEEK", "q"], "qpeek"),
        (["PAUSE", "q"], "pause"),
    ],
)
def test_the_number_of_words_is_checked_first(wire: Wire, words: list[bytes | str], name: str) -> None:
    assert wire.ask(*words) == f"-ERR wrong number of arguments for '{name}' command\r\n".encode()


def test_a_job_can_be_typed(wire: Wire) -> None:
    assert wire.type('addjob typed "a \\x62ody\\n" 0 retry 9')[:3] == b"+D-"
    assert wire.type("  getjob   from typed ").endswith(b"$7\r\na body\n\r\n")
    wire.send_raw(b"\r\n\nPING\n\r\n")
    assert wire.read() == b"+PONG\r\n"
    assert wire.type("addjob typed 'unbalanced 0") == b"-ERR Protocol error: unbalanced quotes in request\r\n"
    assert wire.read() == b""


def test_answers_come_in_the_order_of_the_commands_with_errors_among_them(wire: Wire, queue: bytes) -> None:
    wire.send_raw(
        command("ADDJOB", queue, "1", 0)
        + command("ADDJOB", queue, "2", 0, "TTL", 0)
        + command("NOSUCH")
        + command("QLEN", queue)
        + command("GETJOB", "COUNT", 5, "FROM", queue)
        + command("QLEN")
        + command("ACKJOB", "x")
        + command("PING", "end")
    )
    answers = [wire.read() for _ in range(8)]
    assert [answer[:1] for answer in answers] == [b"+", b"-", b"-", b":", b"*", b"-", b"-", b"$"]
    assert answers[2] == b"-ERR unknown command 'NOSUCH'\r\n"
    assert answers[7] == b"$3\r\nend\r\n"
