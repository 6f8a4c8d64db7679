"""The work of a parser is proportional to the number of bytes, however small the pieces are in which they arrive.

Copied bytes are allocated bytes, so the tests measure how much memory each `feed` and `parse` allocates, even for a
moment. (Time would show the same, but only on an idle machine.)
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.iproto import IprotoParser, Request
from penstock.wire.iproto import encode as packet
from penstock.wire.resp import RespParser
from penstock.wire.resp_client import ReplyParser
from tests.wire import resp_model
from tests.wire.client_input import BULK_MAX, encode, streams

MUCH = 1 << 30

# A piece may allocate this much in addition to its bytes: objects for commands and their words, and lists of them.
PIECE_BYTES = 2_000


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def call(name: bytes, *args: bytes) -> bytes:
    request = Request(10, 1)
    request.name = name
    request.args = list(args)
    return packet(request)


def allocated(step: Callable[[], object]) -> int:
    """Return the peak of allocated bytes during a call, above the level before it."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    step()
    return tracemalloc.get_traced_memory()[1] - before


def work(pieces: list[bytes], feed: Callable[[bytes], None], parse: Callable[[], object]) -> int:
    """Return the bytes that are allocated in total while these pieces arrive and are parsed as far as possible."""
    parse()  # Modules and constants that are made only once.
    tracemalloc.start()
    try:
        return sum(allocated(partial(feed, piece)) + allocated(parse) for piece in pieces)
    finally:
        tracemalloc.stop()


def assert_in_proportion(pieces: list[bytes], feed: Callable[[bytes], None], parse: Callable[[], object]) -> None:
    assert work(pieces, feed, parse) < 8 * sum(map(len, pieces)) + PIECE_BYTES * len(pieces)


# The parser does not run: the client waits for a job, and its later commands wait as well


@pytest.mark.parametrize(
    "piece",
    [b"PING\r\n" * 10, encode([b"PING"]) * 4, b"x" * 60, b"*1\r\n$4\r\nPI"],
    ids=["typed", "sent", "junk", "cut"],
)
def test_waiting_commands_are_not_copied_for_each_later_one(piece: bytes) -> None:
    parser = RespParser(MUCH, MUCH)
    parser.feed(b"PING\r\nPING\r\n")
    assert parser.parse(1) == [[b"PING"]]
    assert_in_proportion([piece] * 4_000, parser.feed, lambda: None)
    assert parser.pending() == 6 + 4_000 * len(piece)


def test_waiting_requests_are_not_copied_for_each_later_one() -> None:
    parser = IprotoParser(MUCH, MUCH)
    request = call(b"queue.tube.q:take", b"\x01")
    parser.feed(request * 2)
    assert len(parser.parse(1)) == 1
    assert_in_proportion([request] * 4_000, parser.feed, lambda: None)
    assert len(parser.parse(5_000)) == 4_001


def test_waiting_replies_are_not_copied_for_each_later_one() -> None:
    parser = ReplyParser()
    parser.feed(b":1\r\n:2")
    assert parser.parse() == [1]
    assert_in_proportion([b"\r\n:2"] * 4_000, parser.feed, lambda: None)
    assert parser.parse() == [2] * 4_000


def test_commands_parsed_one_by_one_are_not_copied_for_each_arrival() -> None:
    parser = RespParser(MUCH, MUCH)
    parser.feed(encode([b"PING", b"x"]) * 4_000)
    found: list[list[bytes]] = []
    assert_in_proportion([encode([b"PING", b"y"])] * 4_000, parser.feed, lambda: found.extend(parser.parse(1)))
    found += parser.parse(MUCH)
    assert found == [[b"PING", b"x"]] * 4_000 + [[b"PING", b"y"]] * 4_000


