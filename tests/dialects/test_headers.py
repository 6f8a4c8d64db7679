"""Headers over RESP: PUT, MPUT and TAKE of the native commands, ADDJOB, GETJOB and SHOW of Disque."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.core.limits import HEADERS_MAX
from penstock.node.context import ANSWER_BYTES_MAX
from penstock.wire.headers import decode_headers
from tests.server.serving import decoded, pairs

from .command_engine import CommandEngine

FIELDS = ["id", "tube", "body", "as", "number", "key", "deliveries", "nacks", "once", "created"]


@pytest.fixture
def shop() -> CommandEngine:
    return CommandEngine()


def taken(reply: bytes) -> dict[bytes, Any]:
    """Return the only job in a reply of RESP 2."""
    (fields,) = decoded(reply)
    return pairs(fields)


def test_a_job_is_taken_with_its_headers_if_they_are_asked_for(shop: CommandEngine) -> None:
    for _ in range(3):
        shop.call("PUT", "t", "body", "HEADER", "trace", "1", "DELAY", 0, "header", "raw", b"\xff\0")
    (without,) = shop.call("TAKE", "t")
    (fast,) = shop.call("TAKE", "t", "HEADERS")
    (other,) = shop.call("TAKE", "t", "headers", "COUNT", 1)
    assert list(without) == FIELDS
    assert list(fast) == list(other) == [*FIELDS, "headers"]
    assert fast["headers"] == other["headers"] == {"trace": b"1", "raw": b"\xff\0"}


def test_in_resp_2_headers_are_a_flat_list(shop: CommandEngine) -> None:
    shop.ask(b"PUT", b"t", b"body", b"HEADER", b"n", b"v")
    assert taken(shop.ask(b"TAKE", b"t", b"HEADERS"))[b"headers"] == [b"n", b"v"]


def test_a_job_without_headers_is_written_as_without_the_option(shop: CommandEngine) -> None:
    for _ in range(2):
        shop.call("PUT", "t", "body")
    assert list(shop.call("TAKE", "t", "HEADERS")[0]) == list(shop.call("TAKE", "t")[0]) == FIELDS


def test_a_take_that_waited_replies_with_headers_if_asked(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    asking, other = shop.another(), shop.another()
    shop.ask(b"TAKE", b"t", b"HEADERS", b"TIMEOUT", b"9s", caller=asking)
    shop.ask(b"TAKE", b"t", b"TIMEOUT", b"9s", caller=other)
    for _ in range(2):
        shop.call("PUT", "t", "body", "HEADER", "n", "v")
    shop.serve()
    assert taken(asking.reply.take())[b"headers"] == [b"n", b"v"]
    assert b"headers" not in other.reply.take()


def test_a_batch_has_headers_for_all_jobs_and_for_each(shop: CommandEngine) -> None:
    words = ["HEADER", "a", "common", "HEADER", "b", "common", "JOB", "1", "JOB", "2", "HEADER", "b", "own", "JOB", "3"]
    assert len(shop.call("MPUT", "t", *words)) == 3
    common = {"a": b"common", "b": b"common"}
    jobs = shop.call("TAKE", "t", "COUNT", 3, "HEADERS")
    assert [job["headers"] for job in jobs] == [common, {**common, "b": b"own"}, common]


def test_headers_come_before_the_further_tubes_of_a_take(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    shop.call("PUT", "u", "body", "HEADER", "n", "v")
    (job,) = shop.call("TAKE", "t", "HEADERS", "AND", "u")
    assert job["headers"] == {"n": b"v"}


def test_commands_that_show_a_job_show_its_headers(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "body", "NAME", "name", "HEADER", "n", "v")
    plain = shop.call("PUT", "t", "body")
    shown = [
        shop.call("JOB", "PEEK", id),
        shop.call("JOB", "NAMED", "t", "name"),
        shop.call("JOB", "LIST", "t", "ready")[0],
        shop.call("JOB", "SCAN", 0)[1][0],
    ]
    assert [job["headers"] for job in shown] == [{"n": b"v"}] * 4
    assert list(shop.call("JOB", "PEEK", plain)) == [*FIELDS, "state"]


def test_columns_have_headers_if_asked(shop: CommandEngine) -> None:
    shop.call("PUT", "t", "1", "HEADER", "n", "v")
    shop.call("PUT", "t", "2")
    shop.call("PUT", "t", "3", "HEADER", "a", "", "HEADER", "b", "c")
    (plain,) = shop.call("JOB", "SCAN", 0, "PACKED")[1]
    (with_headers,) = shop.call("JOB", "SCAN", 0, "PACKED", "HEADERS")[1]
    assert with_headers[:-3] == plain and len(plain) == 16
    present, ends, data = with_headers[-3:]
    assert present == b"\1\0\1"
    at = [int.from_bytes(ends[i : i + 4], "little") for i in range(0, len(ends), 4)]
    values = [decode_headers(data[start:end]) for start, end in itertools.pairwise(at)]
    assert values == [{"n": b"v"}, {}, {"a": b"", "b": b"c"}]


MANY = [word for number in range(HEADERS_MAX + 1) for word in ("HEADER", number, "")]
BAD: list[tuple[list[Any], str]] = [
    (["HEADER"], "SYNTAX"),
    (["HEADER", "name"], "SYNTAX"),
    (["HEADER", "", "v"], "BADHEADERS"),
    (["HEADER", b"\xff", "v"], "BADHEADERS"),
    (["HEADER", "n", "1", "HEADER", "n", "2"], "BADHEADERS"),
    (["HEADER", "n", "x" * 8 * 1024], "BADHEADERS"),
    (MANY, "BADHEADERS"),
]


@pytest.mark.parametrize(("words", "code"), BAD, ids=lambda each: str(each)[:40])
def test_bad_headers_are_refused_and_nothing_is_stored(shop: CommandEngine, words: list[Any], code: str) -> None:
    commands: list[list[Any]] = [
        ["PUT", "t", "body", *words],
        ["MPUT", "t", "ONCE", *words] if code == "SYNTAX" else ["MPUT", "t", *words, "JOB", "body"],
        ["MPUT", "t", "JOB", "good", "HEADER", "a", "b", "JOB", "body", *words],
    ]
    for command in commands:
        assert str(shop.call(*command)).startswith(code), command
    refusal = str(shop.call("ADDJOB", "t", "body", 0, *words))
    assert refusal.startswith("ERR syntax error" if code == "SYNTAX" else code)
    assert shop.engine.jobs.count == 0 and not shop.engine.tubes


def test_headers_are_counted_in_the_room_that_a_put_needs(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    shop.engine.room_bytes = 1_000
    for words in (["PUT", "t", ""], ["MPUT", "t", "JOB", ""], ["ADDJOB", "t", "", 0]):
        shop.asked_for = 0
        assert str(shop.call(*words, "HEADER", "n", "x" * 2_000)).startswith("NOSPACE")
        assert shop.asked_for > 2_000
    assert shop.engine.jobs.count == 0


def test_addjob_and_getjob_have_headers_as_an_extension(shop: CommandEngine) -> None:
    for _ in range(4):
        shop.ask(b"ADDJOB", b"q", b"body", b"0", b"HEADER", b"n", b"v", b"ASYNC", b"header", b"m", b"\xff")
    headers = [b"headers", [b"n", b"v", b"m", b"\xff"]]
    get = [b"GETJOB", b"NOHANG"]
    ((_, id, _),) = decoded(shop.ask(*get, b"FROM", b"q"))
    ((*_, body, word, found),) = decoded(shop.ask(*get, b"withheaders", b"FROM", b"q"))
    assert (body, [word, found]) == (b"body", headers)
    (both,) = decoded(shop.ask(*get, b"WITHHEADERS", b"WITHCOUNTERS", b"FROM", b"q"))
    assert both[3:] == [b"nacks", 0, b"additional-deliveries", 0, *headers]
    assert len(id) == 40


def test_a_getjob_that_waited_replies_with_headers_if_asked(shop: CommandEngine) -> None:
    callers = [shop.another() for _ in range(3)]
    shop.ask(b"GETJOB", b"WITHHEADERS", b"FROM", b"q", caller=callers[0])
    shop.ask(b"GETJOB", b"WITHHEADERS", b"WITHCOUNTERS", b"FROM", b"q", caller=callers[1])
    shop.ask(b"GETJOB", b"FROM", b"q", caller=callers[2])
    shop.ask(b"ADDJOB", b"q", b"body", b"0", b"HEADER", b"n", b"v")
    shop.ask(b"ADDJOB", b"q", b"body", b"0")
    shop.ask(b"ADDJOB", b"q", b"body", b"0", b"HEADER", b"n", b"v")
    shop.serve()
    first, second, third = (decoded(caller.reply.take())[0] for caller in callers)
    assert first[3:] == [b"headers", [b"n", b"v"]]
    assert second[3:] == [b"nacks", 0, b"additional-deliveries", 0, b"headers", []]
    assert len(third) == 3


def test_show_has_the_headers_of_a_job_that_has_some(shop: CommandEngine) -> None:
    id = shop.ask(b"ADDJOB", b"q", b"body", b"0", b"HEADER", b"n", b"v")[1:-2]
    plain = shop.ask(b"ADDJOB", b"q", b"body", b"0")[1:-2]
    shop.disque.show(shop.caller, [b"SHOW", id], shop.now)
    assert decoded(shop.caller.reply.take())[28:] == [b"body", b"body", b"headers", [b"n", b"v"]]
    shop.disque.show(shop.caller, [b"SHOW", plain], shop.now)
    assert len(decoded(shop.caller.reply.take())) == 30


def test_a_reply_stops_when_headers_fill_it(shop: CommandEngine) -> None:
    count = 900
    for _ in range(count):
        shop.call("PUT", "t", "x" * 16_000, "HEADER", "n", "x" * 8_000)
    assert count * 16_000 < ANSWER_BYTES_MAX < count * 24_000
    assert len(shop.call("TAKE", "t", "COUNT", count, "HEADERS")) == ANSWER_BYTES_MAX // 24_005 + 1
