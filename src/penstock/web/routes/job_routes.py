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
_EXAMINE: Final = 100_000
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
    words = [b"JOB", b"SCAN", b"%d" % (after % _CURSOR_MAX), b"COUNT", b"%d" % query.get("limit", _PAGE)]
    words += filter_words(query)
    if "where" not in query:
        # With a condition, the node returns at most as many jobs as there are on a page.
        words += [b"WHERE", b"true"]
    words += [b"EXAMINE", b"%d" % query.get("examine", _EXAMINE)]
    answer = await exchange.ask(*words, alone=True)
    following = octets(answer[0])
    return {
        "jobs": node_replies.jobs(items(answer[1])),
        "cursor": None if following == b"0" else write_cursor("jobs", int(following)),
        **node_replies.fields(answer[2]),
    }


def filter_words(given: dict[str, Any]) -> list[bytes]:
    """Return the words of a scan for the jobs that a filter matches."""
    words: list[bytes] = []
    if "tube" in given:
        words += [b"TUBE", bytes_of(given["tube"])]
    if "state" in given:
        words += [b"STATE", *(state.encode() for state in given["state"])]
    if "where" in given:
        words += [b"WHERE", bytes_of(given["where"])]
    return words


FILTERS: Final = {
    "tube": Text("Only jobs of this tube.", length=(1, 65_535), example="emails"),
    "state": Items(
        Text(choices=node_replies.STATES), "Only jobs in these states.", least=1, most=10, example=["buried"]
    ),
    "where": Text(
        "Only jobs for which this condition is true: see docs/reference/search.md.",
        length=(1, 4_096),
        example="deliveries > 3",
    ),
}


async def _show(exchange: Exchange) -> dict[str, Any]:
    id = job_id(exchange)
    shown, meta = await asyncio.gather(exchange.ask(b"JOB", b"PEEK", id), exchange.ask(b"JOB", b"META", id))
    found = {**node_replies.job(shown), "meta": node_replies.fields(meta)}
    if found["number"] is None:  # The job is in a `disque` tube, so several nodes can have copies.
        found["copies"] = node_replies.copies(await exchange.ask(b"SHOW", id))
    return found


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
            "A page can have fewer jobs than `limit`, or none, although there are more: continue while `cursor` is not "
            "null. `examined` says how many jobs the node looked at for this page. `skipped` of them have a body that "
            "the condition needs and that could not be read."
        ),
        handler=_search,
        query={
            **FILTERS,
            "cursor": Text("The cursor of the previous page."),
            "limit": Whole("Number of jobs per page.", least=1, most=_PAGE_MAX, example=50),
            "examine": Whole("Look at up to this many jobs.", least=1, most=1_000_000, example=100_000),
        },
        returns=page(
            "jobs",
            JOB,
            "The jobs of this page.",
            {
                "examined": Whole("Number of jobs that were looked at.", example=1_200),
                "skipped": Whole("Number of bodies that could not be read.", example=0),
            },
        ),
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
