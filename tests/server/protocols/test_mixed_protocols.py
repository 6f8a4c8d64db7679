"""Two protocols, four APIs, one state: a job that is put through one of them can be taken through any other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import penstock
from penstock.compat import xqueue

from ..iproto_wire import CALL, CALL_16, IprotoWire, Refusal
from ..serving import Server, Wire

NAMES = itertools.count()


class Talk:
    """A server with a connection for each of its APIs."""

    def __init__(self, wire: Wire, iproto: IprotoWire) -> None:
        self.wire = wire
        self.iproto = iproto

    # BODIES has the bodies, and the values that each API returns for them. These are the ways to take a job.

    def disque(self, q: str) -> Any:
        (job,) = self.wire.call("GETJOB", "NOHANG", "FROM", q)
        assert self.wire.call("ACKJOB", job[1]) == 1
        return job[2]

    def native(self, q: str) -> Any:
        (flat,) = self.wire.call("TAKE", q)
        job = dict(zip(flat[::2], flat[1::2], strict=True))
        assert self.wire.call("ACK", job[b"id"]) == 1
        body = job[b"body"]
        return job[b"as"], msgpack.unpackb(body, strict_map_key=False) if job[b"as"] == b"msgpack" else body

    def tarantool(self, q: str) -> Any:
        ((id, letter, data),) = self.iproto.call(f"queue.tube.{q}:take", 0)
        assert letter == "t"
        assert self.iproto.call(f"queue.tube.{q}:ack", id) == [[id, "-", data]]
        return data

    def queue15(self, q: str) -> Any:
        ((id, tube, status, *fields),) = self.iproto.call("queue.take", 0, q, 0)
        assert (tube, status) == (q, "taken")
        assert self.iproto.call("queue.ack", 0, id) == [[id, q, "taken", *fields]]
        return fields


Put = Callable[[Talk, str], object]


def addjob(body: bytes) -> Put:
    return lambda talk, q: talk.wire.call("ADDJOB", q, body, 0)


def native(body: bytes, kind: str) -> Put:
    return lambda talk, q: talk.wire.call("PUT", q, body, "AS", kind)


def tarantool(value: Any) -> Put:
    def put(talk: Talk, q: str) -> None:
        talk.iproto.call("queue.create_tube", q, "fifottl", {"if_not_exists": True})
        talk.iproto.call(f"queue.tube.{q}:put", value)

    return put


def queue15(*fields: Any) -> Put:
    return lambda talk, q: talk.iproto.call("queue.put", 0, q, 0, 0, 0, None, *fields)


RAW = b"\x00\xff\r\n"
MAP = {"a": [1, b"x", None], "é": 1.5}
MAP_JSON = '{"a":[1,"x",null],"é":1.5}'.encode()
BODIES: dict[str, tuple[Put, bytes, tuple[bytes, Any], Any, list[Any]]] = {
    "bytes by ADDJOB": (addjob(RAW), RAW, (b"bytes", RAW), RAW, [RAW]),
    "bytes by PUT": (native(RAW, "bytes"), RAW, (b"bytes", RAW), RAW, [RAW]),
    "bytes by tube:put": (tarantool(RAW), RAW, (b"bytes", RAW), RAW, [RAW]),
    "bytes by queue.put": (queue15(RAW), RAW, (b"bytes", RAW), RAW, [RAW]),
    "nothing by ADDJOB": (addjob(b""), b"", (b"bytes", b""), b"", [b""]),
    "text by PUT": (native("é".encode(), "text"), "é".encode(), (b"text", "é".encode()), "é", ["é"]),
    "text by tube:put": (tarantool("é"), "é".encode(), (b"text", "é".encode()), "é", ["é"]),
    "text by queue.put": (queue15("é"), "é".encode(), (b"text", "é".encode()), "é", ["é"]),
    "JSON by PUT": (native(b'{"a":[1]}', "json"), b'{"a":[1]}', (b"json", b'{"a":[1]}'), {"a": [1]}, [{"a": [1]}]),
    "msgpack by PUT": (native(b"\x91\x81\x01\x02", "msgpack"), b'{"1":2}', (b"msgpack", [{1: 2}]), {1: 2}, [{1: 2}]),
    "a map by tube:put": (tarantool(MAP), MAP_JSON, (b"msgpack", [MAP]), MAP, [MAP]),
    "a map by queue.put": (queue15(MAP), MAP_JSON, (b"msgpack", [MAP]), MAP, [MAP]),
    "nil by tube:put": (tarantool(None), b"null", (b"msgpack", [None]), None, [None]),
    "a number by tube:put": (tarantool(5), b"5", (b"msgpack", [5]), 5, [5]),
    "an array by tube:put": (tarantool([1, 2]), b"[1,2]", (b"msgpack", [[1, 2]]), [1, 2], [[1, 2]]),
    "no fields by queue.put": (queue15(), b"", (b"msgpack", []), None, []),
    "fields by queue.put": (queue15("a", 2), b'["a",2]', (b"msgpack", ["a", 2]), ["a", 2], ["a", 2]),
    "a uuid by tube:put": (
        tarantool(msgpack.ExtType(2, bytes(15) + b"\1")),
        b'"00000000-0000-0000-0000-000000000001"',
        (b"msgpack", [msgpack.ExtType(2, bytes(15) + b"\1")]),
        msgpack.ExtType(2, bytes(15) + b"\1"),
        [msgpack.ExtType(2, bytes(15) + b"\1")],
    ),
}


@pytest.fixture
def talk(wire: Wire, iproto: IprotoWire) -> Talk:
    return Talk(wire, iproto)


@pytest.mark.parametrize("body", BODIES)
def test_a_body_put_through_one_api_can_be_taken_through_every_other(talk: Talk, body: str) -> None:
    put, *meant = BODIES[body]
    for take, expected in zip((talk.disque, talk.native, talk.tarantool, talk.queue15), meant, strict=True):
        q = f"vocabularies{next(NAMES)}"
        put(talk, q)
        got = take(q)
        assert got == expected and type(got) is type(expected)


def nested(levels: int, shape: str) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value] if shape == "arrays" else {"k": value}
    return value


@pytest.mark.parametrize("shape", ["arrays", "maps"])
def test_a_value_of_64_levels_is_stored_and_returned_by_every_api(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire], shape: str
) -> None:
    deep, too_deep = nested(64, shape), nested(65, shape)
    server = start()
    iproto, wire = dial(server), server.connect()
    iproto.call("queue.create_tube", "q", "fifo")
    features = {"id": "auto_increment"}
    format = [["id", "unsigned"], ["status", "string"], ["data", "any"], ["more", "any"]]
    iproto.call("xqueue.upgrade", "one", {"format": format[:3], "fields": {"status": 2}, "features": features})
    iproto.call("xqueue.upgrade", "two", {"format": format, "fields": {"status": 2}, "features": features})
    iproto.call("xqueue.upgrade", "free", {"fields": {"status": 2}, "features": {"id": "required"}})
    for code in (CALL, CALL_16):
        assert iproto.call("queue.tube.q:put", deep, code=code)[0][2] == deep
    old = iproto.call("queue.put", 0, "old", 0, 0, 0, None, deep, deep)[0]
    rows = [{"data": deep}, {"data": deep, "more": deep}, [1, None, deep, deep]]
    for name, row in zip(("one", "two", "free"), rows, strict=True):
        iproto.call(f"box.space.{name}:put", row)
    # One level more is refused by every API, and the connections stay open.
    refusals = [
        ("queue.tube.q:put", [too_deep]),
        ("queue.tube.q:put", [nested(66, shape)]),
        ("queue.tube.q:put", [nested(500, shape)]),
        ("queue.put", [0, "old", 0, 0, 0, None, too_deep]),
        ("queue.put", [0, "old", 0, 0, 0, None, "x", too_deep]),
        ("box.space.one:put", [{"data": too_deep}]),
        ("box.space.two:put", [{"data": "x", "more": too_deep}]),
        ("box.space.free:put", [[2, None, too_deep]]),
    ]
    for function, args in refusals:
        with pytest.raises(Refusal) as refusal:
            iproto.call(function, *args)
        assert refusal.value.args[0] in (20, 32) and "nested more than 64 deep" in refusal.value.args[1]
        answer = wire.ask("CALL", function, *[msgpack.packb(each) for each in args])
        assert answer.startswith(b"-") and b"nested more than 64 deep" in answer
    answer = wire.ask("PUT", "q", msgpack.packb([too_deep]), "AS", "msgpack")
    assert answer.startswith(b"-"), answer
    assert iproto.call("queue.statistics", "q")[0]["calls"]["put"] == 2
    wire.call("PUT", "q", msgpack.packb([deep]), "AS", "msgpack")
    # The journal restores everything.
    server.kill()
    server = start()
    iproto, wire = dial(server), server.connect()
    assert iproto.call("queue.tube.q:take", 0)[0][2] == deep
    [job] = wire.call("GETJOB", "FROM", "q")
    assert json.loads(job[2]) == deep
    with penstock.connect(f"penstock://127.0.0.1:{server.port}") as client:
        assert client.tube("q").take(0).body == deep
        assert xqueue.space(client, "two").get(1)["more"] == deep
    assert iproto.call("queue.take", 0, "old", 0)[0][3:] == old[3:] == [deep, deep]
    assert iproto.call("box.space.q:select")[0][0][2] == deep
    for name, body in (("one", deep), ("two", rows[1]), ("free", [deep, deep])):
        [row] = iproto.call(f"box.space.{name}:get", 1)
        assert deep in (row if isinstance(row, list) else row.values())
        assert iproto.call(f"box.space.{name}:get", 1, code=CALL_16)
        assert json.loads(wire.call("GETJOB", "FROM", name)[0][2]) == body


def test_a_task_is_found_by_the_id_of_each_api(talk: Talk) -> None:
    iproto, wire = talk.iproto.call, talk.wire.call
    wire("ADDJOB", "ids_disque", "x", 0)
    ((long, *_),) = iproto("queue.tube.ids_disque:take", 0)
    assert len(long) == 40
    assert iproto("queue.tube.ids_disque:peek", long)[0][1] == "t"
    assert wire("ACKJOB", long) == 1
    ((hexed, *_),) = iproto("queue.put", 0, "ids_15", 0, 0, 0, None, "x")
    assert iproto("queue.tube.ids_15:peek", hexed) == [[hexed, "r", "x"]]
    iproto("queue.create_tube", "ids_fifo", "fifo")
    iproto("queue.tube.ids_fifo:put", "x")
    ((shown, *_),) = iproto("queue.take", 0, "ids_fifo", 0)
    assert len(shown) == 32 and iproto("queue.tube.ids_fifo:peek", 0)[0][1] == "t"
    assert iproto("queue.ack", 0, shown)[0][0] == shown


def test_a_job_belongs_to_its_session_across_protocols(talk: Talk, wires: Callable[[], Wire]) -> None:
    iproto = talk.iproto.call
    iproto("queue.create_tube", "owned", "fifottl")
    iproto("queue.tube.owned:put", "x")
    (flat,) = talk.wire.call("TAKE", "owned")
    with pytest.raises(Refusal, match="Task was not taken"):
        iproto("queue.tube.owned:ack", 0)
    # One session, two protocols.
    (token,) = iproto("queue.identify")
    talk.wire.call("RELEASE", flat[1])
    talk.wire.call("IDENTIFY", token.encode().hex())
    talk.wire.call("TAKE", "owned")
    assert iproto("queue.tube.owned:ack", 0) == [[0, "-", "x"]]


def test_a_wait_over_one_protocol_is_served_by_a_put_over_the_other(talk: Talk) -> None:
    waiting = talk.iproto.start("queue.take", 0, "crossing", 100)
    talk.iproto.call("queue.state")
    talk.wire.call("ADDJOB", "crossing", "from resp", 0)
    assert talk.iproto.result(waiting)[0][3] == b"from resp"
    talk.wire.send("GETJOB", "FROM", "crossing")
    talk.iproto.call("queue.put", 0, "crossing", 0, 0, 0, None, "from iproto")
    assert b"from iproto" in talk.wire.read()


def test_bodies_on_disk_are_complete_in_both_apis(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    wire = dial(start("--maxmemory", "2mb", "--fsync", "never"))
    wire.call("queue.create_tube", "spilled", "fifottl")
    bodies = [{"n": number, "filling": "x" * 100_000} for number in range(40)]
    for body in bodies:
        wire.call("queue.tube.spilled:put", body)
        wire.call("queue.put", 0, "spilled15", 0, 0, 0, None, body, "second")
    assert wire.call("queue.tube.spilled:peek", 5) == [[5, "r", bodies[5]]]
    assert wire.call("box.space.spilled:get", 6)[0][-1] == bodies[6]
    for number, body in enumerate(bodies):
        assert wire.call("queue.tube.spilled:take", 0) == [[number, "t", body]]
        end = "delete" if number % 2 else "ack"
        assert wire.call(f"queue.tube.spilled:{end}", number) == [[number, "-", body]]
        ((id, _, status, *fields),) = wire.call("queue.take", 0, "spilled15", 0)
        assert (status, fields) == ("taken", [body, "second"])
        assert wire.call("queue.ack", 0, id)[0][3:] == [body, "second"]


def test_waiting_clients_are_answered_when_everything_is_removed(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    server = start()
    wire = dial(server)
    wire.call("queue.create_tube", "flushed", "fifo")
    waiting = [wire.start("queue.tube.flushed:take"), wire.start("queue.take", 0, "flushed15")]
    wire.call("queue.state")
    assert server.connect().ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    assert [wire.result(sync) for sync in waiting] == [[], []]
    assert wire.call("queue.tube") == [[]]
