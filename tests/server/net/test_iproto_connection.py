"""IPROTO over a socket: the greeting, login, concurrent requests, and the end of a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

from tests.ports import free_port

from ..iproto_wire import (
    AUTH,
    CALL,
    CALL_16,
    EVAL,
    ID,
    PING,
    SELECT,
    IprotoWire,
    Refusal,
    call,
    pack,
    request,
    scrambled,
)
from ..serving import PENSTOCK, Server, Wire, configured, environment, refusals, wait_for

Connect = Callable[[], IprotoWire]
Dial = Callable[[Server], IprotoWire]


# ---- Connecting ------------------------------------------------------------------------------------------------------


def test_a_client_is_greeted_as_by_tarantool(iproto: IprotoWire) -> None:
    first, second, _ = iproto.greeting.split(b"\n")
    assert first.startswith(b"Tarantool 2.11.0 (Binary) ") and len(first) == len(second) == 63
    assert uuid.UUID(first[26:62].decode()).version == 4, "others are no greeting for Tarantool's own client"
    assert len(iproto.salt) == 20


def test_every_connection_has_a_salt_of_its_own(iprotos: Connect) -> None:
    assert iprotos().salt != iprotos().salt


def test_the_requests_of_connecting_clients_are_answered(iproto: IprotoWire) -> None:
    assert iproto.ask(ID, {0x54: 6, 0x55: [2]}) == (0, {0x54: 3, 0x55: []})
    loaded = {}
    for space in (281, 289, 277):
        code, body = iproto.ask(SELECT, {0x10: space, 0x11: 0, 0x12: 2**32 - 1, 0x14: 2, 0x20: []})
        assert code == 0
        loaded[space] = body[0x30]
    assert {row[2] for row in loaded[281]} >= {"_vspace", "_vindex", "_queue", "_queue_consumers", "_queue_taken"}
    assert {row[0] for row in loaded[289]} == {row[0] for row in loaded[281]} and loaded[277] == []
    assert iproto.ask(PING) == (0, {})


def test_other_requests_and_spaces_are_refused(iproto: IprotoWire) -> None:
    assert iproto.ask(2, {0x10: 512, 0x21: [1]}) == (0x8000 | 48, {0x31: "Unknown request type 2"})
    for space in (0, 511, 516, 1_023, 2**31, 2**63, 2**64 - 1):
        code, body = iproto.ask(SELECT, {0x10: space, 0x20: []})
        assert code == 0x8000 | 36 and body[0x31].endswith("does not exist"), space


@pytest.mark.parametrize("sync", [0, 1, 2**32, 2**64 - 1])
def test_an_answer_has_the_sync_of_its_request(iproto: IprotoWire, sync: int) -> None:
    iproto.send_raw(request(PING, sync=sync))
    assert iproto.read() == (0, sync, {})


# ---- Access control --------------------------------------------------------------------------------------------------

USERS = """
[users.worker]
password = "secret"
tubes = ["mail.*"]

[users.reader]
password = "look"
commands = ["read"]

[users.hashed]
password_sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("guarded")
    (home / "penstock.toml").write_text(f'requirepass = "main"\n{USERS}')
    server = Server(home, "penstock.toml", password="main")
    yield server
    server.stop()


def test_users_and_their_grants_are_those_of_resp(guarded: Server, dial: Dial) -> None:
    admin, worker, reader = (dial(guarded) for _ in range(3))
    assert admin.log_in("default", "main") == (0, {})
    admin.call("queue.create_tube", "mail.x", "fifo")
    admin.call("queue.create_tube", "other", "fifo")
    assert worker.log_in("worker", "secret") == (0, {})
    assert worker.call("queue.tube.mail.x:put", "hello") == [[0, "r", "hello"]]
    with pytest.raises(Refusal, match="no permission to use this queue") as refused:
        worker.call("queue.tube.other:put", "hello")
    assert refused.value.args[0] == 42
    with pytest.raises(Refusal, match=r"Execute access to function 'queue\.create_tube' is denied"):
        worker.call("queue.create_tube", "mail.y", "fifo")
    assert worker.call("queue.tube") == [["mail.x"]]
    assert reader.log_in("reader", "look") == (0, {})
    assert reader.call("queue.tube.mail.x:peek", 0) == [[0, "r", "hello"]]
    with pytest.raises(Refusal, match="Execute access to function"):
        reader.call("queue.tube.mail.x:take", 0)


