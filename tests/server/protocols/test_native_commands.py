"""Native commands over real sockets: waits, lost connections, restarts, histories and users, with two real clients."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from ..serving import PATIENCE_S, Refusal, Server, Wire, decoded, pairs, wait_for

Wires = Callable[[], Wire]
Start = Callable[..., Server]


def jobs(answer: list[Any]) -> list[dict[bytes, Any]]:
    """Return jobs from flat arrays."""
    return [pairs(job) for job in answer]


def refused(wire: Wire, *words: Any) -> str:
    answer = decoded(wire.ask(*words))
    assert isinstance(answer, Refusal), answer
    return str(answer)


def break_off(wire: Wire) -> None:
    """End a connection with a reset, as if its machine had crashed."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, socket_timeout=PATIENCE_S, protocol=request.param) as client:
        yield client
        client.connection_pool.disconnect()


def test_redis_py_puts_takes_and_acks(client: redis.Redis, queue: bytes) -> None:
    call = client.execute_command

    def as_map(answer: Any) -> dict[bytes, Any]:
        return answer if isinstance(answer, dict) else pairs(answer)

    name = queue + b"%d" % id(client)
    assert as_map(call("TUBE CREATE", name, "TTL", "1h"))[b"type"] == b"fifottl"
    first = call("PUT", name, json.dumps({"n": 1}), "AS", "json", "PRIORITY", 2)
    second, third = call("MPUT", name, "JOB", "b", "PRIORITY", 1, "JOB", "c")
    (job,) = call("TAKE", name)
    assert as_map(job)[b"id"] == third and call("ACK", third) == 1
    found = [as_map(each) for each in call("TAKE", name, "COUNT", 5)]
    assert [each[b"id"] for each in found] == [second, first]
    assert (found[1][b"as"], found[1][b"body"], found[1][b"key"]) == (b"json", b'{"n": 1}', None)
    assert call("RELEASE", first) in (True, b"OK") and call("ACK", first, second) == 1
    told = as_map(call("TUBE STATS", name))
    assert (told[b"ready"], as_map(told[b"events"])[b"acked"]) == (1, 2)
    with pytest.raises(redis.ResponseError, match="NOTTAKEN"):
        call("ACK", first)


def test_redis_cli_reads_native_answers(server: Server, queue: bytes, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("redis-cli"), "redis-cli is not installed (Debian: apt-get install redis-tools)")

    def typed(*words: str) -> str:
        command = ["redis-cli", "-3", "-p", str(server.port), "--no-raw", *words]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=PATIENCE_S).stdout

    name = queue.decode()
    assert typed("PUT", name, "hello", "TTL", "10m", "DELAY", "1h").startswith('"D-')
    assert '11# "state" => "delayed"' in typed("JOB", "PEEK", f"{name}#0")
    assert "did you mean DELAY?" in typed("PUT", name, "hello", "DELAYS", "1h")


def test_a_take_waits_across_connections_and_answers_stay_in_order(wires: Wires, queue: bytes) -> None:
    taker, putter = wires(), wires()
    taker.call("TUBE", "CREATE", queue)
    taker.send("TAKE", queue, "TIMEOUT", "forever", "COUNT", 2)
    taker.send("PING", "after")
    assert taker.is_silent(putter)
    id = putter.call("PUT", queue, "x")
    (job,) = jobs(decoded(taker.read()))
    assert job[b"id"] == id and decoded(taker.read()) == b"after"
    taker.send("TAKE", queue, "TIMEOUT", "20ms")
    assert decoded(taker.read()) == []


def test_a_waiting_put_and_a_waiting_wait_are_answered(wires: Wires, queue: bytes) -> None:
    first, second, third = wires(), wires(), wires()
    first.call("TUBE", "CREATE", queue, "CAPACITY", 1)
    id = first.call("PUT", queue, "x")
    second.send("PUT", queue, "y", "TIMEOUT", "10s")
    second.send("PING")
    third.send("JOB", "WAIT", id)
    assert second.is_silent(first) and third.is_silent(first)
    first.call("TAKE", queue)
    assert first.call("ACK", id) == 1
    assert decoded(third.read()) == 1
    assert len(decoded(second.read())) == 40 and decoded(second.read()) == b"PONG"
    assert refused(second, "PUT", queue, "z", "TIMEOUT", "10ms").startswith("FULL ")


