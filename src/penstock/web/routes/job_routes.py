"""Jobs: search, show and change them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import items, octets
from penstock.core.errors import BadId
from penstock.web import node_replies
from penstock.web.cursors import read_cursor, write_cursor
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of, id_of
from penstock.web.response_shapes import EVENT, JOB, JOB_DETAILS, page
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Record, Text, Whole

_PAGE: Final = 50
_PAGE_MAX: Final = 1_000
_CURSOR_MAX: Final = 2**63


def job_id(exchange: Exchange) -> bytes:
    """Return the id in the path of a request, in the form of the node."""
    id = id_of(exchange.params["id"])
    if not id:
        raise BadId()
    return id


async def _search(exchange: Exchange) -> dict[str, Any]:
    query = exchange.query
    after = read_cursor("jobs", query["cursor"], int)[0] if "cursor" in query else 0
    limit = query.get("limit", _PAGE)
    words = [b"JOB", b"SCAN", b"%d" % (after % _CURSOR_MAX), b"COUNT", b"%d" % limit]
    if "tube" in query:
        words += [b"TUBE", bytes_of(query["tube"])]
    if "state" in query:
        words += [b"STATE", *(state.encode() for state in query["state"])]
    words += [b"HEADERS", b"SINCE"]
    answer = await exchange.ask(*words, alone=True)
    following = octets(answer[0])
    return {
        "jobs": node_replies.jobs(items(answer[1])),
        "cursor": None if following == b"0" else write_cursor("jobs", int(following)),
    }


async def _show(exchange: Exchange) -> dict[str, Any]:
    id = job_id(exchange)
    shown, meta = await asyncio.gather(exchange.ask(b"JOB", b"PEEK", id), exchange.ask(b"JOB", b"META", id))
    return {**node_replies.job(shown), "meta": node_replies.fields(meta)}


async def _history(exchange: Exchange) -> dict[str, Any]:
    answer = await exchange.ask(b"JOB", b"HISTORY", job_id(exchange), alone=True)
    return {"events": [node_replies.event(commands.event(each)) for each in items(answer)]}


ROUTES: Final = [
    Route(
        method="GET",
        path="/jobs",
        group="Jobs",
        summary="List jobs, or search for jobs.",
        about="A page can be empty although there are more: continue while `cursor` is not null.",
        handler=_search,
        query={
            "tube": Text("Only jobs of this tube.", length=(1, 65_535), example="emails"),
            "state": Items(
                Text(choices=node_replies.STATES), "Only jobs in these states, separated by commas.", example=["ready"]
            ),
            "cursor": Text("The cursor of the previous page."),
            "limit": Whole("Number of jobs per page, approximately.", least=1, most=_PAGE_MAX, example=50),
        },
        returns=page("jobs", JOB, "The jobs of this page."),
        errors=("BADCURSOR", "NOTUBE"),
    ),
    Route(
        method="GET",
        path="/jobs/{id}",
        group="Jobs",
        summary="Show a job with its body and all properties.",
        handler=_show,
        returns=JOB_DETAILS,
        errors=("NOJOB", "BADID"),
    ),
    Route(
        method="GET",
        path="/jobs/{id}/history",
        group="Jobs",
        summary="List the events of a job, even if it is gone.",
        handler=_history,
        returns=Record({"events": Items(EVENT, most=1_000_000)}),
        errors=("NOJOB", "BADID", "NOJOURNAL"),
    ),
]
