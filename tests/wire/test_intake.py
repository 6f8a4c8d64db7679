"""What a parser does with bytes is in proportion to how many there are, however small the pieces they come in.

What is copied is what is allocated: every feed and every parse is watched for how much memory it asks for, be it for a
moment. (Time would tell the same, on a machine where nobody else works.)
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.answers import AnswerParser
from penstock.wire.iproto import IprotoParser, Request
from penstock.wire.iproto import encode as packet
from penstock.wire.resp import RespParser
from tests.wire import model
from tests.wire.streams import BULK_MAX, encode, streams

MUCH = 1 << 30

# What a piece may cost beside its bytes: objects for commands and their words, and lists of them.
PIECE_BYTES = 2_000


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def call(name: bytes, *args: bytes) -> bytes:
    request = Request(10, 1)
    request.name = name
    request.args = list(args)
    return packet(request)


def allocated(step: Callable[[], object]) -> int:
    """How many bytes more there were for a moment than before."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    step()
    return tracemalloc.get_traced_memory()[1] - before


def work(pieces: list[bytes], feed: Callable[[bytes], None], parse: Callable[[], object]) -> int:
    """How many bytes are allocated in all while these come in, each of which is read as far as that goes."""
    parse()  # What is imported or made once.
    tracemalloc.start()
    try:
        return sum(allocated(partial(feed, piece)) + allocated(parse) for piece in pieces)
    finally:
        tracemalloc.stop()


def assert_in_proportion(pieces: list[bytes], feed: Callable[[bytes], None], parse: Callable[[], object]) -> None:
    assert work(pieces, feed, parse) < 8 * sum(map(len, pieces)) + PIECE_BYTES * len(pieces)


# Nobody reads: the client waits for a job, and what it sends behind that waits too


@pytest.mark.parametrize(
    "piece",
    [b"PING\r\n" * 10, encode([b"PING"]) * 4, b"x" * 60, b"*1\r\n$4\r\nPI"],
    ids=["typed", "sent", "junk", "cut"],
)
def test_commands_that_wait_are_not_copied_for_each_that_comes_behind_them(piece: bytes) -> None:
    parser = RespParser(MUCH, MUCH)
    parser.feed(b"PING\r\nPING\r\n")
    assert parser.parse(1) == [[b"PING"]]
    assert_in_proportion([piece] * 4_000, parser.feed, lambda: None)
    assert parser.pending() == 6 + 4_000 * len(piece)


def test_nor_are_requests() -> None:
    parser = IprotoParser(MUCH, MUCH)
    request = call(b"queue.tube.q:take", b"\x01")
    parser.feed(request * 2)
    assert len(parser.parse(1)) == 1
    assert_in_proportion([request] * 4_000, parser.feed, lambda: None)
    assert len(parser.parse(5_000)) == 4_001


def test_nor_are_answers() -> None:
    parser = AnswerParser()
    parser.feed(b":1\r\n:2")
    assert parser.parse() == [1]
    assert_in_proportion([b"\r\n:2"] * 4_000, parser.feed, lambda: None)
    assert parser.parse() == [2] * 4_000


def test_commands_that_are_read_one_by_one_while_more_come_are_not_copied_for_each() -> None:
    parser = RespParser(MUCH, MUCH)
    parser.feed(encode([b"PING", b"x"]) * 4_000)
    found: list[list[bytes]] = []
    assert_in_proportion([encode([b"PING", b"y"])] * 4_000, parser.feed, lambda: found.extend(parser.parse(1)))
    found += parser.parse(MUCH)
    assert found == [[b"PING", b"x"]] * 4_000 + [[b"PING", b"y"]] * 4_000


def test_requests_that_are_read_one_by_one_while_more_come_are_not_copied_for_each() -> None:
    parser = IprotoParser(MUCH, MUCH)
    parser.feed(call(b"x") * 4_000)
    found: list[Request] = []
    assert_in_proportion([call(b"y")] * 4_000, parser.feed, lambda: found.extend(parser.parse(1)))
    found += parser.parse(MUCH)
    assert [request.name for request in found] == [b"x"] * 4_000 + [b"y"] * 4_000