def test_a_job_for_a_client_that_vanished_while_it_waited_goes_to_the_next(wires: Wires, queue: bytes) -> None:
    putter, lost, next_one = wires(), wires(), wires()
    putter.call("TUBE", "CREATE", queue)
    lost.send("TAKE", queue, "TIMEOUT", "forever")
    wait_for(lambda: pairs(putter.call("TUBE", "STATS", queue))[b"waiting"] == 1)
    next_one.send("TAKE", queue, "TIMEOUT", "forever")
    wait_for(lambda: pairs(putter.call("TUBE", "STATS", queue))[b"waiting"] == 2)
    break_off(lost)
    putter.call("PUT", queue, "x")
    (job,) = jobs(decoded(next_one.read()))
    assert job[b"deliveries"] == 1


def test_a_client_that_sends_no_more_waits_no_more(wires: Wires, queue: bytes) -> None:
    wire = wires()
    wire.call("TUBE", "CREATE", queue, "CAPACITY", 1)
    id = wire.call("PUT", queue, "x", "DELAY", "1h")
    for words in (["TAKE", queue, "TIMEOUT", "1h"], ["JOB", "WAIT", id], ["PUT", queue, "y", "TIMEOUT", "1h"]):
        other = wires()
        other.send(*words)
        other.socket.shutdown(socket.SHUT_WR)
        answer = decoded(other.read())
        assert answer == [] or answer == 0 or "full" in str(answer)


def test_jobs_of_a_session_outlive_its_connections_for_its_grace_time(wires: Wires, queue: bytes) -> None:
    gone, other, heir = wires(), wires(), wires()
    token = pairs(gone.call("IDENTIFY", "GRACE", "1h"))[b"token"]
    gone.call("TUBE", "CREATE", queue, "TYPE", "fifottl")
    id = gone.call("PUT", queue, "x")
    gone.call("TAKE", queue)
    number = gone.call("CLIENT", "ID")
    gone.close()
    wait_for(lambda: b"id=%d " % number not in other.call("CLIENT", "LIST"))
    assert refused(other, "ACK", id).startswith("NOTOWNER ")
    assert pairs(heir.call("IDENTIFY", token))[b"grace"] == 3_600_000
    assert heir.call("ACK", id) == 1
    heir.call("PUT", queue, "y")
    heir.call("TAKE", queue)
    assert pairs(heir.call("IDENTIFY", "GRACE", 0))[b"grace"] == 0
    heir.close()
    wait_for(lambda: pairs(other.call("TUBE", "STATS", queue))[b"ready"] == 1)
    assert refused(other, "IDENTIFY", token).startswith("NOSESSION ")


def test_a_grace_time_holds_after_a_crash(start: Start, tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path / "data"), "--session-grace", "0"]
    server = start(*words)
    early, late, hasty = server.connect(), server.connect(), server.connect()
    hasty.call("TUBE", "CREATE", "t", "TYPE", "fifottl")
    ids = hasty.call("MPUT", "t", "JOB", "a", "JOB", "b", "JOB", "c")
    tokens = [pairs(early.call("IDENTIFY", "GRACE", "1h"))[b"token"]]
    early.call("TAKE", "t")
    hasty.call("BGREWRITEAOF")
    wait_for(lambda: hasty.info("persistence")["aof_rewrite_in_progress"] == "0")
    tokens += [pairs(late.call("IDENTIFY", "GRACE", "2h"))[b"token"]]
    late.call("TAKE", "t")
    hasty.call("TAKE", "t")
    server.kill()
    wire = start(*words).connect()
    assert [job[b"id"] for job in jobs(wire.call("TAKE", "t", "COUNT", 5))] == [ids[2]]
    for token, id, hours in zip(tokens, ids, (1, 2), strict=False):
        assert pairs(wire.call("IDENTIFY", token))[b"grace"] == hours * 3_600_000
        assert wire.call("ACK", id) == 1