def test_an_unauthenticated_client_may_only_log_in(guarded: Server, dial: Dial) -> None:
    wire = dial(guarded)
    assert wire.ask(PING) == (0, {})
    assert wire.ask(SELECT, {0x10: 281, 0x20: []}) == (0, {0x30: []})
    with pytest.raises(Refusal, match="denied for user 'guest'") as refused:
        wire.call("queue.tube")
    assert refused.value.args[0] == 42
    # A login, followed by a request that needs it.
    wire.send_raw(
        request(AUTH, {0x23: "default", 0x21: ["chap-sha1", scrambled("main", wire.salt)]}, 1)
        + call("queue.tube", [], 2)
    )
    assert wire.read() == (0, 1, {})
    assert wire.read()[:2] == (0, 2)


def test_an_unauthenticated_client_may_send_little_over_iproto(guarded: Server, dial: Dial) -> None:
    wire = dial(guarded)
    wire.send_raw(struct.pack(">BI", 0xCE, 20_000))
    code, sync, body = wire.read()
    assert (code, sync) == (0x8000 | 20, 0) and "16384 bytes" in body[0x31]
    assert wire.is_closed()


def test_wrong_logins_get_the_same_error_and_frequent_ones_are_delayed(guarded: Server, dial: Dial) -> None:
    wire = dial(guarded)
    code, body = wire.log_in("hashed", "secret")
    assert code == 0x8000 | 47 and "only a hash of its password" in body[0x31]
    for user, password in (("default", "wrong"), ("nobody", "main"), ("guest", "")):
        refused = (0x8000 | 47, {0x31: "User not found or supplied credentials are invalid"})
        assert wire.log_in(user, password) == refused
    for nonsense in ([], ["chap-sha1"], ["chap-sha1", b""], ["pap-sha256", "main"], ["chap-sha1", 5]):
        assert wire.ask(AUTH, {0x23: "default", 0x21: nonsense})[0] == 0x8000 | 47
    # A wrong password changes nothing for a client that is logged in.
    assert wire.log_in("default", "main") == (0, {})
    assert wire.log_in("default", "wrong")[0] == 0x8000 | 47
    assert wire.call("queue.state") == ["RUNNING"]
    # These were ten wrong passwords.
    guessed = time.monotonic()
    wire.send_raw(request(AUTH, {0x23: "default", 0x21: ["chap-sha1", b"x" * 20]}, 5) + request(PING, sync=6))
    other = guarded.connect()
    for _ in range(3):
        other.call("PING")
    assert wire.read()[:2] == (0x8000 | 47, 5)
    assert time.monotonic() - guessed >= 0.99
    assert wire.read()[:2] == (0, 6)


def test_the_user_guest_needs_no_password_if_none_is_set(iproto: IprotoWire) -> None:
    assert iproto.ask(AUTH, {0x23: "guest", 0x21: []}) == (0, {})
    assert iproto.log_in("admin", "x")[0] == 0x8000 | 47


# ---- Requests that run concurrently ----------------------------------------------------------------------------------


def test_a_waiting_take_does_not_delay_its_connection(iproto: IprotoWire, tube: str) -> None:
    waiting = iproto.start(f"queue.tube.{tube}:take")
    later = iproto.start(f"queue.tube.{tube}:take", 100)
    assert iproto.call(f"queue.tube.{tube}:put", "one") == [[0, "r", "one"]]
    assert iproto.result(waiting) == [[0, "t", "one"]]
    assert iproto.call(f"queue.tube.{tube}:put", "two") == [[1, "r", "two"]]
    assert iproto.result(later) == [[1, "t", "two"]]


def test_waiting_takes_are_served_in_order_of_arrival_not_of_timeout(iproto: IprotoWire, tube: str) -> None:
    waiting = [iproto.start(f"queue.tube.{tube}:take", seconds) for seconds in (300, 100, 200)]
    for body in "abc":
        iproto.call(f"queue.tube.{tube}:put", body)
    assert [iproto.result(sync)[0][2] for sync in waiting] == ["a", "b", "c"]


