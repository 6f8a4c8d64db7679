"""IPROTO: requests that arrive in any pieces, replies byte for byte, and all kinds of invalid input."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.limits import NEVER
from penstock.wire.iproto import (
    BROKEN,
    DISCARDED_PACKET_BYTES_MAX,
    OVERSIZED,
    UNKNOWN_PACKET_BYTES_MAX,
    IprotoParser,
    IprotoReply,
    Request,
    greeting,
)

PACKET_MAX = 100_000
BUFFER_MAX = 1_000_000


def pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def packet(header: Any, body: Any = None, form: str = ">BI", first: int = 0xCE) -> bytes:
    rest = pack(header) + (b"" if body is None else pack(body))
    return (struct.pack(form, first, len(rest)) if form else bytes([len(rest)])) + rest


CALL = packet({0: 10, 1: 7}, {0x22: "queue.tube.x:put", 0x21: ["data", {"pri": 1}]})


def parsed(chunks: list[bytes], *, known: bool = True, at_once: int = 100) -> tuple[list[tuple[Any, ...]], bytes]:
    """Return the requests in these pieces, and the parser's error."""
    parser = IprotoParser(PACKET_MAX, BUFFER_MAX, known)
    found: list[Request] = []
    for chunk in chunks:
        parser.feed(chunk)
        while True:
            requests = parser.parse(at_once)
            found += requests
            if not parser.has_more:
                break
    return [(each.code, each.sync, each.name, each.args, each.space) for each in found], parser.error


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


PUT = (10, 7, b"queue.tube.x:put", [b"\xa4data", b"\x81\xa3pri\x01"], -1)


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        (CALL, [PUT]),
        (CALL * 3, [PUT] * 3),
        (packet({0: 64, 1: 0}, None, "", 0), [(64, 0, b"", [], -1)]),
        (packet({0: 64, 1: 1}, None, ">BB", 0xCC), [(64, 1, b"", [], -1)]),
        (packet({0: 64, 1: 1}, None, ">BH", 0xCD), [(64, 1, b"", [], -1)]),
        (packet({0: 64, 1: 1}, None, ">BQ", 0xCF), [(64, 1, b"", [], -1)]),
        (packet({0: 64}), [(64, 0, b"", [], -1)]),
        (packet({0: 64, 1: (1 << 64) - 1, 5: 0, 10: [1, {"x": 2}]}, {}), [(64, -1, b"", [], -1)]),
        (packet({0: 1, 1: 2}, {0x10: 281, 0x11: 0, 0x12: (1 << 64) - 1, 0x20: []}), [(1, 2, b"", [], 281)]),
        (
            packet({0: 7, 1: 2}, {0x23: "u", 0x21: ["chap-sha1", b"\xff"]}),
            [(7, 2, b"u", [b"\xa9chap-sha1", b"\xc4\x01\xff"], -1)],
        ),
    ],
)
def test_requests_are_read_however_they_come(data: bytes, meant: list[tuple[Any, ...]]) -> None:
    assert parsed([data]) == (meant, b"")
    assert parsed([data], at_once=1) == (meant, b"")
    assert parsed(bytewise(data)) == (meant, b"")
    assert parsed([data + CALL[:9]]) == (meant, b"")
    assert parsed([data, b"\xc1"])[0] == meant


def test_the_fields_of_a_select_are_read_and_numbers_of_64_bits_are_bounded() -> None:
    def selected(body: dict[int, Any]) -> tuple[int, ...]:
        parser = IprotoParser(1_000, 1_000)
        parser.feed(packet({0: 1, 1: 2}, body))
        [request] = parser.parse(1)
        return request.space, request.index, request.iterator, request.limit, request.offset

    assert selected({0x10: 512}) == (512, 0, 0, NEVER, 0)
    assert selected({0x10: 512, 0x11: 2, 0x12: 3, 0x13: 4, 0x14: 5, 0x20: [1]}) == (512, 2, 5, 3, 4)
    assert selected({0x10: 512, 0x12: (1 << 64) - 1, 0x13: 1 << 63})[3:] == (NEVER, NEVER)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x01\x80",
        b"\xc1",
        b"\x90",
        b"\xce\xff\xff\xff\xff",
        b"\xcf" + b"\xff" * 8,
        b"\x01\x01",
        packet({1: 1}),
        packet({0: "x", 1: 1}),
        packet({0: 10, 1: -1}),
        packet({0: 10, 1: 1.0}),
        packet({0: 10, "x": 1}),
        packet([0, 10]),
        # The length is too short for the header.
        b"\x02" + pack({0: 64, 1: 0}),
        packet({0: 10, 1: 1})[:-1] + b"\xc1",
    ],
)
def test_invalid_bytes_end_the_connection_after_the_requests_before_them(data: bytes) -> None:
    for chunks in ([CALL + data + CALL], [CALL, data, CALL], bytewise(CALL + data + CALL)):
        found, error = parsed(chunks)
        assert found == [PUT]
        assert error.startswith(b"Invalid MsgPack - ")


