"""Requests are refused while the journal is loaded, and the parser keeps the rest of an incomplete one."""

from __future__ import annotations

from penstock.node.loading import refuse_calls, refuse_commands
from penstock.wire import iproto
from penstock.wire.iproto import IprotoParser, ReplyPackets, Request
from penstock.wire.resp import RespParser
from penstock.wire.resp_client import encode

LINE = b"LOADING try again"
LIMIT = 1_000


def test_commands_are_refused_and_removed_and_a_part_stays() -> None:
    parser = RespParser(LIMIT, LIMIT)
    last = encode([b"ACK", b"3"])
    parser.feed(encode([b"PUT", b"q", b"1"]) + encode([b"TAKE", b"q"]) + last[:5])
    assert refuse_commands(parser, 64, LINE, None) == 2 * (b"-" + LINE + b"\r\n")
    parser.feed(last[5:])
    assert parser.parse(64) == [[b"ACK", b"3"]]


def test_info_is_answered_only_if_its_text_is_given() -> None:
    parser = RespParser(LIMIT, LIMIT)
    parser.feed(encode([b"info"]))
    assert refuse_commands(parser, 64, LINE, lambda: "loading:1") == b"$9\r\nloading:1\r\n"
    parser.feed(encode([b"INFO"]))
    assert refuse_commands(parser, 64, LINE, None) == b"-" + LINE + b"\r\n"


def test_malformed_bytes_are_refused_after_the_commands_before_them() -> None:
    parser = RespParser(LIMIT, LIMIT)
    parser.feed(encode([b"PING"]) + b"*x\r\n")
    replies = refuse_commands(parser, 64, LINE, None)
    assert replies.startswith(b"-" + LINE + b"\r\n-ERR ") and parser.error


def test_each_call_is_refused_under_its_own_number() -> None:
    parser = IprotoParser(LIMIT, LIMIT)
    requests = [Request(iproto.CALL, sync) for sync in (7, 8)]
    for request in requests:
        request.name = b"queue.stats"
    parser.feed(b"".join(map(iproto.encode, requests)))
    packets = ReplyPackets().feed(refuse_calls(parser, 64, LINE))
    assert [int(iproto.sync_of(packet)) for packet in packets] == [7, 8]