def test_requests_parsed_one_by_one_are_not_copied_for_each_arrival() -> None:
    parser = IprotoParser(MUCH, MUCH)
    parser.feed(call(b"x") * 4_000)
    found: list[Request] = []
    assert_in_proportion([call(b"y")] * 4_000, parser.feed, lambda: found.extend(parser.parse(1)))
    found += parser.parse(MUCH)
    assert [request.name for request in found] == [b"x"] * 4_000 + [b"y"] * 4_000


def test_only_the_next_command_of_an_unauthenticated_client_is_parsed() -> None:
    parser = RespParser(MUCH, MUCH, known=False)
    parser.feed(encode([b"PING"]) * 4_000)
    assert work([b""] * 1_000, parser.feed, lambda: parser.parse(1)) < PIECE_BYTES * 1_000
    assert parser.pending() == 3_000 * len(encode([b"PING"])) - len(encode([b"PING"]))


# The result does not depend on when the parser runs


def in_turns(data: bytes, script: list[tuple[int, int]], parser: RespParser | IprotoParser) -> list[object]:
    """Return the results if bytes arrive in portions and some commands are parsed after each portion."""
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
def test_commands_do_not_depend_on_when_they_are_parsed(
    data: bytes, script: list[tuple[int, int]], known: bool
) -> None:
    parser = RespParser(BULK_MAX, MUCH, known)
    meant, error = resp_model.requests(data, BULK_MAX, known)
    assert in_turns(data, script, parser) == meant
    assert parser.error == (b"Protocol error: " + error if error else b"")


@given(st.lists(st.binary(max_size=40), max_size=8), st.binary(max_size=8), scripts)
def test_requests_do_not_depend_on_when_they_are_parsed(
    names: list[bytes], behind: bytes, script: list[tuple[int, int]]
) -> None:
    data = b"".join(map(call, names)) + behind
    parser, whole = IprotoParser(MUCH, MUCH), IprotoParser(MUCH, MUCH)
    found = in_turns(data, script, parser)
    assert [request.name for request in found if isinstance(request, Request)][: len(names)] == names
    assert len(found) == len(in_turns(data, [], whole))
    assert (parser.error, parser.pending()) == (whole.error, whole.pending())


def test_bytes_after_a_length_are_parsed_before_later_ones() -> None:
    parser = ReplyParser()
    for piece in (b"$3\r\n", b"a"):
        parser.feed(piece)
    assert parser.parse() == []
    parser.feed(b"bc\r\n")
    assert parser.parse() == [b"abc"]


@given(st.lists(st.sampled_from([b":1\r\n", b"$3\r\na\r\n\r\n", b"+x\n\r\r\n", b"*2\r\n", b"~2\r\n"])), scripts)
def test_replies_do_not_depend_on_when_they_are_parsed(parts: list[bytes], script: list[tuple[int, int]]) -> None:
    parser, whole = ReplyParser(), ReplyParser()
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


# The parser runs after every piece, but the pieces are small

SENT: dict[str, tuple[bytes, int, list[list[bytes]]]] = {
    "a long line, byte by byte": (b"PING " + b"x" * 60_000 + b"\n", 1, [[b"PING", b"x" * 60_000]]),
    "a line of CR": (b"PING " + b"\r" * 60_000 + b"\n", 1, [[b"PING"]]),
    "a body, byte by byte": (encode([b"x" * 60_000]), 1, [[b"x" * 60_000]]),
    "a long body in packets": (encode([b"x" * 4_000_000]), 1_000, [[b"x" * 4_000_000]]),
    "many words, byte by byte": (encode([b"x"] * 8_000), 1, [[b"x"] * 8_000]),
    "many words in small pieces": (encode([b"x"] * 50_000), 60, [[b"x"] * 50_000]),
    "a long body after small ones": (encode([b"x"] * 999 + [b"y" * 60_000]), 7, [[b"x"] * 999 + [b"y" * 60_000]]),
    "many commands": (encode([b"PING", b"x"]) * 3_000, 11, [[b"PING", b"x"]] * 3_000),
    "many inline commands": (b"PING x\n" * 3_000, 5, [[b"PING", b"x"]] * 3_000),
}


