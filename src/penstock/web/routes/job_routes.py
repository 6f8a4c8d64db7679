"""Jobs: search, show and change them."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import items, octets
from penstock.core.errors import BadId
from penstock.report.job_history import HistoryLine, describe
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
    if "where" in query:
        words += [b"WHERE", query["where"].encode("utf-8", "surrogateescape")]
    words += [b"HEADERS", b"SINCE"]
    answer = await exchange.ask(*words, alone=True)
    following = octets(answer[0])
    return {
        "jobs": node_replies.jobs(items(answer[1])),
        "cursor": None if following == b"0" else write_cursor("jobs", int(following)),
        **(node_replies.fields(answer[2]) if "where" in query else {}),
    }


async def _show(exchange: Exchange) -> dict[str, Any]:
    id = job_id(exchange)
    shown, meta = await asyncio.gather(exchange.ask(b"JOB", b"PEEK", id), exchange.ask(b"JOB", b"META", id))
    return {**node_replies.job(shown), "meta": node_replies.fields(meta)}


async def _history(exchange: Exchange) -> dict[str, Any]:
    answer = await exchange.ask(b"JOB", b"HISTORY", job_id(exchange), alone=True)
    events = [commands.event(each) for each in items(answer)]
    now_ms = time.time_ns() // 1_000_000
    told = [_history_line(line) for line in describe(events, now_ms)]
    return {"now_ms": now_ms, "events": [node_replies.event(each) for each in events], "lines": told}


def _history_line(line: HistoryLine) -> dict[str, Any]:
    if line.event is None:
        return {"words": line.words}
    return {"words": line.words, "position": line.event.position, "time_ms": line.event.time_ms}


ROUTES: Final = [
    Route(
        method="GET",
        path="/jobs",
        group="Jobs",
        summary="List jobs, or search for jobs.",
        about=(
            "A page can be empty although there are more: continue while `cursor` is not null. With `where`, "
            "`examined` is the number of jobs that the node looked at for this page."
        ),
        handler=_search,
        query={
            "tube": Text("Only jobs of this tube.", length=(1, 65_535), example="emails"),
            "state": Items(
                Text(choices=node_replies.STATES), "Only jobs in these states, separated by commas.", example=["ready"]
            ),
            "where": Text("Only jobs that meet this condition.", length=(1, 4_096), example="body.user == 42"),
            "cursor": Text("The cursor of the previous page."),
            "limit": Whole("Number of jobs per page, approximately.", least=1, most=_PAGE_MAX, example=50),
        },
        returns=page("jobs", JOB, "The jobs of this page."),
        errors=("BADCURSOR", "NOTUBE", "BADCONDITION"),
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
        about="`lines` describe the events in words, and how long the job stayed in each state.",
        returns=Record(
            {
                "now_ms": Whole("The time of the response. Milliseconds since 1970.", example=1_795_031_234_407),
                "events": Items(EVENT, most=1_000_000),
                "lines": Items(
                    Record(
                        {"words": Text(example="taken by worker-3 (ann) (delivery 1)")},
                        {
                            "position": Whole("The position of its event. A line without one is a time in a state."),
                            "time_ms": Whole("When it happened. Milliseconds since 1970."),
                        },
                    ),
                    most=2_000_000,
                ),
            }
        ),
        errors=("NOJOB", "BADID", "NOJOURNAL"),
    ),
]