def test_a_take_ends_when_its_time_is_over(iproto: IprotoWire, tube: str) -> None:
    long = iproto.start(f"queue.tube.{tube}:take", 100)
    assert iproto.call(f"queue.tube.{tube}:take", 0.01) == []
    assert iproto.call(f"queue.tube.{tube}:take", 0) == iproto.call(f"queue.tube.{tube}:take", -1) == []
    iproto.call(f"queue.tube.{tube}:put", 1)
    assert iproto.result(long) == [[0, "t", 1]]


def test_every_request_of_a_pipeline_is_answered(iproto: IprotoWire, tube: str) -> None:
    count = 2_000
    iproto.send_raw(b"".join(call(f"queue.tube.{tube}:put", [number], number) for number in range(count)))
    assert [iproto.read() for _ in range(count)] == [
        (0, number, {0x30: [[number, "r", number]]}) for number in range(count)
    ]


def test_more_takes_than_may_wait_are_run_when_others_have_ended(
    iproto: IprotoWire, iprotos: Connect, tube: str
) -> None:
    count = 1_500
    iproto.send_raw(b"".join(call(f"queue.tube.{tube}:take", [], 10_000 + number) for number in range(count)))
    other = iprotos()
    for number in range(count):
        other.start(f"queue.tube.{tube}:put", number)
    taken = {iproto.read()[2][0x30][0][2] for _ in range(count)}
    assert taken == set(range(count))


def test_a_call_in_the_old_form_wraps_results_in_tuples(iproto: IprotoWire, tube: str) -> None:
    assert iproto.call(f"queue.tube.{tube}:put", "x", code=CALL_16) == [[0, "r", "x"]]
    assert iproto.call(f"queue.tube.{tube}:kick", 5, code=CALL_16) == [[0]]
    assert iproto.call("queue.statistics", tube, code=CALL_16)[0][0]["tasks"]["ready"] == 1
    assert iproto.call(f"queue.tube.{tube}:take", 0, code=CALL_16) == [[0, "t", "x"]]
    assert iproto.call(f"queue.tube.{tube}:take", 0, code=CALL_16) == []


@pytest.mark.parametrize("code", [CALL, CALL_16])
@pytest.mark.parametrize("body", [b"x" * 1_100_000, b"[" + b"1," * 2_200_000 + b"1]"], ids=["none", "of many values"])
def test_a_waiting_take_gets_a_body_marked_json_even_if_it_is_invalid(
    iproto: IprotoWire, wire: Wire, tube: str, body: bytes, code: int
) -> None:
    waiting = iproto.start(f"queue.tube.{tube}:take", 100, code=code)
    assert wire.ask("PUT", tube, body, "AS", "json").startswith(b"$40\r\n")
    [[_, state, data]] = iproto.result(waiting)
    assert state == "t" and data == (json.loads(body) if body[:1] == b"[" else body.decode())
    assert iproto.ask(PING) == (0, {})


@pytest.mark.parametrize(
    ("text", "args", "answer"),
    [
        ("return queue.tube(...)", ["{tube}"], [True]),
        ("queue.tube(...)", ["nope"], [False]),
        ("local name = ... ; return queue.tube[name] ~= nil", ["{tube}"], [True]),
        ("local name = ... ; return queue.tube[name] ~= null", ["nope"], [False]),
        ("return queue.state()", [], ["RUNNING"]),
    ],
)
def test_texts_that_clients_have_evaluated_are_understood(
    iproto: IprotoWire, tube: str, text: str, args: list[str], answer: Any
) -> None:
    args = [each.replace("{tube}", tube) for each in args]
    assert iproto.ask(EVAL, {0x27: text.replace("{tube}", tube), 0x21: args}) == (0, {0x30: answer})


