"""CALL: Tarantool's functions for RESP clients.

The functions themselves are tested over IPROTO. These tests are about permissions, arguments and the form of replies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from penstock.wire.msgpack import VALUES_MAX

from ..serving import Refusal, Server, Wire, decoded, wait_for


def call(wire: Wire, name: str, *args: Any) -> list[Any]:
    """Return the results of a function."""
    return called(wire, name, *args)[0]


def called(wire: Wire, name: str, *args: Any) -> tuple[list[Any], list[bytes]]:
    """Return the results of a function, and the ids of the jobs that it delivered."""
    send(wire, name, *args)
    return read(wire)


def send(wire: Wire, name: str, *args: Any) -> None:
    wire.send("CALL", name, *(msgpack.packb(arg, use_bin_type=True) for arg in args))


def read(wire: Wire) -> tuple[list[Any], list[bytes]]:
    answer = decoded(wire.read())
    if isinstance(answer, Refusal):
        raise answer
    return msgpack.unpackb(answer[0], strict_map_key=False), answer[1]


def refused(wire: Wire, *words: bytes | str) -> str:
    with pytest.raises(Refusal) as caught:
        wire.call(*words)
    return str(caught.value)


@pytest.mark.parametrize("body", ["text", b"\x00\xff\r\n", None, 1.5, {"a": [1, b"x"]}, msgpack.ExtType(2, b"u" * 16)])
def test_results_come_with_the_ids_of_the_jobs_handed_out(wire: Wire, tube: str, body: Any) -> None:
    assert called(wire, f"queue.tube.{tube}:put", body, {"pri": 1}) == ([[0, "r", body]], [])
    results, (id,) = called(wire, f"queue.tube.{tube}:take", 0)
    assert results == [[0, "t", body]]
    assert wire.call("JOB", "HELD") == [id]
    assert wire.call("ACK", id) == 1, "a job is the session's, whatever took it"
    assert called(wire, f"queue.tube.{tube}:take", 0) == ([], [])


def test_a_call_that_waits_is_answered_in_its_turn(wire: Wire, wires: Callable[[], Wire], tube: str) -> None:
    waiting, holding = wires(), wires()
    send(waiting, f"queue.tube.{tube}:take", 20)
    send(waiting, f"queue.tube.{tube}:take", 0.01)
    waiting.send("PING")
    assert waiting.is_silent(wire)
    call(wire, f"queue.tube.{tube}:put", "x")
    results, ids = read(waiting)
    assert (results, len(ids)) == ([[0, "t", "x"]], 1)
    assert read(waiting) == ([], []) and waiting.read() == b"+PONG\r\n"
    send(holding, f"queue.tube.{tube}:take")
    wait_for(lambda: wire.stat(tube)[b"blocked"] == 1)
    holding.close()
    wait_for(lambda: wire.stat(tube)[b"blocked"] == 0)
    waiting.close()
    wait_for(lambda: call(wire, f"queue.tube.{tube}:peek", 0) == [[0, "r", "x"]])


def test_spaces_the_1_5_api_and_long_calls(wire: Wire, wires: Callable[[], Wire], tube: str) -> None:
    options = {"fields": {"status": 2}, "features": {"id": "required"}}
    assert call(wire, "xqueue.upgrade", f"{tube}x", options)[0]["features"]["id"] == "required"
    assert call(wire, f"box.space.{tube}x:put", ["key"]) == [["key", "R"]]
    results, ids = called(wire, f"box.space.{tube}x:take", 1)
    assert (results, len(ids)) == ([["key", "T"]], 1)
    other = wires()
    send(other, f"box.space.{tube}x:wait", "key", 20)
    assert other.is_silent(wire)
    assert call(wire, f"box.space.{tube}x:ack", "key") == [["key", "T"]]
    assert read(other) == ([["key", "T"], True], [])

    ((_, *rest),) = call(wire, "queue15.put", "7", tube, "0", "60", "10", "200", "data")
    assert rest == [tube, "ready", "data"]
    assert call(wire, "queue15.statistics", 7, tube)[0][:2] == [f"space7.{tube}.put", "1"]
    assert call(wire, "queue.statistics", f"7/{tube}")[0]["tasks"]["ready"] == 1
    for _ in range(2_500):
        send(wire, f"queue.tube.{tube}:put", "x")
    for _ in range(2_500):
        read(wire)
    assert call(wire, "queue15.truncate", 0, tube) == [2_500]


def test_unknown_functions_are_refused_and_the_connection_stays_open(wire: Wire, tube: str) -> None:
    assert refused(wire, "CALL") == "ERR wrong number of arguments for 'call' command"
    assert refused(wire, "CALL", "queue.nope") == "ERR Procedure 'queue.nope' is not defined"
    assert refused(wire, "CALL", b"\xff", b"\x90") == r"ERR Procedure '\xff' is not defined"
    for value in (b"", b"\xc1", b"\x92\x01", b"\x01\x01", b"\xdd\xff\xff\xff\xff"):
        told = "WRONGTYPE argument 2 of queue.tube.q:put is not valid msgpack"
        assert refused(wire, "CALL", "queue.tube.q:put", b"\x01", value) == told
    told = "WRONGTYPE argument 1 of queue.tube.q:put is nested more than 64 deep; flatten it, or put it as text"
    assert refused(wire, "CALL", "queue.tube.q:put", b"\x91" * 80 + b"\x01") == told
    assert refused(wire, "CALL", f"queue.tube.{tube}:ack", b"\x05") == "ERR Task was not taken"
    assert refused(wire, "CALL", "box.space.nope:dig", b"\x05").startswith("ERR Procedure")
    assert refused(wire, "CALL", f"box.space.{tube}:insert", b"\x05").startswith("ERR ")
    assert refused(wire, "CALL", "xqueue.upgrade", b"\xa1x", b"\x05").startswith("XQUEUE ")
    assert wire.ask("PING") == b"+PONG\r\n"


def test_the_arguments_of_a_call_have_no_more_values_than_a_body_may(wire: Wire, tube: str) -> None:
    many = b"\xdd" + (VALUES_MAX - 1).to_bytes(4, "big") + b"\x01" * (VALUES_MAX - 1)
    half = b"\xdc\xff\xff" + b"\x01" * 0xFFFF
    for name, args in ((f"queue.tube.{tube}:put", [many]), ("queue15.put", [b"\x05", *[half] * 17])):
        assert refused(wire, "CALL", name, *args).endswith("is not valid msgpack")
    most = b"\xdd" + (VALUES_MAX - 2).to_bytes(4, "big") + b"\x01" * (VALUES_MAX - 2)
    assert wire.ask("CALL", f"queue.tube.{tube}:put", most).startswith(b"*2\r\n")
    assert wire.call("GETJOB", "NOHANG", "FROM", tube)[0][2] == b"[" + b"1," * (VALUES_MAX - 3) + b"1]"


USERS = """
requirepass = "all"
[users.reader]
password = "r"
commands = ["read"]
[users.mail]
password = "m"
tubes = ["mail"]
"""


def test_call_checks_the_permissions_of_each_function(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(USERS)
    wire = start(str(tmp_path / "penstock.toml"), password="all").connect()
    for name in ("mail", "other"):
        call(wire, "queue.create_tube", name, "fifo")
    wire.call("AUTH", "reader", "r")
    assert call(wire, "queue.tube", "mail") == [True]
    for name in ("queue.tube.mail:put", "queue15.put", "queue.create_tube", "xqueue.upgrade", "queue.tube.mail:drop"):
        assert refused(wire, "CALL", name) == f"NOPERM Execute access to function '{name}' is denied for this user"
    wire.call("AUTH", "mail", "m")
    assert call(wire, "queue.tube.mail:put", 1) == [[0, "r", 1]]
    for name, args in {"queue.tube.other:put": [1], "queue15.put": [0, "other"], "box.space.other:len": []}.items():
        with pytest.raises(Refusal, match="NOPERM this user has no permission to use this queue"):
            call(wire, name, *args)
    wire.call("AUTH", "default", "all")
