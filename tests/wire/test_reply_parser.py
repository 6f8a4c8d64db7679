"""The client's reply parser: any bytes, cut in any way, give replies or a ProtocolError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ProtocolError
from penstock.wire.reply import Reply
from penstock.wire.resp_client import DEPTH_MAX, LINE_BYTES_MAX, ErrorReply, Push, ReplyParser, encode
from tests.wire import client_input, resp_model
from tests.wire.test_reply import Part, _parts, plain, write

# The bytes of one reply, and its value.
ANSWERS: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b"+\r\n", b""),
    (b"-ERR no\r\n", ("refused", b"ERR no")),
    (b":0\r\n", 0),
    (b":-9223372036854775808\r\n", -(1 << 63)),
    (b":+5\r\n", 5),
    (b"$0\r\n\r\n", b""),
    (b"$3\r\na\r\n\r\n", b"a\r\n"),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n:1\r\n$1\r\nx\r\n", [1, b"x"]),
    (b"*1\r\n*1\r\n*1\r\n*0\r\n", [[[[]]]]),
    (b"*2\r\n-NO way\r\n+yes\r\n", [("refused", b"NO way"), b"yes"]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b",1.5\r\n", 1.5),
    (b",-inf\r\n", float("-inf")),
    (b"(3492890328409238509324850943850943825024385\r\n", 3492890328409238509324850943850943825024385),
    (b"!6\r\nERR no\r\n", ("refused", b"ERR no")),
    (b"=7\r\ntxt:abc\r\n", b"abc"),
    (b"%0\r\n", {}),
    (b"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*1\r\n_\r\n", {b"a": 1, b"b": [None]}),
    (b"~2\r\n:1\r\n:1\r\n", [1, 1]),
    (b">2\r\n+message\r\n:1\r\n", ("pushed", [b"message", 1])),
    (b"|1\r\n+ttl\r\n:3600\r\n:7\r\n", 7),
    (b"*2\r\n|1\r\n+k\r\n+v\r\n:1\r\n|0\r\n:2\r\n", [1, 2]),
]

# Bytes that are not a reply.
NONSENSE = [
    *(b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\x00\x02\x02F", b"Tarantool 2.11.0 (Binary)", b"\r\n", b"\0"),
    *(b":\r\n", b":1_0\r\n", b": 1\r\n", b":1.5\r\n", b":--1\r\n", b":" + b"9" * 401 + b"\r\n", b":\xb2\r\n"),
    *(b"$\r\n", b"$-2\r\n", b"$+1\r\n", b"$99999999999\r\n", b"$536870913\r\n", b"$1\r\nab\r\n", b"$?\r\n"),
    *(
        b"*-2\r\n",
        b"*?\r\n",
        b"*1048577\r\n",
        b"%1048577\r\n",
        b"%-1\r\n",
        b"%1\r\n*0\r\n+v\r\n",
        b"%1\r\n-E\r\n+v\r\n",
    ),
    *(b"_x\r\n", b"#x\r\n", b"#\r\n", b",\r\n", b",1_0\r\n", b",x\r\n", b"=3\r\nabc\r\n", b"!-1\r\n", b"(x\r\n"),
    *(b"*1\r\n" * (DEPTH_MAX + 1), b"+" + b"x" * LINE_BYTES_MAX + b"\r\n"),
]


def shown(value: object) -> object:
    """Return values that can be compared."""
    if isinstance(value, ErrorReply):
        return ("refused", value.line)
    if isinstance(value, Push):
        return ("pushed", [shown(item) for item in value.items])
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return value


def read(pieces: Iterable[bytes]) -> tuple[list[object], str, ReplyParser]:
    """Return the replies in these pieces, and the error after them."""
    parser = ReplyParser()
    answers: list[object] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while some := parser.parse():
                answers += [shown(answer) for answer in some]
    except ProtocolError as error:
        return answers, str(error), parser
    return answers, "", parser


@pytest.mark.parametrize(("data", "meant"), ANSWERS)
def test_an_answer_is_read_whole_and_byte_by_byte_and_before_garbage(data: bytes, meant: object) -> None:
    for pieces in ([data], client_input.bytewise(data)):
        answers, error, parser = read(pieces)
        assert (answers, error, parser.is_idle()) == ([meant], "", True)
        assert type(answers[0]) is type(meant)
    for pieces in ([data + b"garbage"], [data, b"garbage"], client_input.bytewise(data + b"garbage")):
        answers, error, _ = read(pieces)
        assert answers == [meant] and error
    assert read([data + data, data])[0] == [meant] * 3


@pytest.mark.parametrize(("data", "meant"), ANSWERS)
def test_an_incomplete_answer_is_not_returned_and_not_idle(data: bytes, meant: object) -> None:
    for end in range(1, len(data)):
        answers, error, parser = read([data[:end]])
        assert (answers, error) == ([], "")
        assert not parser.is_idle() or data.startswith(b"|")  # Attributes are not a reply yet.


@pytest.mark.parametrize("data", NONSENSE, ids=lambda data: repr(data[:20]))
def test_invalid_bytes_are_a_protocol_error(data: bytes) -> None:
    for pieces in ([data], client_input.bytewise(data, first=max(0, len(data) - 40))):
        answers, error, _ = read(pieces)
        assert answers == [] and error


@given(st.lists(_parts, max_size=6), st.booleans(), st.data())
def test_what_a_server_writes_is_read_however_it_is_cut(parts: list[Part], resp3: bool, data: st.DataObject) -> None:
    reply = Reply()
    reply.resp3 = resp3
    for part in parts:
        write(reply, part)
    whole = reply.take()
    cut = data.draw(client_input.pieces(st.just(whole)))[1]
    answers, error, parser = read(cut)
    assert not error and parser.is_idle()
    # The model writes the keys of maps as text.
    assert [_keys_shown(answer) for answer in answers] == [plain(value) for value in resp_model.answers(whole)]


def _keys_shown(value: object) -> object:
    if isinstance(value, dict):
        return {repr(key): _keys_shown(item) for key, item in value.items()}
    return [_keys_shown(item) for item in value] if isinstance(value, list) else value


@given(st.lists(st.sampled_from([data for data, _ in ANSWERS] + [data for data in NONSENSE if len(data) < 50])))
def test_any_bytes_give_the_same_whole_and_in_pieces(parts: list[bytes]) -> None:
    data = b"".join(parts)
    whole, error, _ = read([data])
    pieces, same, _ = read(client_input.bytewise(data))
    assert (pieces, bool(same)) == (whole, bool(error))


@given(st.binary(max_size=60))
def test_any_bytes_give_answers_or_a_protocol_error(data: bytes) -> None:
    read(client_input.bytewise(data))


@given(st.lists(client_input.words, min_size=1, max_size=6))
def test_what_a_client_sends_is_what_a_server_reads(words: list[bytes]) -> None:
    assert encode(words) == client_input.encode(words)
    assert client_input.read([encode(words)]) == ([words], b"")


@pytest.mark.parametrize("count", [1_023, 1_024, 5_000])
def test_a_command_may_have_many_words(count: int) -> None:
    words = [b"x" * (count % 1_030)] * count
    assert encode(words) == client_input.encode(words)


def test_a_long_bulk_in_many_pieces_is_copied_once() -> None:
    body = bytes(8 << 20)
    parser = ReplyParser()
    parser.feed(b"$%d\r\n" % len(body))
    for start in range(0, len(body), 1 << 16):
        assert parser.parse() == []
        parser.feed(body[start : start + (1 << 16)])
    parser.feed(b"\r\n")
    assert parser.parse() == [body]
