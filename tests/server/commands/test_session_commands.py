"""SESSION SCAN: the sessions of a server, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from ..serving import Server, Wire, pairs, wait_for


@pytest.fixture
def wire(wire: Wire) -> Wire:
    """A connection to the shared server, after all jobs of other tests were removed."""
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    return wire


def all_sessions(wire: Wire, *options: str | int) -> list[dict[bytes, Any]]:
    """Return the sessions of a complete scan."""
    found, cursor = [], b"0"
    while True:
        cursor, page = wire.call("SESSION", "SCAN", cursor, *options)
        found += [pairs(each) for each in page]
        if cursor == b"0":
            return found


def test_connections_of_one_session_are_listed_together_and_its_jobs_once(server: Server, wire: Wire) -> None:
    wire.call("MPUT", "q", "JOB", "a", "JOB", "b", "JOB", "c")
    first, second = server.connect(), server.connect()
    first.call("CLIENT", "SETNAME", "worker-7")
    second.call("IDENTIFY", pairs(first.call("IDENTIFY"))[b"token"])
    first.call("TAKE", "q", "COUNT", 2)
    [session] = all_sessions(wire, "TUBE", "q")
    assert (session[b"name"], session[b"held"], pairs(session[b"holds"])) == (b"worker-7", 2, {b"q": 2})
    addresses = [pairs(each)[b"address"] for each in session[b"clients"]]
    assert len(addresses) == 2 and all(each.startswith(b"127.0.0.1:") for each in addresses)
    for client in (first, second):
        client.close()
    wait_for(lambda: not all_sessions(wire, "TUBE", "q"))


def test_waiting_takes_are_counted_by_tube_and_key(server: Server, wire: Wire) -> None:
    wire.call("TUBE", "CREATE", "keyed", "TYPE", "utube")
    waiter = server.connect()
    waiter.send("TAKE", "keyed", "KEY", "k", "TIMEOUT", "1h")
    wait_for(lambda: all_sessions(wire, "TUBE", "keyed"))
    [session] = all_sessions(wire, "TUBE", "keyed")
    assert pairs(session[b"waiting"]) == {b"keyed": 1} and session[b"held"] == 0
    waiter.close()


def test_pages_have_every_session_once(server: Server, wire: Wire) -> None:
    others = [server.connect() for _ in range(7)]
    for each in others:
        each.call("PING")
    numbers = [session[b"number"] for session in all_sessions(wire, "COUNT", 2)]
    assert len(numbers) == len(set(numbers)) >= 8
    for each in others:
        each.close()


def test_wrong_arguments_are_refused(wire: Wire) -> None:
    for words in (["x"], [-1], [0, "COUNT", 0], [0, "COUNT"], [0, "NAME", "x"]):
        assert wire.ask("SESSION", "SCAN", *words)[:1] == b"-"
    assert wire.call("SESSION", "SCAN", 1 << 40) == [b"0", []]