@pytest.mark.parametrize(
    "data",
    [
        packet({0: 10, 1: 9}, [1]),
        packet({0: 10, 1: 9}, {0x22: 5, 0x21: []}),
        packet({0: 10, 1: 9}, {0x22: "x", 0x21: {}}),
        packet({0: 10, 1: 9}, {0x22: "x", 0x21: None}),
        packet({0: 1, 1: 9}, {0x10: "x"}),
        # The length is too long for the body.
        b"\x06" + pack({0: 64, 1: 9}) + b"\xc0",
        b"\x07" + pack({0: 64, 1: 9}) + b"\x80\xc0",
        struct.pack(">BI", 0xCE, 78) + pack({0: 10, 1: 9}) + b"\x81\x21" + b"\x91" * 70 + b"\x01",
    ],
)
def test_an_invalid_body_gives_a_broken_request(data: bytes) -> None:
    for chunks in ([CALL + data + CALL], [CALL, data, CALL], bytewise(CALL + data + CALL)):
        [before, (code, sync, why, args, space), behind], error = parsed(chunks)
        assert before == behind == PUT and not error
        assert (code, sync, args, space) == (BROKEN, 9, [], -1) and why.startswith(b"Invalid MsgPack - ")


def test_a_packet_may_have_exactly_the_maximum_length() -> None:
    for known, most, refused in (
        (True, PACKET_MAX, DISCARDED_PACKET_BYTES_MAX + 1),
        (False, UNKNOWN_PACKET_BYTES_MAX, UNKNOWN_PACKET_BYTES_MAX + 1),
    ):
        around = len(packet({0: 10, 1: 1}, {0x21: [b"x" * 1_000]})) - 1_000 - 5
        fits = packet({0: 10, 1: 1}, {0x21: [b"x" * (most - around - (2 if most > 65_535 else 0))]})
        assert struct.unpack(">I", fits[1:5])[0] == most
        assert len(parsed([fits], known=known)[0]) == 1
        assert parsed([struct.pack(">BI", 0xCE, refused)], known=known) == (
            [],
            b"Invalid MsgPack - a packet may have at most %d bytes" % most,
        )


def test_a_packet_above_the_limit_gives_an_oversized_request_and_is_not_kept() -> None:
    above = packet({0: 10, 1: 9}, {0x22: "queue.tube.x:put", 0x21: ["x" * PACKET_MAX]})
    refused = (OVERSIZED, 9, b"", [], -1)
    data = CALL + above + CALL + above * 2
    cut = len(CALL) + 3
    for chunks in ([data], [CALL, above, CALL, above * 2], bytewise(data), [data[:cut], data[cut:]]):
        for at_once in (1, 2, 100):
            assert parsed(chunks, at_once=at_once) == ([PUT, refused, PUT, refused, refused], b"")
    parser = IprotoParser(PACKET_MAX, 1_000, True)
    for at in range(0, len(above) - 1, 1_000):
        parser.feed(above[at : at + 1_000][: len(above) - 1 - at])
        assert parser.parse(10) == [] and parser.is_unfinished() and not parser.error
    parser.feed(above[-1:])
    assert len(parser.parse(10)) == 1 and not parser.is_unfinished()


@pytest.mark.parametrize(
    "header", [b"\xc1", pack([1]), pack({1: 9}), pack({0: 10, 1: "x"}), pack({0: 10, 8: "x" * 300})]
)
def test_a_packet_above_the_limit_needs_a_valid_header(header: bytes) -> None:
    data = struct.pack(">BI", 0xCE, PACKET_MAX + 1) + header + bytes(PACKET_MAX + 1 - len(header))
    for chunks in ([data], bytewise(data)):
        found, error = parsed(chunks)
        assert not found and error.startswith(b"Invalid MsgPack - ")


def test_a_long_packet_is_not_copied_with_every_piece_of_it() -> None:
    parser = IprotoParser(1 << 30, 1 << 30, True)
    data = packet({0: 10, 1: 1}, {0x21: [b"x" * 4_000_000]})
    for at in range(0, len(data), 1_000):
        parser.feed(data[at : at + 1_000])
        found = parser.parse(10)
    assert len(found) == 1 and not parser.is_unfinished()


def test_a_client_that_exceeds_the_buffer_is_stopped() -> None:
    parser = IprotoParser(PACKET_MAX, 1_000, True)
    parser.feed(bytes([64]) * 1_001)
    assert parser.error and not parser.pending()


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
@settings(max_examples=80)
def test_requests_do_not_depend_on_where_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    places = sorted({cut for cut in cuts if cut < len(data)})
    chunks = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    assert parsed(chunks) == parsed([data])


def head(code: int, sync: int) -> bytes:
    return b"\x83\x00\xce" + struct.pack(">I", code) + b"\x01\xcf" + struct.pack(">Q", sync) + b"\x05\xce\0\0\0\1"


def test_answers_are_as_tarantool_writes_them() -> None:
    answers = IprotoReply()
    answers.data(7, b"\x91\x01")
    answers.done((1 << 63) - 1)
    answers.refusal(-1, 33, b"no")
    bodies = [
        head(0, 7) + b"\x81\x30\x91\x01",
        head(0, (1 << 63) - 1) + b"\x80",
        head(0x8021, (1 << 64) - 1) + b"\x81\x31\xa2no",
    ]
    meant = b"".join(b"\xce" + struct.pack(">I", len(body)) + body for body in bodies)
    assert answers.length == len(meant)
    assert answers.take() == meant


def test_the_greeting_has_two_lines_of_64() -> None:
    first, second, rest = greeting("2.11.0", "12345678-1234-1234-1234-123456789012", bytes(32)).split(b"\n")
    assert first == b"Tarantool 2.11.0 (Binary) 12345678-1234-1234-1234-123456789012".ljust(63)
    assert second == b"A" * 43 + b"=" + b" " * 19 and rest == b""