def test_the_history_of_a_deleted_job_can_be_read(wire: Wire, queue: bytes) -> None:
    id = wire.call("PUT", queue, "x", "TTL", "1h")
    wire.call("TAKE", queue)
    wire.send("ACK", id)
    wire.send("JOB", "HISTORY", id)
    wire.send("PING", "after")
    assert decoded(wire.read()) == 1

    def told() -> list[dict[bytes, Any]]:
        return jobs(wire.call("JOB", "HISTORY", id))

    first = jobs(decoded(wire.read()))
    assert decoded(wire.read()) == b"after"
    assert [event[b"event"] for event in first] == [b"put", b"taken", b"acked"][: len(first)]
    events = wait_for(lambda: len(found := told()) == 3 and found)
    assert (events[0][b"body"], events[0][b"tube"], events[2][b"after"]) == (b"x", queue, b"gone")
    assert refused(wire, "JOB", "HISTORY", "nonsense").startswith("BADID ")
    assert refused(wire, "JOB", "HISTORY", queue + b"#0").startswith("NOJOB ")


def test_a_history_needs_a_journal(start: Start) -> None:
    wire = start("--appendonly", "no").connect()
    assert refused(wire, "JOB", "HISTORY", wire.call("PUT", "t", "x")).startswith("NOJOURNAL ")


USERS = """
[users.reader]
password = "r"
commands = ["read"]
[users.mail]
password = "m"
commands = ["read", "write"]
tubes = ["mail.*"]
"""


