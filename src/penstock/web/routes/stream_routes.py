"""Server-sent events."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from penstock.web.event_feed import OVERVIEW, TOPICS_MAX, TUBE, TUBES, Stream
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of
from penstock.web.refusals import bad_request
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Text


async def _events(exchange: Exchange) -> Stream:
    topics = frozenset(_decoded(topic) for topic in exchange.query.get("topics", [OVERVIEW]))
    for topic in topics:
        if topic not in (OVERVIEW, TUBES) and not (topic.startswith(TUBE) and len(topic) > len(TUBE)):
            raise bad_request(f"there is no topic {topic[:50]!r}; there are {OVERVIEW}, {TUBES} and {TUBE}NAME")
    # Check the credentials now, because a stream that has begun cannot have another status.
    await exchange.ask(b"TUBE", b"SCAN", b"0", b"COUNT", b"1")
    stream = Stream(exchange.credentials, exchange.client, topics)
    exchange.state.check_streams()
    exchange.state.feeds.open(stream)
    return stream


def _decoded(topic: str) -> str:
    """Return a topic whose name of a tube is not percent-encoded."""
    if not topic.startswith(TUBE):
        return topic
    return TUBE + unquote(topic.removeprefix(TUBE), errors="surrogateescape")


async def _journal(exchange: Exchange) -> Stream:
    query = exchange.query
    stream = Stream(exchange.credentials, exchange.client, frozenset())
    tube = bytes_of(query["tube"]) if "tube" in query else None
    wanted = frozenset(query["event"]) if "event" in query else None
    exchange.state.check_streams()
    await exchange.state.journals.open(stream, tube, wanted)
    return stream


ROUTES: Final = [
    Route(
        method="GET",
        path="/events",
        group="Streams",
        summary="Stream the present numbers of the tubes as server-sent events.",
        about=(
            "Every second, a stream sends what has changed: `overview` with the totals, `tubes` with the changed rows "
            "(all rows if `full` is true) and the names in `gone`, and `tube` for each topic `tube:NAME`. If nothing "
            "has changed, it sends `tick`. `error` reports that the node cannot be read; the stream continues then. "
            "Names of tubes in topics are percent-encoded if they contain commas."
        ),
        handler=_events,
        query={"topics": Items(Text(), "Separated by commas.", most=TOPICS_MAX, example=["overview", "tubes"])},
        returns=Text(example="event: overview\ndata: {}\n\n"),
        media="text/event-stream",
    ),
    Route(
        method="GET",
        path="/journal/stream",
        group="Streams",
        summary="Stream new events of the journal as server-sent events.",
        about=(
            "The stream begins with the newest events. Every second it sends `events` with those that are new, the "
            "newest first, or `tick` if there are none. If there are more than 500 in a second, `skipped` says how "
            "many are left out. Use GET /journal to read all of them."
        ),
        handler=_journal,
        query={
            "tube": Text("Only events of this tube.", length=(1, 65_535), example="emails"),
            "event": Items(Text(), "Only these events, separated by commas.", example=["put"]),
        },
        returns=Text(example="event: events\ndata: {}\n\n"),
        media="text/event-stream",
        errors=("NOTUBE", "NOJOURNAL"),
    ),
]
