"""Replies: a client reads what was written, in RESP 2 and in RESP 3."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.reply import Reply
from tests.wire import resp_model

Part = tuple[str, object]

_lines = st.binary(max_size=20).map(lambda text: text.replace(b"\r", b"").replace(b"\n", b""))
_parts: st.SearchStrategy[Part] = st.recursive(
    st.one_of(
        st.tuples(st.just("simple"), _lines),
        st.tuples(st.just("error"), _lines),
        st.tuples(st.just("integer"), st.integers(-(1 << 63), (1 << 63) - 1)),
        st.tuples(st.just("bulk"), st.one_of(st.binary(max_size=30), st.integers(1_020, 1_030).map(bytes))),
        st.tuples(st.just("null"), st.none()),
        st.tuples(st.just("null_array"), st.none()),
        st.tuples(st.just("bulks"), st.lists(st.binary(max_size=5), max_size=5)),
    ),
    lambda inner: (
        st.tuples(st.just("array"), st.lists(inner, max_size=4))
        | st.tuples(st.just("map"), st.lists(st.tuples(st.binary(max_size=5), inner), max_size=3))
    ),
    max_leaves=10,
)


def write(reply: Reply, part: Part) -> None:
    kind, value = part
    if kind in ("null", "null_array"):
        getattr(reply, kind)()
    elif kind == "array":
        assert isinstance(value, list)
        reply.array(len(value))
        for item in value:
            write(reply, item)
    elif kind == "map":
        assert isinstance(value, list)
        reply.map(len(value))
        for key, item in value:
            reply.bulk(key)
            write(reply, item)
    else:
        getattr(reply, kind)(value)


def meant(part: Part, resp3: bool) -> object:
    """Return the value that a client should read."""
    kind, value = part
    if kind == "array":
        return [meant(item, resp3) for item in value]  # type: ignore[attr-defined]
    if kind == "map":
        pairs = [(key, meant(item, resp3)) for key, item in value]  # type: ignore[attr-defined]
        return {repr(key): item for key, item in pairs} if resp3 else [each for pair in pairs for each in pair]
    if kind == "error":
        return ("refused", value)
    return value


def plain(value: object) -> object:
    """Return the model's values in comparable form."""
    if isinstance(value, resp_model.Wrong):
        return ("refused", value.args[0])
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@given(st.lists(_parts, max_size=6), st.booleans())
def test_what_is_written_is_what_is_read(parts: list[Part], resp3: bool) -> None:
    reply = Reply()
    reply.resp3 = resp3
    for part in parts:
        write(reply, part)
    length = reply.length
    data = reply.take()
    assert len(data) == length
    assert [plain(value) for value in resp_model.answers(data)] == [meant(part, resp3) for part in parts]
    assert reply.length == 0
    assert reply.take() == b""


@given(_parts, _parts, st.booleans())
def test_a_reply_can_be_truncated(first: Part, second: Part, resp3: bool) -> None:
    kept, both = Reply(), Reply()
    kept.resp3 = both.resp3 = resp3
    write(kept, first)
    write(both, first)
    length = both.length
    write(both, second)
    both.truncate(length)
    assert both.length == length
    assert both.take() == kept.take()


BYTES: list[tuple[Callable[[Reply], None], bytes, bytes]] = [
    (lambda reply: reply.ok(), b"+OK\r\n", b"+OK\r\n"),
    (lambda reply: reply.simple(b"PONG"), b"+PONG\r\n", b"+PONG\r\n"),
    (lambda reply: reply.error(b"ERR a\r\nb\nc\r"), b"-ERR a  b c \r\n", b"-ERR a  b c \r\n"),
    (lambda reply: reply.integer(-1), b":-1\r\n", b":-1\r\n"),
    (lambda reply: reply.integer(1_023), b":1023\r\n", b":1023\r\n"),
    (lambda reply: reply.integer(1_024), b":1024\r\n", b":1024\r\n"),
    (lambda reply: reply.integer(-(1 << 63)), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
    (lambda reply: reply.bulk(b""), b"$0\r\n\r\n", b"$0\r\n\r\n"),
    (lambda reply: reply.bulk(b"a\r\nb\0\xff"), b"$6\r\na\r\nb\0\xff\r\n", b"$6\r\na\r\nb\0\xff\r\n"),
    (lambda reply: reply.null(), b"$-1\r\n", b"_\r\n"),
    (lambda reply: reply.null_array(), b"*-1\r\n", b"_\r\n"),
    (lambda reply: reply.array(0), b"*0\r\n", b"*0\r\n"),
    (lambda reply: reply.array(1_024), b"*1024\r\n", b"*1024\r\n"),
    (lambda reply: reply.map(2), b"*4\r\n", b"%2\r\n"),
    (lambda reply: reply.bulks([b"a", b""]), b"*2\r\n$1\r\na\r\n$0\r\n\r\n", b"*2\r\n$1\r\na\r\n$0\r\n\r\n"),
]


@pytest.mark.parametrize(("written", "resp2", "resp3"), BYTES)
def test_replies_have_exactly_these_bytes(written: Callable[[Reply], None], resp2: bytes, resp3: bytes) -> None:
    reply = Reply()
    written(reply)
    assert reply.take() == resp2
    reply.resp3 = True
    written(reply)
    assert reply.take() == resp3


@pytest.mark.parametrize("size", [1_022, 1_023, 1_024, 1_025, 5_000])
def test_a_bulk_of_any_size_is_read_back(size: int) -> None:
    reply = Reply()
    reply.bulk(b"\r" * size)
    reply.bulks([b"x"] * size)
    assert resp_model.answers(reply.take()) == [b"\r" * size, [b"x"] * size]
