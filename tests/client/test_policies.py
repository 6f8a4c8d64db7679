"""The policies of all tubes are read with a few requests."""

from __future__ import annotations

import penstock
from penstock.client import commands
from penstock.client.reconnecting_connection import ReconnectingConnection
from penstock.client.url import target
from tests.server.serving import Server


def url(server: Server) -> str:
    return f"penstock://127.0.0.1:{server.port}"


def test_a_scan_returns_the_name_and_policy_of_each_tube(server: Server) -> None:
    with penstock.connect(url(server)) as queue:
        expected = {
            tube.name: tube.policy
            for tube in (
                *(queue.tube(f"number {number}", "fifottl", ttl=60, capacity=number % 7) for number in range(150)),
                queue.tube("keys", "utubettl", key_limit=3, fair=True, retry="5x exp(1s..10m) then move dead"),
                queue.tube("disque", "disque"),
                queue.tube("kept", "fifo", keep=True, temporary=True),
            )
        }
    found: dict[str, penstock.TubePolicy] = {}
    link = ReconnectingConnection(target(url(server)))
    try:
        cursor, page = link.call(commands.scan_policies(b"0"))
        found.update(page)
        while cursor != b"0":
            cursor, page = link.call(commands.scan_policies(cursor))
            found.update(page)
    finally:
        link.close()
    assert {name: found[name] for name in expected} == expected
