"""The RESP parser: any bytes, cut in any way, give the commands in them, or one error."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.wire.resp import (
    ARGS_COUNT_MAX,
    DISCARDED_BULK_BYTES_MAX,
    LINE_BYTES_MAX,
    UNKNOWN_ARGS_MAX,
    UNKNOWN_BULK_BYTES_MAX,
    UNKNOWN_LINE_BYTES_MAX,
    RespParser,
)
from tests.wire import resp_model
from tests.wire.client_input import BUFFER_MAX, BULK_MAX, EVERYTHING, bytewise, commands, encode, pieces, read, streams

TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(40))
IPROTO_PING = bytes.fromhex("ce00000005820040010181")

COUNT = b"invalid multibulk length"
BULK = b"invalid bulk length"
CRLF = b"expected CRLF after a bulk"
QUOTES = b"unbalanced quotes in request"
PING = [[b"PING"]]
TOO_LONG = encode([b"ADDJOB", b"q", b"x" * (BULK_MAX + 1), b"0"])

# The input, the commands in it, and the error in the rest. The input is complete.
CASES: dict[str, tuple[bytes, list[list[bytes]], bytes]] = {
    "a command": (b"*1\r\n$4\r\nPING\r\n", PING, b""),
    "two commands": (b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\n", [*PING, [b"QLEN", b"q"]], b""),
    "an empty argument": (b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n", [[b"PING", b""]], b""),
    "line ends in a body": (b"*2\r\n$4\r\nPING\r\n$6\r\n\r\na\r\n\n\r\n", [[b"PING", b"\r\na\r\n\n"]], b""),
    "a body that is a command": (b"*1\r\n$14\r\n*1\r\n$4\r\nPING\r\n\r\n", [[b"*1\r\n$4\r\nPING\r\n"]], b""),
    "a body that ends in CR": (b"*1\r\n$2\r\na\r\r\n", [[b"a\r"]], b""),
    "no arguments": (b"*0\r\n*1\r\n$4\r\nPING\r\n", PING, b""),
    "a count of minus one": (b"*-1\r\n*1\r\n$4\r\nPING\r\n", PING, b""),
    "minus ten": (b"*-10\r\n", [], COUNT),
    "minus zero": (b"*-0\r\n", [], COUNT),
    "a count without digits": (b"*\r\n", [], COUNT),
    "a count with a letter": (b"*a\r\n", [], COUNT),
    "a count with a space before it": (b"* 1\r\n", [], COUNT),
    "a count with a space after it": (b"*1 \r\n", [], COUNT),
    "a count with a sign": (b"*+1\r\n", [], COUNT),
    "a count with an underscore": (b"*1_0\r\n", [], COUNT),
    "a count with non-ASCII digits": ("*١\r\n".encode(), [], COUNT),
    "a count in hex": (b"*0x1\r\n", [], COUNT),
    "a count with a fraction": (b"*1.0\r\n", [], COUNT),
    "a count above the limit": (b"*1048577\r\n", [], COUNT),
    "ten digits": (b"*9999999999\r\n", [], COUNT),
    "eleven digits": (b"*00000000001\r\n", [], COUNT),
    "2**64 + 1": (b"*18446744073709551617\r\n", [], COUNT),
    "5,000 digits": (b"*" + b"1" * 5_000 + b"\r\n", [], COUNT),
    "leading zeros": (b"*01\r\n$004\r\nPING\r\n", PING, b""),
    "a null argument": (b"*1\r\n$-1\r\n", [], BULK),
    "a length of minus ten": (b"*1\r\n$-10\r\n", [], BULK),
    "a length with a sign": (b"*1\r\n$+4\r\nPING\r\n", [], BULK),
    "a length with a space": (b"*1\r\n$4 \r\nPING\r\n", [], BULK),
    "a length without digits": (b"*1\r\n$\r\n", [], BULK),
    "a length of 5,000 digits": (b"*1\r\n$" + b"1" * 5_000 + b"\r\n", [], BULK),
    "a length that wraps 32 bits": (b"*1\r\n$4294967300\r\nPING\r\n", [], BULK),
    "an argument above the limit": (TOO_LONG, [resp_model.OVERSIZED], b""),
    "commands around an argument above the limit": (
        encode([b"PING"]) + TOO_LONG + encode([b"PING"]) + TOO_LONG * 2 + b"PING\n",
        [*PING, resp_model.OVERSIZED, *PING, resp_model.OVERSIZED, resp_model.OVERSIZED, *PING],
        b"",
    ),
    "only arguments above the limit": (encode([b"x" * (BULK_MAX + 1)] * 2), [resp_model.OVERSIZED], b""),
    "commands in an argument above the limit": (encode([b"PING\r\n" * BULK_MAX]), [resp_model.OVERSIZED], b""),
    "an argument above the limit with a wrong end": (TOO_LONG[:-9] + b"\n\r$1\r\n0\r\n", [], CRLF),
    "a wrong length after an argument above the limit": (TOO_LONG[:-7] + b"$x\r\n", [], BULK),
    "an argument above the limit of discarding": (b"*1\r\n$536870913\r\n", [], BULK),
    "an argument above the limit of discarding after one above the limit": (
        TOO_LONG[:-7] + b"$536870913\r\n",
        [],
        BULK,
    ),
    "a bulk without its mark": (b"*1\r\n:4\r\n", [], b"expected '$', got ':'"),
    "a bulk that is a control character": (b"*1\r\n\x1b[2J\r\n", [], b"expected '$', got '?'"),
    "a bulk that is an empty line": (b"*1\r\n\r\n", [], b"expected '$', got ''"),
    "a command in a command": (b"*2\r\n$4\r\nPING\r\n*1\r\n", [], b"expected '$', got '*'"),
    "a wrong end": (b"*1\r\n$4\r\nPINGxx", [], CRLF),
    "an end the wrong way round": (b"*1\r\n$4\r\nPING\n\r", [], CRLF),
    "an end of LF": (b"*2\r\n$4\r\nPING\n$1\r\na\r\n", [], CRLF),
    "a body that is too long": (b"*1\r\n$3\r\nPING\r\n", [], CRLF),
    "an error after commands": (b"*1\r\n$4\r\nPING\r\nPING\r\n*x\r\n", PING * 2, COUNT),
    "types of RESP3 as requests": (
        b"%1\r\n~1\r\n>1\r\n_\r\n#t\r\n(123\r\n,1.5\r\n",
        [[b"%1"], [b"~1"], [b">1"], [b"_"], [b"#t"], [b"(123"], [b",1.5"]],
        b"",
    ),
    "types of answers as requests": (b"+OK\r\n-ERR x\r\n:1\r\n", [[b"+OK"], [b"-ERR", b"x"], [b":1"]], b""),
    "an inline command": (b"PING\r\n", PING, b""),
    "an inline command with LF": (b"PING\nPING\n", PING * 2, b""),
    "an inline command with spaces": (b" \t PING  a\tb \r\n", [[b"PING", b"a", b"b"]], b""),
    "empty lines": (b"\r\n\n  \r\nPING\r\n", PING, b""),
    "an inline command between others": (b"*1\r\n$4\r\nPING\r\nPING\n*1\r\n$4\r\nPING\r\n", PING * 3, b""),
    "NUL, 0xFF and ESC": (b"PING\0\xff\x1b[2J\r\n", [[b"PING", b"\xff\x1b[2J"]], b""),
    "quotes": (b"""ADDJOB "my q" 'a b' x"y z"\r\n""", [[b"ADDJOB", b"my q", b"a b", b"xy z"]], b""),
    "escapes": (rb'PING "\n\r\t\b\a\x00\xfF\"\\\q\x4"' + b"\n", [[b"PING", b'\n\r\t\b\a\0\xff"\\qx4']], b""),
    "a hex digit short": (rb'PING "\x" "\x4" "\xg0"' + b"\n", [[b"PING", b"x", b"x4", b"xg0"]], b""),
    "single quotes": (rb"PING 'a\nb' 'it\'s' '\\x'" + b"\n", [[b"PING", rb"a\nb", b"it's", rb"\\x"]], b""),
    "backslashes before a closing single quote": (rb"PING 'a\\' b'" + b"\n", [[b"PING", rb"a\' b"]], b""),
    "empty words": (b"PING \"\" '' x\n", [[b"PING", b"x"]], b""),
    "only empty words": (b'""\nPING\n', PING, b""),
    "an open double quote": (b'PING "abc\r\n', [], QUOTES),
    "an open single quote": (b"PING 'abc\r\n", [], QUOTES),
    "a quote that closes within a word": (b'PING "a"b\n', [], QUOTES),
    "a quote that closes before a quote": (b"PING \"a\"'b'\n", [], QUOTES),
    "a quote that an escape keeps open": (rb'PING "a\"' + b"\n", [], QUOTES),
    "an escape at the end": (b'PING "a\\\n', [], QUOTES),
    "TLS": (TLS_HELLO, [], b"this looks like TLS, but this port is not encrypted; use the TLS port"),
    "IPROTO": (IPROTO_PING, [], b"this looks like IPROTO, but this port speaks RESP; use the IPROTO port"),
    "a greeting of Tarantool": (b"Tarantool 2.11\n", [[b"Tarantool", b"2.11"]], b""),
    "TLS, but not first": (b"PING\n\x16\x03\x01\n", [[b"PING"], [b"\x16\x03\x01"]], b""),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", [[b"HTTP"], [b"Host:", b"x"]], b""),
}


@pytest.mark.parametrize(("data", "found", "error"), CASES.values(), ids=CASES)
def test_each_case_is_read_whole_byte_by_byte_and_with_trailing_bytes(
    data: bytes, found: list[list[bytes]], error: bytes
) -> None:
    assert resp_model.requests(data, BULK_MAX) == (found, error)
    assert read([data]) == (found, error)
    assert read(bytewise(data)) == (found, error)
    for behind in (b"\xff\0*$", b"*1\r\n$4\r\nPI", b"*1"):
        assert read([data, behind]) == (found, error)
        assert read([data + behind]) == (found, error)
        assert read(bytewise(data + behind)) == (found, error)
    for whole in (b"PING\r\n", b"*1\r\n$4\r\nPING\r\n"):
        assert read([data + whole]) == (found + PING * (not error), error)
    assert read([data + b"*x\r\n"]) == (found, error or COUNT)


# Properties


@given(pieces(), st.booleans(), st.integers(1, 5))
@example((b"*1\r\n$1\r\n", [b"*1\r\n$", b"1\r\n"]), True, 1)
def test_however_the_network_cuts_it_the_commands_are_those_of_the_model(
    stream: tuple[bytes, list[bytes]], known: bool, at_once: int
) -> None:
    data, cut = stream
    meant = resp_model.requests(data, BULK_MAX, known)
    assert read([data], known=known) == meant
    assert read(cut, known=known) == meant
    assert read(bytewise(data), known=known) == meant
    assert read([data], known=known, at_once=at_once) == meant


@given(st.lists(commands, max_size=40), st.binary(max_size=20))
def test_exactly_the_encoded_commands_are_decoded(sent: list[list[bytes]], behind: bytes) -> None:
    data = b"".join(map(encode, sent))
    assert read([data]) == (sent, b"")
    found, _ = read([data + behind])
    assert found[: len(sent)] == sent


@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_a_command_without_its_last_byte_is_not_returned(sent: list[list[bytes]], data: st.DataObject) -> None:
    whole = b"".join(map(encode, sent))
    cut = data.draw(st.integers(0, len(whole) - 1))
    found, error = read([whole[:cut]])
    assert error == b""
    assert found == sent[: len(found)] != sent


@given(streams, st.binary(max_size=200))
def test_after_an_error_nothing_more_is_read_and_nothing_is_kept(data: bytes, behind: bytes) -> None:
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    parser.feed(data + b"*x\r\n")
    parser.parse(EVERYTHING)
    if not parser.error:  # The wrong bytes became part of the command before them.
        return
    error = parser.error
    parser.feed(behind + b"\r\nPING\r\n")
    assert parser.parse(100) == []
    assert parser.error == error
    assert not parser.is_unfinished()


@given(pieces())
def test_the_parser_never_keeps_more_bytes_than_it_received(stream: tuple[bytes, list[bytes]]) -> None:
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    came = 0
    for piece in stream[1]:
        came += len(piece)
        parser.feed(piece)
        parser.parse(1)
        assert 0 <= parser.pending() <= came


@given(st.lists(commands.map(encode) | st.just(b"PING\r\n"), min_size=1, max_size=4))
def test_is_unfinished_is_true_while_a_command_is_incomplete(sent: list[bytes]) -> None:
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    for command in sent:
        for byte in bytewise(command[:-1])[1:]:
            parser.feed(byte)
            parser.parse(EVERYTHING)
            assert parser.is_unfinished()
        parser.feed(command[-1:])
        assert parser.is_unfinished()
        assert len(parser.parse(EVERYTHING)) == 1
        assert not parser.is_unfinished()


def test_the_fast_path_and_the_general_path_can_alternate() -> None:
    plain, odd = [b"PING", b"x"], [b"PING", b"a\r\nb"]
    for sent in ([odd] * 50, [plain] * 50 + [odd] + [plain] * 50, [plain, odd] * 40, [[b"x" * 5_000], plain] * 20):
        assert read([b"".join(map(encode, sent))]) == (sent, b"")


def test_commands_can_be_returned_in_portions_of_any_size() -> None:
    sent = [[b"QLEN", b"%d" % number] for number in range(2_000)]
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    parser.feed(b"".join(map(encode, sent)))
    portions = [parser.parse(most) for most in (1, 7, 256, 10_000)]
    assert [len(portion) for portion in portions] == [1, 7, 256, 1_736]
    assert list(chain(*portions)) == sent
    assert parser.parse(0) == []


@pytest.mark.parametrize("nothing", [b"*0\r\n", b"*-1\r\n", b"\n", b" \r\n", b'""\n'])
def test_empty_commands_count_towards_the_limit_of_a_parse(nothing: bytes) -> None:
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    parser.feed(nothing * 100 + b"PING\r\n")
    assert parser.parse(60) == []
    assert parser.has_more
    assert parser.parse(60) == PING
    assert not parser.has_more


def test_the_time_per_command_does_not_depend_on_the_bytes_after_it() -> None:
    def seconds(count: int) -> float:
        parser = RespParser(BULK_MAX, BUFFER_MAX)
        parser.feed(b"*0\r\n" * count)
        began = time.process_time()
        parser.parse(EVERYTHING)
        return time.process_time() - began

    assert min(seconds(40_000) for _ in range(3)) < 20 * min(seconds(4_000) for _ in range(3))


@pytest.mark.parametrize("line", [b" x" * 32_000, b' "x"' * 16_000, b" 'x'" * 16_000, b'"' + b"\\x41" * 16_000 + b'"'])
def test_the_longest_inline_command_is_parsed_quickly(line: bytes) -> None:
    began = time.process_time()
    assert read([line + b"\n"])[1] == b""
    assert time.process_time() - began < 0.1  # Copying each byte to examine it took 0.15 s in compiled code.


# Limits: one below, at it, one above


def whole(data: bytes) -> list[bytes]:
    return [data]


def slowly(data: bytes) -> list[bytes]:
    """Cut bytes into single bytes at both ends, where the limits are."""
    return [*bytewise(data[:30]), *bytewise(data[30:], max(0, len(data) - 60))]


@pytest.mark.parametrize("way", [whole, slowly])
@pytest.mark.parametrize("over", [-1, 0, 1])
class TestLimits:
    def test_the_length_of_an_inline_command_is_limited(self, way: Callable[[bytes], list[bytes]], over: int) -> None:
        line = b"PING " + b"x" * (LINE_BYTES_MAX - 5 + over)
        meant = ([], b"too big inline request") if over > 0 else ([line.split()], b"")
        assert read(way(line + b"\n")) == meant
        assert read(way(line))[1] == meant[1]

    def test_the_line_of_an_argument_count_is_limited(self, way: Callable[[bytes], list[bytes]], over: int) -> None:
        line = b"*" + b"0" * (LINE_BYTES_MAX - 1 + over)
        error = b"too big mbulk count string" if over > 0 else COUNT
        assert read(way(line + b"\r\n")) == ([], error)

    def test_the_line_of_a_length_is_limited(self, way: Callable[[bytes], list[bytes]], over: int) -> None:
        line = b"$" + b"0" * (LINE_BYTES_MAX - 1 + over)
        error = b"too big bulk count string" if over > 0 else BULK
        assert read(way(b"*1\r\n" + line + b"\r\n")) == ([], error)

    @pytest.mark.parametrize("bulk_max", [10, 4_096, 4_097, 20_000])
    def test_the_length_of_an_argument_is_limited(
        self, way: Callable[[bytes], list[bytes]], over: int, bulk_max: int
    ) -> None:
        word = b"x" * (bulk_max + over)
        meant = resp_model.OVERSIZED if over > 0 else [word]
        assert read(way(encode([word])), bulk_max) == ([meant], b"")

    def test_the_length_of_an_argument_is_smaller_before_authentication(
        self, way: Callable[[bytes], list[bytes]], over: int
    ) -> None:
        word = b"x" * (UNKNOWN_BULK_BYTES_MAX + over)
        meant = ([], b"unauthenticated bulk length") if over > 0 else ([[word]], b"")
        assert read(way(encode([word])), 100_000, known=False) == meant

    def test_the_length_of_an_inline_command_is_smaller_before_authentication(
        self, way: Callable[[bytes], list[bytes]], over: int
    ) -> None:
        line = b"PING " + b"x" * (UNKNOWN_LINE_BYTES_MAX - 5 + over)
        meant = ([], b"too big inline request") if over > 0 else ([line.split()], b"")
        assert read(way(line + b"\n"), known=False) == meant
        assert read(way(line), known=False)[1] == meant[1]

    def test_the_number_of_arguments_is_smaller_before_authentication(
        self, way: Callable[[bytes], list[bytes]], over: int
    ) -> None:
        words = [b"x"] * (UNKNOWN_ARGS_MAX + over)
        meant = ([], b"unauthenticated multibulk length") if over > 0 else ([words], b"")
        assert read(way(encode(words)), known=False) == meant


def test_the_number_of_arguments_is_limited() -> None:
    assert read([b"*%d\r\n$0\r\n\r\n" % (ARGS_COUNT_MAX - 1)]) == ([], b"")
    assert read([b"*%d\r\n" % ARGS_COUNT_MAX + b"$0\r\n\r\n" * ARGS_COUNT_MAX]) == ([[b""] * ARGS_COUNT_MAX], b"")
    assert read([b"*%d\r\n$0\r\n\r\n" % (ARGS_COUNT_MAX + 1)]) == ([], COUNT)


@pytest.mark.parametrize("over", [0, 1])
def test_an_argument_that_is_discarded_may_have_512_mb(over: int) -> None:
    length = DISCARDED_BULK_BYTES_MAX + over
    piece = bytes(1 << 20)
    pieces = [b"*2\r\n$1\r\nx\r\n$%d\r\n" % length, *[piece] * (length >> 20), b"x" * (length % (1 << 20)) + b"\r\n"]
    assert read(pieces) == (([], BULK) if over else ([resp_model.OVERSIZED], b""))


def test_nothing_is_kept_of_a_command_that_is_discarded() -> None:
    parser = RespParser(BULK_MAX, 50_000)
    parser.feed(encode([b"x" * BULK_MAX] * 5 + [b"x" * (BULK_MAX + 1)])[:-1])
    assert parser.parse(1) == []
    assert parser.is_unfinished() and parser.pending() == 1  # A CR.
    parser.feed(b"\n")
    assert parser.parse(1) == [resp_model.OVERSIZED]
    assert not parser.is_unfinished()


def test_raised_limits_do_not_affect_an_argument_that_is_being_discarded() -> None:
    parser = RespParser(BULK_MAX, BUFFER_MAX)
    parser.feed(TOO_LONG[:-100])
    assert parser.parse(1) == []
    parser.raise_limits(2 * BULK_MAX)
    parser.feed(TOO_LONG[-100:] + TOO_LONG)
    assert parser.parse(3) == [resp_model.OVERSIZED, [b"ADDJOB", b"q", b"x" * (BULK_MAX + 1), b"0"]]


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("start", [b"", b"PING", b"*2\r\n$4\r\nPING\r\n$9999\r\n", b"*2\r\n$6\r\nPI"])
def test_the_buffered_bytes_of_a_client_are_limited(over: int, start: bytes) -> None:
    for parse_first in (False, True):
        parser = RespParser(100_000, 1_000)
        parser.feed(start)
        if parse_first:
            parser.parse(100)
        kept = int(parser.pending())
        parser.feed(b"x" * (1_000 - kept + over))
        assert (parser.error == b"Protocol error: too big query buffer") == (over > 0)
        assert parser.pending() == (0 if over > 0 else 1_000 + over)


def test_authentication_raises_the_limits() -> None:
    words = [b"x" * 20_000] * 20
    parser = RespParser(50_000, BUFFER_MAX, known=False)
    parser.raise_limits(50_000)
    parser.feed(encode(words))
    assert parser.parse(1) == [words]


def test_commands_after_auth_are_parsed_with_the_limits_after_auth() -> None:
    words = [b"x" * 20_000] * 20
    parser = RespParser(50_000, BUFFER_MAX, known=False)
    parser.feed(encode([b"AUTH", b"secret"]) + encode(words))
    assert parser.parse(1) == [[b"AUTH", b"secret"]]
    assert parser.error == b""
    parser.raise_limits(50_000)
    assert parser.parse(1) == [words]


# Memory: a client can make the parser keep only a multiple of the bytes that it sent

HOSTILE = {
    "nothing": [b"*1\r\n$67108864\r\n"],
    "a long body": [encode([b"x" * 1_000_000])],
    "a long body in small pieces": [b"*1\r\n$67108864\r\n", *[b"xy"] * 20_000],
    "a long body in pieces of a packet": [b"*1\r\n$67108864\r\n", *[b"x" * 1_400] * 1_000],
    "a body that is never complete": [b"*1\r\n$1000002\r\n", b"x" * 1_000_000],
    "many small commands": [encode([b"PING"]) * 10_000],
    "many empty lines": [b"\r\n" * 20_000],
    "many lines": [b"a\n" * 20_000],
    "many words": [b"a " * 8_000 + b"\n"],
    "line ends": [b"*1\r\n$900000\r\n" + b"\r\n" * 450_000],
    "arguments above the limit": [
        b"*9\r\n",
        *[b"$67108865\r\n", *[b"x" * 1_000_000] * 67, b"x" * 108_865, b"\r\n"] * 2,
    ],
    "a count that promises much": [b"*1048576\r\n"] + [b"$1\r\nx\r\n"] * 20_000,
    "counts of nothing": [b"*0\r\n" * 20_000],
    "escapes": [b'"' + b"\\x41" * 16_000 + b'"\n'],
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
def test_the_parser_keeps_at_most_four_times_the_bytes_that_a_client_sent(sent: list[bytes]) -> None:
    for piece in sent:  # Constants that are made once and kept are not counted.
        RespParser(1 << 26, BUFFER_MAX).feed(piece[:1])
    sent = [bytes(bytearray(piece)) for piece in sent]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        parser = RespParser(1 << 26, BUFFER_MAX)
        received = 0
        for piece in sent:
            piece = bytes(bytearray(piece))  # An object of its own, as from a socket.
            received += len(piece)
            parser.feed(piece)
            del piece
            parser.parse(256)
            while parser.has_more:
                parser.parse(256)
            now, _ = tracemalloc.get_traced_memory()
            assert now - before <= 4 * received + 65_536
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before <= 4 * received + 65_536 + 256 * 1_024
    finally:
        tracemalloc.stop()