def test_of_one_who_is_unknown_no_more_is_looked_at_than_the_next_command() -> None:
    parser = RespParser(MUCH, MUCH, known=False)
    parser.feed(encode([b"PING"]) * 4_000)
    assert work([b""] * 1_000, parser.feed, lambda: parser.parse(1)) < PIECE_BYTES * 1_000
    assert parser.pending() == 3_000 * len(encode([b"PING"])) - len(encode([b"PING"]))


# It makes no difference when somebody reads


def in_turns(data: bytes, script: list[tuple[int, int]], parser: RespParser | IprotoParser) -> list[object]:
    """What comes of data of which so many bytes come in, then so many commands are read, and so on."""
    found: list[object] = []
    for size, most in script:
        parser.feed(data[:size])
        data = data[size:]
        found += parser.parse(most) if most else []
    parser.feed(data)
    found += parser.parse(MUCH)
    assert not parser.has_more
    return found


scripts = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=20)


@given(streams, scripts, st.booleans())
def test_commands_are_the_same_whenever_they_are_read(data: bytes, script: list[tuple[int, int]], known: bool) -> None:
    parser = RespParser(BULK_MAX, MUCH, known)
    meant, error = model.requests(data, BULK_MAX, known)
    assert in_turns(data, script, parser) == meant
    assert parser.error == (b"Protocol error: " + error if error else b"")


@given(st.lists(st.binary(max_size=40), max_size=8), st.binary(max_size=8), scripts)
def test_requests_are_the_same_whenever_they_are_read(
    names: list[bytes], behind: bytes, script: list[tuple[int, int]]
) -> None:
    data = b"".join(map(call, names)) + behind
    parser, whole = IprotoParser(MUCH, MUCH), IprotoParser(MUCH, MUCH)
    found = in_turns(data, script, parser)
    assert [request.name for request in found if isinstance(request, Request)][: len(names)] == names
    assert len(found) == len(in_turns(data, [], whole))
    assert (parser.error, parser.pending()) == (whole.error, whole.pending())


def test_bytes_that_came_behind_a_length_are_read_before_later_ones() -> None:
    parser = AnswerParser()
    for piece in (b"$3\r\n", b"a"):
        parser.feed(piece)
    assert parser.parse() == []
    parser.feed(b"bc\r\n")
    assert parser.parse() == [b"abc"]


@given(st.lists(st.sampled_from([b":1\r\n", b"$3\r\na\r\n\r\n", b"+x\n\r\r\n", b"*2\r\n", b"~2\r\n"])), scripts)
def test_answers_are_the_same_whenever_they_are_read(parts: list[bytes], script: list[tuple[int, int]]) -> None:
    parser, whole = AnswerParser(), AnswerParser()
    data = b"".join(parts)
    whole.feed(data)
    found: list[object] = []
    at = 0
    for size, times in script:
        parser.feed(data[at : at + size])
        at += size
        found += parser.parse() if times else []
    parser.feed(data[at:])
    assert found + parser.parse() == whole.parse()
    assert parser.is_idle() == whole.is_idle()


# Everybody reads as far as it goes, and that is not far

SENT: dict[str, tuple[bytes, int, list[list[bytes]]]] = {
    "a long line, byte by byte": (b"PING " + b"x" * 60_000 + b"\n", 1, [[b"PING", b"x" * 60_000]]),
    "a line of CR": (b"PING " + b"\r" * 60_000 + b"\n", 1, [[b"PING"]]),
    "a body, byte by byte": (encode([b"x" * 60_000]), 1, [[b"x" * 60_000]]),
    "a long body in packets": (encode([b"x" * 4_000_000]), 1_000, [[b"x" * 4_000_000]]),
    "many words, byte by byte": (encode([b"x"] * 8_000), 1, [[b"x"] * 8_000]),
    "many words in small pieces": (encode([b"x"] * 50_000), 60, [[b"x"] * 50_000]),
    "a long body behind small ones": (encode([b"x"] * 999 + [b"y" * 60_000]), 7, [[b"x"] * 999 + [b"y" * 60_000]]),
    "many commands": (encode([b"PING", b"x"]) * 3_000, 11, [[b"PING", b"x"]] * 3_000),
    "many typed": (b"PING x\n" * 3_000, 5, [[b"PING", b"x"]] * 3_000),
}


