"""Server-sent events."""

from __future__ import annotations

from typing import Final

from penstock.web.event_feed import OVERVIEW, TOPICS_MAX, TUBE, TUBES, Stream
from penstock.web.exchange import Exchange
from penstock.web.refusals import bad_request
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Text


async def _events(exchange: Exchange) -> Stream:
    topics = frozenset(exchange.query.get("topics", [OVERVIEW]))
    for topic in topics:
        if topic not in (OVERVIEW, TUBES) and not (topic.startswith(TUBE) and len(topic) > len(TUBE)):
            raise bad_request(f"there is no topic {topic[:50]!r}; there are {OVERVIEW}, {TUBES} and {TUBE}NAME")
    # Check the credentials now, because a stream that has begun cannot have another status.
    await exchange.ask(b"TUBE", b"SCAN", b"0", b"COUNT", b"1")
    stream = Stream(exchange.credentials, exchange.client, topics)
    exchange.state.feeds.open(stream)
    return stream


ROUTES: Final = [
    Route(
        method="GET",
        path="/events",
        group="Streams",
        summary="Stream the present numbers of the tubes as server-sent events.",
        about=(
            "Every second, a stream sends what has changed: `overview` with the totals, `tubes` with the changed rows "
            "(all rows if `full` is true) and the names in `gone`, and `tube` for each topic `tube:NAME`. `error` "
            "reports that the node cannot be read; the stream continues when it can. Names of tubes in topics are "
            "percent-encoded if they contain commas."
        ),
        handler=_events,
        query={"topics": Items(Text(), "Separated by commas.", most=TOPICS_MAX, example=["overview", "tubes"])},
        returns=Text(example="event: overview\ndata: {}\n\n"),
        media="text/event-stream",
    )
]