def test_users_are_permitted_native_commands_as_the_others(start: Start, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(USERS)
    server = start(str(tmp_path / "penstock.toml"), "--requirepass", "all", password="all")
    owner, reader, mail = server.connect(), server.connect(), server.connect()
    reader.call("AUTH", "reader", "r")
    mail.call("AUTH", "mail", "m")
    id = owner.call("PUT", "secret", "x")
    assert reader.call("TUBE", "LIST") == [b"secret"]
    for words in (["PUT", "t", "x"], ["TAKE", "secret"], ["JOB", "DELETE", id], ["TUBE", "DROP", "secret"]):
        assert refused(reader, *words).startswith("NOPERM ")
    for words in (["JOB", "PEEK", id], ["TAKE", "secret"], ["JOB", "HISTORY", id], ["TUBE", "INFO", "secret"]):
        assert refused(mail, *words).startswith("NOPERM "), words
    mail.call("PUT", "mail.in", "x")
    assert mail.call("TUBE", "LIST") == [b"mail.in"]
    assert refused(mail, "TUBE", "ALTER", "mail.in", "TTL", 5).startswith("NOPERM ")


def test_stages_and_consumers_of_other_users_are_protected(start: Start, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(USERS)
    server = start(str(tmp_path / "penstock.toml"), "--requirepass", "all", password="all")
    owner, mail = server.connect(), server.connect()
    mail.call("AUTH", "mail", "m")
    owner.call("MPUT", "secret", "JOB", "x", "JOB", "y")
    owner.call("CLAIM", "TAKE", "secret", "nightly", 1, "COUNT", 1)
    owner.call("STAGE", "night", "secret", "JOB", "z")
    mail.call("PUT", "mail.in", "x")
    for words in (
        ["CLAIM", "TAKE", "mail.in", "nightly", 1, "TOKEN", 9],
        ["CLAIM", "TAKE", "mail.in", "nightly", 2, "TOKEN", 9],
        *([["CLAIM", word, "nightly", "TOKEN", 9] for word in ("RENEW", "RELEASE")]),
        *(["CLAIM", "ACK", "nightly", 1, "TOKEN", 9], ["CLAIM", "READ", "nightly", 1], ["CLAIM", "INFO", "nightly"]),
        ["STAGE", "night", "mail.in", "EXPIRE", "1ms", "JOB", "x"],
        *([[word, "mail.night", "night"] for word in ("PUBLISH", "DISCARD")]),
    ):
        assert refused(mail, *words).startswith("NOPERM "), words
    assert owner.call("CLAIM", "RENEW", "nightly") == 1
    assert owner.call("PUBLISH", "night") == 1
    assert mail.call("STAGE", "mail.night", "mail.in", "JOB", "y") == mail.call("PUBLISH", "mail.night") == 1
    assert len(mail.call("CLAIM", "TAKE", "mail.in", "mail.nightly", 1)) == 2


def test_session_tokens_are_not_shown_to_others(wires: Wires) -> None:
    wire, monitor = wires(), wires()
    monitor.call("MONITOR")
    token = pairs(wire.call("IDENTIFY", "GRACE", "1s"))[b"token"]
    wire.call("IDENTIFY", token)
    wire.call("PING", "end")
    seen = b""
    while b"end" not in seen:
        seen += monitor.read()
    assert token not in seen and b"(redacted)" in seen


def test_client_list_shows_held_jobs_and_waits(wires: Wires, queue: bytes) -> None:
    wire, taker = wires(), wires()
    wire.call("MPUT", queue, "JOB", "a", "JOB", "b")
    number = taker.call("CLIENT", "ID")
    taker.call("TAKE", queue, "COUNT", 2)
    taker.send("TAKE", queue, "TIMEOUT", "1h")

    def line() -> dict[str, str]:
        lines = wire.call("CLIENT", "LIST").decode().splitlines()
        (found,) = [line for line in lines if line.startswith(f"id={number} ")]
        return dict(field.split("=", 1) for field in found.split(" "))

    told = wait_for(lambda: (found := line())["waits"] == "take" and found)
    assert told["held"] == "2" and told["cmd"] == "take"


def test_a_node_that_leaves_lets_native_waits_go(start: Start) -> None:
    server = start()
    wire, waiting = server.connect(), server.connect()
    wire.call("TUBE", "CREATE", "t")
    waiting.send("TAKE", "t", "TIMEOUT", "1h")
    assert waiting.is_silent(wire)
    wire.call("CLUSTER", "LEAVING", "yes")
    assert str(decoded(waiting.read())).startswith("LEAVING ")
    assert refused(wire, "PUT", "t", "x").startswith("LEAVING ")


def test_a_thousand_jobs_are_one_command_and_one_commit(wires: Wires, queue: bytes) -> None:
    wire = wires()
    ids = wire.call("MPUT", queue, *[word for number in range(1_000) for word in ("JOB", f"body {number}")])
    assert len(set(ids)) == 1_000
    found = jobs(wire.call("TAKE", queue, "COUNT", 1_000))
    assert [job[b"id"] for job in found] == ids and found[999][b"body"] == b"body 999"
    assert wire.call("ACK", *ids) == 1_000


def test_many_clients_take_each_job_once(server: Server, queue: bytes) -> None:
    wires = [Wire(server.port) for _ in range(8)]
    wires[0].call("TUBE", "CREATE", queue)
    taken: list[bytes] = []
    all_put = threading.Event()

    def work(wire: Wire) -> None:
        is_last = False
        # A worker is done when it finds nothing after the last put. The producer may be slow.
        while not is_last:
            is_last = all_put.is_set()
            while found := jobs(wire.call("TAKE", queue, "COUNT", 5, "TIMEOUT", "300ms")):
                assert wire.call("ACK", *[job[b"id"] for job in found]) == len(found)
                taken.extend(job[b"id"] for job in found)

    workers = [threading.Thread(target=work, args=(wire,)) for wire in wires[1:]]
    for worker in workers:
        worker.start()
    ids = [id for _ in range(20) for id in wires[0].call("MPUT", queue, *["JOB", "x"] * 20)]
    all_put.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert sorted(taken) == sorted(ids)
    for wire in wires:
        wire.close()
