"""Event streams: one reader for all of them, only changes, slow clients, and many streams.

`make test-api` opens 10,000 streams. It needs two descriptors for each of them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.server.serving import PATIENCE_S, Server, wait_for

from .http_api import Api, serving

STREAMS = int(os.environ.get("PENSTOCK_API_STREAMS", "200"))


def until(events: Iterator[tuple[str, Any]], name: str, **fields: Any) -> Any:
    """Return the data of the next event with this name and these fields."""
    for found, data in events:
        if found == name and all(data.get(field) == value for field, value in fields.items()):
            return data
    raise AssertionError("the stream ended")


def test_a_stream_begins_with_everything_and_continues_with_changes(api: Api, tube: str) -> None:
    api.post("/tubes", {"name": f"{tube}-quiet"})
    with api.events(f"?topics=overview,tubes,tube:{tube}") as events:
        name, overview = next(events)
        assert name == "overview" and overview["tubes"] >= 2
        rows = until(events, "tubes")
        assert rows["full"] and {f"{tube}-quiet", tube} <= {row["name"] for row in rows["tubes"]}
        assert until(events, "tube")["ready"] == 0
        api.post(f"/tubes/{tube}/jobs", {"body": 1})
        changed = until(events, "tubes", full=False)
        assert [row["ready"] for row in changed["tubes"] if row["name"] == tube] == [1]
        assert f"{tube}-quiet" not in [row["name"] for row in changed["tubes"]]
        assert until(events, "tube", ready=1)["events"]["put"] == 1
        api.call("DELETE", f"/tubes/{tube}-quiet")
        while f"{tube}-quiet" not in until(events, "tubes")["gone"]:
            pass


def test_rates_are_those_of_the_puts(api: Api, tube: str) -> None:
    with api.events("?topics=tubes") as events:
        until(events, "tubes")
        for number in range(20):
            api.post(f"/tubes/{tube}/jobs", {"body": number})
        while True:
            rows = [row for row in until(events, "tubes")["tubes"] if row["name"] == tube]
            if rows and rows[0]["in_rate"]:
                break


def test_a_topic_can_name_any_tube(api: Api) -> None:
    api.post("/tubes", {"name": "a,b"})
    with api.events("?topics=tube:a%252Cb,tube:nothing") as events:
        found = {until(events, "tube")["name"]: None, **{until(events, "tube")["name"]: None}}
        assert set(found) == {"a,b", "nothing"}


def test_many_streams_share_one_reader(node: Server) -> None:
    with serving(node.port, tick_s=0.2) as api:
        feeds = api.app.state.api.feeds
        sockets = []
        request = b"GET /api/v1/events?topics=overview,tubes HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(STREAMS):
            connection = socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE_S)
            connection.sendall(request)
            sockets.append(connection)
        wait_for(lambda: len(feeds) == STREAMS)
        for connection in sockets:
            data = b""
            while b"event: tubes" not in data:
                data += connection.recv(65_536)
        # All of them share a connection to the node or two, and the ticks.
        assert len(api.app.state.api.pool) <= 3
        ticks = feeds.ticks
        api.post("/tubes", {"name": "others-still-work"})
        wait_for(lambda: feeds.ticks > ticks)
        for connection in sockets:
            connection.close()
        wait_for(lambda: len(feeds) == 0)


def test_a_stream_that_is_not_read_is_closed(node: Server) -> None:
    with serving(node.port, tick_s=0.005) as api:
        for number in range(40):
            api.post("/tubes", {"name": f"slow-{number}-{'x' * 1_000}"})
        state = api.app.state.api
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", api.port))
        connection.sendall(b"GET /api/v1/events?topics=tubes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: len(state.feeds) == 1)
        session = api.session()

        def is_closed() -> bool:
            for number in range(40):
                api.post(f"/tubes/slow-{number}-{'x' * 1_000}/jobs", {"body": 1})
            return len(state.feeds) == 0

        wait_for(is_closed)
        assert session and state.metrics.dropped_streams == 1
        connection.close()


def test_streams_are_limited(node: Server) -> None:
    with serving(node.port, streams_max=1) as api, api.events():
        assert api.refused("GET", "/events") == (429, "TOOMANY")


def test_a_stream_reports_that_the_node_is_away_and_continues(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Server(tmp_path_factory.mktemp("away"))
    with serving(node.port) as api, api.events() as events:
        next(events)
        node.kill()
        assert until(events, "error")["error"]["code"] in ("NOSERVER", "CONNECTIONLOST")
        node.start_again()
        assert until(events, "overview")["tubes"] == 0
    node.stop()


def test_the_journal_can_be_followed(api: Api, tube: str) -> None:
    with api.http.stream("GET", f"/journal/stream?tube={tube}") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        api.post(f"/tubes/{tube}/jobs", {"body": {"n": 1}})
        data = next(line for line in lines if line.startswith("data: ") and '"put"' in line)
        assert f'"tube":"{tube}"' in data


def test_many_streams_of_the_journal_share_one_reader(node: Server) -> None:
    with serving(node.port, tick_s=0.2) as api, ExitStack() as stack:
        api.post("/tubes", {"name": "read-once"})
        journals = api.app.state.api.journals
        streams = [stack.enter_context(api.events(path="/journal/stream")) for _ in range(10)]
        for events in streams:
            until(events, "events")
        api.post("/tubes/read-once/jobs", {"body": 1})

        def has_put(name: str, data: Any) -> bool:
            newest = data["events"][0] if name == "events" and data["events"] else {}
            return (newest.get("event"), newest.get("tube")) == ("put", "read-once")

        read = []
        for events in streams:
            put = next(data for name, data in events if has_put(name, data))
            read.append([put, *(until(events, "tick") for _ in range(5))])
        # All streams get what one reader has read, with its times.
        assert read == read[:1] * len(streams)
        assert len(journals) == len(streams)
    wait_for(lambda: len(journals) == 0)


def test_streams_of_the_journal_end_with_the_api(node: Server) -> None:
    with serving(node.port) as api, api.events(path="/journal/stream") as events:
        next(events)
        api.app.state.api.stop()
        assert list(events) == []


def test_streams_of_the_journal_are_limited(node: Server) -> None:
    with serving(node.port, streams_max=1) as api, api.events(path="/journal/stream"):
        assert api.refused("GET", "/journal/stream") == (429, "TOOMANY")
