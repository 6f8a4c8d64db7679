"""Tubes: list, show, create, change and empty them."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import octets
from penstock.web.cursors import read_cursor, write_cursor
from penstock.web.exchange import Exchange
from penstock.web.names import tube_path
from penstock.web.node_replies import STATES, fields, tube_row
from penstock.web.response_shapes import CURSOR, TUBE_ROW
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Map, Record, Shape, Text, Whole

_SORTS: Final = ("name", *STATES, "oldest_ms", "consumers", "in_rate", "out_rate", "created")
_PAGE: Final = 100

TUBE: Final = Record(
    {
        "name": Text(example="emails"),
        "url": Text(example="/api/v1/tubes/emails"),
        "type": Text(example="fifottl"),
        "policy": Map(Shape(), "All rules of the tube; times are milliseconds.", example={"default_ttr_ms": 300_000}),
        "jobs": Whole("Number of jobs in all states.", example=1),
        "body_bytes": Whole("Number of bytes of all bodies.", example=24),
    },
    open=True,
    title="TubeDetails",
)


async def _list(exchange: Exchange) -> dict[str, Any]:
    state, query = exchange.state, exchange.query
    pattern = query.get("match", "").encode("utf-8", "surrogateescape")
    sampler = state.feeds.sampler(exchange.credentials)
    rows = await sampler.read(state.pool, exchange.credentials, exchange.client, pattern)
    sort = query.get("sort", "name")
    is_reversed = sort.startswith("-")
    name = sort.lstrip("-")
    if name != "created":
        rows.sort(key=lambda row: _sort_key(row, name), reverse=is_reversed)
    elif is_reversed:
        rows.reverse()
    kind = f"tubes {sort}"
    start = read_cursor(kind, query["cursor"], int)[0] if "cursor" in query else 0
    limit = query.get("limit", _PAGE)
    end = max(0, start) + limit
    return {
        "tubes": rows[max(0, start) : end],
        "total": len(rows),
        "cursor": write_cursor(kind, end) if end < len(rows) else None,
    }


def _sort_key(row: dict[str, Any], name: str) -> tuple[Any, str]:
    value = row[name]
    return (-1 if value is None else value), row["name"]


def tube_details(answer: Any) -> dict[str, Any]:
    """Return a tube from the reply to TUBE INFO."""
    found = fields(answer)
    found["url"] = "/api/v1" + tube_path(octets(answer[b"name"]))
    return found


async def _show(exchange: Exchange) -> dict[str, Any]:
    name = exchange.params["tube"]
    return {**tube_details(await exchange.ask(b"TUBE", b"INFO", name)), "stats": await _stats(exchange)}


async def _stats(exchange: Exchange) -> dict[str, Any]:
    return tube_row(await exchange.ask(b"TUBE", b"STATS", exchange.params["tube"]))


STATS: Final = Record(
    {name: shape for name, shape in TUBE_ROW.required.items() if not name.endswith("_rate")},
    {"events": Map(Whole(), "How often each event happened.", example={"put": 2}), "transitions": Map(Whole())},
    open=True,
    title="TubeStats",
)

ROUTES: Final = [
    Route(
        method="GET",
        path="/tubes",
        group="Tubes",
        summary="List the tubes with their numbers of jobs.",
        handler=_list,
        query={
            "match": Text("Only tubes whose name matches this glob pattern.", length=(1, 256), example="mail*"),
            "sort": Text(
                "Order of the list. With a minus sign, the order is reversed.",
                choices=(*_SORTS, *(f"-{name}" for name in _SORTS)),
                example="-ready",
            ),
            "cursor": Text("The cursor of the previous page."),
            "limit": Whole("Number of tubes per page.", least=1, most=1_000, example=100),
        },
        returns=Record(
            {
                "tubes": Items(TUBE_ROW, most=1_000),
                "total": Whole("Number of tubes that match.", example=1),
                "cursor": CURSOR,
            }
        ),
        errors=("BADCURSOR",),
    ),
    Route(
        method="GET",
        path="/tubes/{tube}",
        group="Tubes",
        summary="Show a tube: its policy, its numbers of jobs and its counters.",
        handler=_show,
        returns=Record({**TUBE.required, "stats": STATS}, open=True),
        errors=("NOTUBE",),
    ),
    Route(
        method="GET",
        path="/tubes/{tube}/stats",
        group="Tubes",
        summary="Show the numbers of jobs and the counters of a tube.",
        handler=_stats,
        returns=STATS,
        errors=("NOTUBE",),
    ),
]
