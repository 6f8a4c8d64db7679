"""Headers survive the end of a server: kill -9, a snapshot, both, and a clean restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .serving import Server, Wire, pairs, wait_for

Start = Callable[..., Server]

HEADERS = {b"trace": b"00-0af7", b"raw": b"\xff\0\r\n", "ü".encode(): b""}


def words() -> list[bytes]:
    return [word for pair in HEADERS.items() for word in (b"HEADER", *pair)]


def headers_of(wire: Wire, id: bytes) -> dict[bytes, bytes]:
    return pairs(pairs(wire.call("JOB", "PEEK", id)).get(b"headers", []))


def snapshot(wire: Wire) -> None:
    wire.call("BGREWRITEAOF")
    wait_for(lambda: wire.info("persistence")["aof_rewrite_in_progress"] == "0")


@pytest.mark.parametrize("with_snapshot", [False, True], ids=["log", "snapshot and log"])
def test_a_crash_loses_no_headers(start: Start, with_snapshot: bool) -> None:
    server = start()
    wire = server.connect()
    ids = {}
    for name in ("ready", "taken", "buried", "moved", "out", "done", "staged", "claimed", "delayed"):
        wire.call("TUBE", "CREATE", name)
    wire.call("TUBE", "CREATE", "temporary", "TEMPORARY", "yes")
    wire.call("TUBE", "CREATE", "failed")
    put = [b"body", *words()]
    ids["ready"] = wire.call("PUT", "ready", *put)
    ids["delayed"] = wire.call("PUT", "delayed", *put, "DELAY", "1h")
    for name in ("taken", "buried", "moved", "done"):
        ids[name] = wire.call("PUT", name, *put)
        wire.call("TAKE", name)
    ids["out"] = wire.call("PUT", "temporary", *put)
    ids["dead"] = wire.call("PUT", "moved", *put, "RETRY", "1x then move failed")
    (ids["staged"],) = wire.call("STAGE", "stage", "staged", "IDS", "JOB", *put)
    ids["claimed"] = wire.call("PUT", "claimed", *put)
    ids["disque"] = wire.call("ADDJOB", "disque", "body", 0, *words())
    if with_snapshot:
        snapshot(wire)
    wire.call("BURY", ids["buried"])
    wire.call("JOB", "MOVE", ids["moved"], "ready")
    wire.call("JOB", "MOVE", ids["out"], "ready")
    wire.call("JOB", "DONE", ids["done"], "result")
    wire.call("CLAIM", "TAKE", "claimed", "reader", 1)
    wire.call("TAKE", "moved")
    wire.call("JOB", "NACK", ids["dead"])
    plain = wire.call("PUT", "ready", "without headers")
    for _ in range(2):
        assert {name: headers_of(wire, id) for name, id in ids.items()} == dict.fromkeys(ids, HEADERS)
        assert headers_of(wire, plain) == {}
        server.kill()
        server.start_again()
        wire = server.connect()
        if with_snapshot:
            snapshot(wire)
    assert wire.call("PUBLISH", "stage") == 1
    wire.call("KICK", "buried")
    (job,) = wire.call("TAKE", "staged", "HEADERS")
    assert dict(zip(job[::2], job[1::2], strict=True))[b"headers"] == [
        word for pair in HEADERS.items() for word in pair
    ]
    (job,) = wire.call("TAKE", "buried", "HEADERS")
    assert b"headers" in job