@pytest.mark.parametrize(("data", "size", "meant"), SENT.values(), ids=SENT)
def test_commands_in_small_pieces_cost_what_they_are_long(data: bytes, size: int, meant: list[list[bytes]]) -> None:
    parser = RespParser(MUCH, MUCH)
    found: list[list[bytes]] = []
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse(256)))
    assert found == meant
    assert not parser.is_unfinished()


@pytest.mark.parametrize("line", [b"*" + b"\n" * 60_000, b"*" + b"\r" * 60_000, b"*1\r\n$" + b"\n" * 60_000])
def test_a_line_of_halves_of_its_end_costs_what_it_is_long(line: bytes) -> None:
    parser = RespParser(MUCH, MUCH)
    assert_in_proportion(cut(line, 1), parser.feed, lambda: parser.parse(256))
    assert parser.pending() >= 60_000
    parser.feed(b"\r\n")
    assert parser.parse(256) == [] and parser.error


@pytest.mark.parametrize(("length", "size"), [(60_000, 1), (4_000_000, 1_000)])
def test_requests_in_small_pieces_cost_what_they_are_long(length: int, size: int) -> None:
    parser = IprotoParser(MUCH, MUCH)
    found: list[Request] = []
    data = call(b"x", b"\xc6" + length.to_bytes(4, "big") + bytes(length)) + call(b"y")
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse(256)))
    assert [request.name for request in found] == [b"x", b"y"]


ANSWERED: dict[str, tuple[bytes, int, list[object]]] = {
    "a long line": (b"+" + b"x" * 60_000 + b"\r\n", 1, [b"x" * 60_000]),
    "a long line with halves of its end": (b"+" + b"x\r" * 30_000 + b"\r\n", 1, [b"x\r" * 30_000]),
    "a bulk": (b"$60000\r\n" + b"x" * 60_000 + b"\r\n", 1, [b"x" * 60_000]),
    "an array of small bulks": (b"*8000\r\n" + b"$1\r\nx\r\n" * 8_000, 1, [[b"x"] * 8_000]),
    "many numbers": (b":1\r\n" * 8_000, 7, [1] * 8_000),
}


@pytest.mark.parametrize(("data", "size", "meant"), ANSWERED.values(), ids=ANSWERED)
def test_answers_in_small_pieces_cost_what_they_are_long(data: bytes, size: int, meant: list[object]) -> None:
    parser = AnswerParser()
    found: list[object] = []
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse()))
    assert found == meant and parser.is_idle()


# Nothing is kept of what was taken


def kept(feed_and_parse: Callable[[], object]) -> int:
    """How many bytes are still there afterwards."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        feed_and_parse()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("behind", [b"", b"*1\r\n$4\r\nPI"])
def test_a_client_that_idles_keeps_none_of_its_commands(behind: bytes) -> None:
    parser = RespParser(MUCH, MUCH)

    def run() -> None:
        parser.feed(bytes(bytearray(encode([b"x" * 5_000] * 200) + behind)))
        assert len(parser.parse(10)) == 1

    assert kept(run) < 65_536


def test_nor_of_its_requests() -> None:
    parser = IprotoParser(MUCH, MUCH)

    def run() -> None:
        parser.feed(bytes(bytearray(call(b"x", b"\xc6" + (1_000_000).to_bytes(4, "big") + bytes(1_000_000)) + b"\xce")))
        assert len(parser.parse(10)) == 1

    assert kept(run) < 65_536


def test_nor_of_its_answers() -> None:
    parser = AnswerParser()

    def run() -> None:
        parser.feed(bytes(bytearray(b"$1000000\r\n" + bytes(1_000_000) + b"\r\n:1")))
        assert len(parser.parse()) == 1

    assert kept(run) < 65_536