def test_a_method_is_called_by_a_text_that_passes_its_arguments_on(iproto: IprotoWire, tube: str) -> None:
    code, body = iproto.ask(EVAL, {0x27: f"return queue.tube.{tube}:put(...)", 0x21: ["x"]})
    assert (code, body) == (0, {0x30: [[0, "r", "x"]]})
    # Values that the text does not pass on are no arguments.
    assert iproto.ask(EVAL, {0x27: f"return queue.tube.{tube}:kick( );", 0x21: ["nope"]}) == (0, {0x30: [0]})


def test_a_tube_is_created_by_the_text_of_go_tarantool(iproto: IprotoWire, queue: bytes) -> None:
    text = "local name, type, cfg = ... ; queue.create_tube(name, type, cfg)"
    code, body = iproto.ask(
        EVAL, {0x27: text, 0x21: ["made_by_go", "fifo", {"temporary": True, "if_not_exists": True}]}
    )
    assert code == 0 and body[0x30][0]["type"] == "fifo"


@pytest.mark.parametrize("text", ["return 1", "os.exit()", "return queue.tube.x:put('a')", "while true do end", ""])
def test_lua_is_not_evaluated(iproto: IprotoWire, text: str) -> None:
    code, body = iproto.ask(EVAL, {0x27: text, 0x21: []})
    assert code & 0x7FFF in (42, 33) and body[0x31]


def test_a_text_that_is_longer_than_any_that_is_understood_is_not_looked_at(iproto: IprotoWire) -> None:
    """Splitting sixty megabytes into words would delay all other clients for seconds."""
    for spaces, denied in ((60_000, 0), (66_000, 0x8000 | 42)):
        code, _ = iproto.ask(EVAL, {0x27: "return queue.statistics()" + " " * spaces, 0x21: []})
        assert code == denied


# ---- Disconnecting ---------------------------------------------------------------------------------------------------


def test_a_disconnect_releases_taken_jobs_and_cancels_waits(iproto: IprotoWire, iprotos: Connect, tube: str) -> None:
    iproto.call(f"queue.tube.{tube}:put", "x")
    other = iprotos()
    assert other.call(f"queue.tube.{tube}:take", 0) == [[0, "t", "x"]]
    other.start(f"queue.tube.{tube}:take")
    other.close()
    assert wait_for(lambda: iproto.call(f"queue.tube.{tube}:take", 0)) == [[0, "t", "x"]]
    iproto.call(f"queue.tube.{tube}:release", 0)
    assert iproto.call(f"queue.tube.{tube}:peek", 0) == [[0, "r", "x"]], "nobody waits any more"


def test_a_disconnect_with_ten_thousand_waiting_takes_harms_no_client(
    iproto: IprotoWire, iprotos: Connect, tube: str
) -> None:
    other = iprotos()
    other.send_raw(b"".join(call(f"queue.tube.{tube}:take", [], sync) for sync in range(10_000)))
    assert iproto.call(f"queue.tube.{tube}:put", "x") == [[0, "r", "x"]]
    assert other.read()[2] == {0x30: [[0, "t", "x"]]}
    other.close()
    assert wait_for(lambda: iproto.call(f"queue.tube.{tube}:take", 0)) == [[0, "t", "x"]]


def test_a_half_closed_client_is_answered_and_then_closed(iproto: IprotoWire, iprotos: Connect, tube: str) -> None:
    other = iprotos()
    sync = other.start(f"queue.tube.{tube}:take")
    put = other.start(f"queue.tube.{tube}:put", "x")
    last = other.start(f"queue.tube.{tube}:take")
    other.socket.shutdown(socket.SHUT_WR)
    assert other.result(put) == [[0, "r", "x"]]
    assert other.result(sync) == [[0, "t", "x"]]
    assert other.result(last) == []
    assert other.is_closed()


def test_a_session_is_resumed_by_its_uuid(start: Callable[..., Server], dial: Dial) -> None:
    server = start("--session-grace", "60")
    first, second = dial(server), dial(server)
    first.call("queue.create_tube", "q", "fifo")
    first.call("queue.tube.q:put", "x")
    (token,) = first.call("queue.identify")
    assert len(token.encode()) == 16
    first.call("queue.tube.q:take")
    first.close()
    with pytest.raises(Refusal, match="Task was not taken"):
        second.call("queue.tube.q:ack", 0)
    assert second.call("queue.identify", token) == [token]
    assert second.call("queue.tube.q:ack", 0) == [[0, "-", "x"]]
    for wrong, text in (("short", "Invalid UUID format."), (5, "Invalid UUID format."), ("x" * 16, "is unknown.")):
        with pytest.raises(Refusal, match=text):
            second.call("queue.identify", wrong)


