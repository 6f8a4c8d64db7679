"""The journal: what happened to all jobs."""

from __future__ import annotations

from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import items, number
from penstock.web import node_replies
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of
from penstock.web.response_shapes import EVENT
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Record, Text, Whole

_PAGE: Final = 100


async def _page(exchange: Exchange) -> dict[str, Any]:
    query = exchange.query
    head = await exchange.ask(b"JOURNAL", b"HEAD")
    first, written = number(head[b"first"]), number(head[b"written"])
    limit = query.get("limit", _PAGE)
    # Without a position, show the end of the journal.
    position = query.get("position", max(first, written + 1 - limit))
    words = [b"JOURNAL", b"EVENTS", b"%d" % position, b"COUNT", b"%d" % limit]
    if "tube" in query:
        words += [b"TUBE", bytes_of(query["tube"])]
    answer = await exchange.ask(*words, alone=True)
    events = [commands.event(each) for each in items(answer[1])]
    wanted = query.get("event")
    return {
        "first": first,
        "end": written + 1,
        "next": number(answer[0]),
        "events": [node_replies.event(each) for each in events if wanted is None or each.event in wanted],
    }


ROUTES: Final = [
    Route(
        method="GET",
        path="/journal",
        group="Journal",
        summary="List events of the journal, the last ones by default.",
        about="To continue, give `next` as `position`. A page with `event` can be empty although there are more.",
        handler=_page,
        query={
            "position": Whole("The first position to read.", least=1, example=1),
            "tube": Text("Only events of this tube.", length=(1, 65_535), example="emails"),
            "event": Items(Text(), "Only these events, separated by commas.", example=["put"]),
            "limit": Whole("Number of events to read.", least=1, most=1_000, example=100),
        },
        returns=Record(
            {
                "first": Whole("The first position that is kept.", example=1),
                "end": Whole("The position behind the last event.", example=8),
                "next": Whole("Where to continue.", example=8),
                "events": Items(EVENT, most=1_000),
            }
        ),
        errors=("NOTUBE", "TRIMMED", "RANGE", "NOJOURNAL"),
    )
]