@pytest.mark.parametrize(("data", "size", "meant"), SENT.values(), ids=SENT)
def test_the_work_for_commands_in_small_pieces_is_linear(data: bytes, size: int, meant: list[list[bytes]]) -> None:
    parser = RespParser(MUCH, MUCH)
    found: list[list[bytes]] = []
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse(256)))
    assert found == meant
    assert not parser.is_unfinished()


@pytest.mark.parametrize("line", [b"*" + b"\n" * 60_000, b"*" + b"\r" * 60_000, b"*1\r\n$" + b"\n" * 60_000])
def test_the_work_for_a_line_of_half_line_ends_is_linear(line: bytes) -> None:
    parser = RespParser(MUCH, MUCH)
    assert_in_proportion(cut(line, 1), parser.feed, lambda: parser.parse(256))
    assert parser.pending() >= 60_000
    parser.feed(b"\r\n")
    assert parser.parse(256) == [] and parser.error


@pytest.mark.parametrize(("length", "size"), [(60_000, 1), (4_000_000, 1_000)])
def test_the_work_for_requests_in_small_pieces_is_linear(length: int, size: int) -> None:
    parser = IprotoParser(MUCH, MUCH)
    found: list[Request] = []
    data = call(b"x", b"\xc6" + length.to_bytes(4, "big") + bytes(length)) + call(b"y")
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse(256)))
    assert [request.name for request in found] == [b"x", b"y"]


ANSWERED: dict[str, tuple[bytes, int, list[object]]] = {
    "a long line": (b"+" + b"x" * 60_000 + b"\r\n", 1, [b"x" * 60_000]),
    "a long line of half line ends": (b"+" + b"x\r" * 30_000 + b"\r\n", 1, [b"x\r" * 30_000]),
    "a bulk": (b"$60000\r\n" + b"x" * 60_000 + b"\r\n", 1, [b"x" * 60_000]),
    "an array of small bulks": (b"*8000\r\n" + b"$1\r\nx\r\n" * 8_000, 1, [[b"x"] * 8_000]),
    "many numbers": (b":1\r\n" * 8_000, 7, [1] * 8_000),
}


@pytest.mark.parametrize(("data", "size", "meant"), ANSWERED.values(), ids=ANSWERED)
def test_the_work_for_replies_in_small_pieces_is_linear(data: bytes, size: int, meant: list[object]) -> None:
    parser = ReplyParser()
    found: list[object] = []
    assert_in_proportion(cut(data, size), parser.feed, lambda: found.extend(parser.parse()))
    assert found == meant and parser.is_idle()


# Consumed bytes are not kept


def kept(feed_and_parse: Callable[[], object]) -> int:
    """Return the bytes that are still allocated afterwards."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        feed_and_parse()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("behind", [b"", b"*1\r\n$4\r\nPI"])
def test_consumed_commands_of_an_idle_client_are_freed(behind: bytes) -> None:
    parser = RespParser(MUCH, MUCH)

    def run() -> None:
        parser.feed(bytes(bytearray(encode([b"x" * 5_000] * 200) + behind)))
        assert len(parser.parse(10)) == 1

    assert kept(run) < 65_536


def test_consumed_requests_of_an_idle_client_are_freed() -> None:
    parser = IprotoParser(MUCH, MUCH)

    def run() -> None:
        parser.feed(bytes(bytearray(call(b"x", b"\xc6" + (1_000_000).to_bytes(4, "big") + bytes(1_000_000)) + b"\xce")))
        assert len(parser.parse(10)) == 1

    assert kept(run) < 65_536


def test_consumed_replies_of_an_idle_client_are_freed() -> None:
    parser = ReplyParser()

    def run() -> None:
        parser.feed(bytes(bytearray(b"$1000000\r\n" + bytes(1_000_000) + b"\r\n:1")))
        assert len(parser.parse()) == 1

    assert kept(run) < 65_536