def test_replies_are_durable_and_puts_survive_a_crash(
    start: Callable[..., Server],
    dial: Dial,
) -> None:
    server = start("--fsync", "always")
    wire = dial(server)
    wire.call("queue.create_tube", "q", "fifottl")
    for number in range(20):
        wire.call("queue.tube.q:put", {"n": number})
    wire.call("queue.tube.q:take")
    server.kill()
    again = dial(start("--fsync", "always"))
    assert [again.call("queue.tube.q:take", 0)[0] for _ in range(20)] == [[n, "t", {"n": n}] for n in range(20)]


# ---- Bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xc1",
        b"\x01\x01",
        b"\xce\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100,
        b"*1\r\n$4\r\nPING\r\n" + b"x" * 100,
        request(PING)[:-1] + b"\xc1",
    ],
)
def test_malformed_packets_get_an_error_and_are_closed(iproto: IprotoWire, iprotos: Connect, data: bytes) -> None:
    other = iprotos()
    other.send_raw(request(PING, sync=3) + data)
    assert other.read() == (0, 3, {})
    code, sync, body = other.read()
    assert (code, sync) == (0x8000 | 20, 0) and body[0x31].startswith("Invalid MsgPack - ")
    assert other.is_closed()
    assert iproto.ask(PING) == (0, {})


@pytest.mark.parametrize(
    "data",
    [
        b"\x06" + pack({0: 64, 1: 5}) + b"\xc0",
        b"\x09" + pack({0: 10, 1: 5}) + b"\x81\x21\xc0\xc0",
        struct.pack(">BI", 0xCE, 78) + pack({0: 10, 1: 5}) + b"\x81\x21" + b"\x91" * 70 + b"\x01",
    ],
)
def test_a_malformed_body_is_refused_and_the_client_keeps_its_jobs(iproto: IprotoWire, data: bytes) -> None:
    iproto.call("queue.create_tube", "q", "fifo", {"if_not_exists": True})
    iproto.call("queue.tube.q:put", "mine")
    [[task, *_]] = iproto.call("queue.tube.q:take")
    iproto.send_raw(data)
    code, sync, body = iproto.read()
    assert (code, sync) == (0x8000 | 20, 5) and body[0x31].startswith("Invalid MsgPack - ")
    assert iproto.call("queue.tube.q:ack", task) == [[task, "-", "mine"]]


@pytest.mark.parametrize(
    "name",
    [
        *[
            "",
            "x",
            "queue",
            "queue.",
            "queue.tube.",
            "queue.tube.:put",
            "queue.tube.x",
            "queue.tube.__class__:__init__",
        ],
        "queue.tube.nope:put",
        "os.exit",
        "a." * 10_000 + "b",
        "x" * 1_000_000,
        "queue.tube.no\0pe:put",
        ":",
        "::",
    ],
)
def test_unknown_functions_are_refused_with_the_text_that_clients_match(iproto: IprotoWire, name: str) -> None:
    with pytest.raises(Refusal, match="is not defined") as refused:
        iproto.call(name, 1)
    assert refused.value.args[0] == 33 and len(refused.value.args[1]) < 300


def test_a_body_of_any_kind_of_value_comes_back_as_it_was(iproto: IprotoWire, tube: str) -> None:
    values = ["", "text", "é", b"", b"\xff\x00", None, True, 0, -1, 2**64 - 1, 1.5, float("inf"), [], [1, [2]], {}]
    values += [
        {"a": {"b": [None]}},
        {1: 2},
        msgpack.ExtType(2, bytes(16)),
        msgpack.ExtType(4, b"12345678"),
        [b"b", "t"],
    ]
    for value in values:
        (put,) = iproto.call(f"queue.tube.{tube}:put", value)
        (taken,) = iproto.call(f"queue.tube.{tube}:take", 0)
        (acked,) = iproto.call(f"queue.tube.{tube}:ack", taken[0])
        for task in (put, taken, acked):
            assert task[2] == value and type(task[2]) is type(value)


def test_a_client_that_reads_nothing_is_not_read_from(iproto: IprotoWire, iprotos: Connect, tube: str) -> None:
    iproto.call(f"queue.tube.{tube}:put", "x" * 100_000)
    other = iprotos()
    other.socket.setblocking(False)
    peek = call(f"queue.tube.{tube}:peek", [0])
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 100_000_000:
            sent += other.socket.send(peek * 100)
    assert iproto.ask(PING) == (0, {})
    assert sent < 50_000_000


def test_clients_over_iproto_are_among_all_clients(iproto: IprotoWire, wire: Wire, tube: str) -> None:
    iproto.start(f"queue.tube.{tube}:take")
    host, port = iproto.socket.getsockname()
    line = wait_for(
        lambda: next(
            (
                line
                for line in wire.call("CLIENT", "LIST").decode().splitlines()
                if f"addr={host}:{port} " in line and "flags=b" in line
            ),
            None,
        )
    )
    assert f"cmd=queue.tube.{tube}:take"[:36] in line
    assert wire.ask("CLIENT", "KILL", f"{host}:{port}") == b"+OK\r\n"
    assert iproto.is_closed()


def test_calls_are_monitored_and_slow_ones_remembered(iproto: IprotoWire, wires: Callable[[], Wire], tube: str) -> None:
    watcher, wire = wires(), wires()
    assert watcher.ask("MONITOR") == b"+OK\r\n"
    with configured(wire, "slowlog-log-slower-than", 0):
        iproto.call(f"queue.tube.{tube}:put", "x")
        assert wait_for(lambda: f"queue.tube.{tube}:put".encode() in watcher.read())
        assert any(entry[3][0] == f"queue.tube.{tube}:put".encode() for entry in wire.call("SLOWLOG", "GET", 100))


# ---- Ports -----------------------------------------------------------------------------------------------------------


def test_a_port_that_was_asked_for_is_had_or_refused(tmp_path: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ((code, said),) = refusals(tmp_path, ["--port", "0", "--iproto-port", port])
    assert code == 1 and f"port {port} is in use; choose another port with --iproto-port" in said


def test_the_default_port_is_left_alone_where_it_is_taken(tmp_path: Any, start: Callable[..., Server]) -> None:
    port = free_port()
    # An address that no other test uses, because servers of concurrent tests may use the default port.
    address = f"127.1.{port >> 8}.{port & 255}"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server((address, 3301)))
        # The last of two flags counts, and the default is not a flag.
        process = stack.enter_context(
            subprocess.Popen(
                [*PENSTOCK, "serve", "--port", str(port), "--bind", address],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        process.terminate()
        process.stdout.read()
        assert process.wait(20) == 0
    assert f"{address}:{port}" in first and "IPROTO" not in first
    assert "port 3301 is in use, so IPROTO is off; choose another port with --iproto-port" in second


def test_a_client_without_progress_is_closed(start: Callable[..., Server], dial: Dial) -> None:
    server = start("--requirepass", "main", password="main")
    wire, silent, halting = server.connect(), dial(server), dial(server)
    assert halting.log_in("default", "main") == (0, {})
    halting.send_raw(call("queue.tube")[:-1])
    # Set late and for this client only, because a login may take longer than that on a busy machine.
    with configured(wire, "auth-timeout", "0.1s"), configured(wire, "progress-timeout", "0.1s"):
        assert silent.is_closed() and halting.is_closed()


def test_a_client_above_the_limit_gets_an_error(start: Callable[..., Server], dial: Dial) -> None:
    server = start("--maxclients", "2")
    wire = server.connect()

    def is_alone() -> bool:
        return wire.info("clients")["connected_clients"] == "1"

    # The connection that checked whether the server answers counts until its end is noticed.
    wait_for(is_alone)
    other = dial(server)
    assert other.ask(PING) == (0, {})
    code, _, body = dial(server).read()
    assert code == 0x8000 | 42 and "max number of clients" in body[0x31]
    # The last command of the test needs a connection, too.
    other.close()
    wait_for(is_alone)
