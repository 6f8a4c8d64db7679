"""Tubes: list, show, create, change and empty them."""

from __future__ import annotations

from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import NO_REPEAT, number, octets
from penstock.core.limits import BATCH_JOBS_MAX
from penstock.web.cursors import read_cursor, write_cursor
from penstock.web.exchange import Exchange
from penstock.web.json_text import encode
from penstock.web.names import bytes_of, tube_path
from penstock.web.node_replies import STATES, fields, tube_row
from penstock.web.put_options import TUBE_OPTIONS, python_options
from penstock.web.refusals import bad_request
from penstock.web.response_shapes import CURSOR, TUBE_ROW
from penstock.web.route_table import ADMIN, WRITE, Route
from penstock.web.routes.session_routes import PAGE, PAGE_QUERY, list_sessions
from penstock.web.routes.settle_routes import time_words
from penstock.web.shapes import Items, Map, Null, Record, Shape, Text, Time, Whole, Yes

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


async def _keys(exchange: Exchange) -> dict[str, Any]:
    words = [b"TUBE", b"KEYS", exchange.params["tube"], b"COUNT", b"%d" % exchange.query.get("count", 100)]
    return fields(await exchange.ask(*words, alone=True))


async def _consumers(exchange: Exchange) -> dict[str, Any]:
    await _stats(exchange)  # A scan of an unknown tube would find nothing.
    return await list_sessions(exchange, exchange.params["tube"])


async def _create(exchange: Exchange) -> dict[str, Any]:
    request = dict(exchange.body)
    name = bytes_of(request.pop("name"))
    kind = request.pop("type", None)
    for_driver = request.pop("options", None)
    if for_driver is None:
        words = commands.tube(name, kind, python_options(request)).words
    elif request or kind is None:
        raise bad_request("options are for the driver that type names; leave out all other fields")
    else:
        words = [b"TUBE", b"CREATE", name, b"TYPE", bytes_of(kind), b"OPTIONS", encode(for_driver).encode()]
    return tube_details(await exchange.ask(*words))


async def _alter(exchange: Exchange) -> dict[str, Any]:
    call = commands.alter(exchange.params["tube"], python_options(exchange.body))
    return tube_details(await exchange.ask(*call.words, repeat=call.repeat))


async def _drop(exchange: Exchange) -> None:
    await exchange.run(commands.drop(exchange.params["tube"]), alone=True)


async def _pause(exchange: Exchange) -> None:
    request = exchange.body
    puts, takes = request.get("puts", True), request.get("takes", True)
    await exchange.run(commands.pause(exchange.params["tube"], puts, takes))


async def _resume(exchange: Exchange) -> None:
    await exchange.run(commands.pause(exchange.params["tube"], False, False))


async def _kick(exchange: Exchange) -> dict[str, Any]:
    request = exchange.body
    words = [b"KICK", exchange.params["tube"], b"%d" % request.get("count", 1), *time_words(request, "delay", "ttl")]
    return {"kicked": number(await exchange.ask(*words, repeat=NO_REPEAT))}


async def _truncate(exchange: Exchange) -> dict[str, Any]:
    if exchange.body.get("dry_run", False):
        stats = await _stats(exchange)
        return {"dry_run": True, "jobs": sum(stats[state] for state in STATES)}
    return {"dry_run": False, "jobs": await exchange.run(commands.truncate(exchange.params["tube"]), alone=True)}


async def _release(exchange: Exchange) -> dict[str, Any]:
    if exchange.body.get("dry_run", False):
        return {"dry_run": True, "jobs": (await _stats(exchange))["taken"]}
    return {"dry_run": False, "jobs": await exchange.run(commands.release_all(exchange.params["tube"]), alone=True)}


_DRY_RUN: Final = {"dry_run": Yes("Only count the jobs.", example=True)}
_COUNTED: Final = Record({"dry_run": Yes(example=True), "jobs": Whole("Number of jobs.", example=12)})
_TUBE_ERRORS: Final = ("BADNAME", "RANGE", "UNSUPPORTED", "BADRETRY", "NOTYPE")


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
    Route(
        method="GET",
        path="/tubes/{tube}/keys",
        group="Tubes",
        summary="List the keys of a tube that have the most ready jobs.",
        handler=_keys,
        query={"count": Whole("Number of keys.", least=1, most=1_000, example=100)},
        returns=Record(
            {
                "count": Whole("Number of all keys.", example=1),
                "keys": Items(
                    Record(
                        {
                            "key": Text(example="ann"),
                            "ready": Whole("Number of ready jobs.", example=3),
                            "taken": Whole("Number of taken jobs.", example=1),
                            "jobs": Whole("Number of jobs in any state.", example=4),
                        },
                        open=True,
                    ),
                    most=1_000,
                ),
            },
            open=True,
        ),
        errors=("NOTUBE",),
    ),
    Route(
        method="GET",
        path="/tubes/{tube}/consumers",
        group="Tubes",
        summary="List the sessions that hold or await jobs of a tube.",
        handler=_consumers,
        query=PAGE_QUERY,
        returns=PAGE,
        errors=("NOTUBE", "BADCURSOR"),
    ),
    Route(
        method="POST",
        path="/tubes",
        group="Tubes",
        summary="Create a tube, or find it if it exists with the same options.",
        handler=_create,
        access=WRITE,
        status=201,
        body=Record(
            {"name": Text("The name of the tube.", length=(1, 65_535), example="emails")},
            {
                "type": Text("A preset such as fifottl or utube, or a driver.", length=(1, 200), example="fifottl"),
                **TUBE_OPTIONS,
                "options": Map(Shape(), "Options for the driver of the tube.", most=1_000),
            },
            example={"name": "emails", "type": "fifottl", "ttr": "5m"},
        ),
        returns=TUBE,
        errors=("TUBEEXISTS", "BADDRIVER", *_TUBE_ERRORS),
    ),
    Route(
        method="PATCH",
        path="/tubes/{tube}",
        group="Tubes",
        summary="Change options of a tube.",
        handler=_alter,
        access=ADMIN,
        body=Record({}, TUBE_OPTIONS, example={"ttr": "10m"}),
        returns=TUBE,
        errors=("NOTUBE", "TUBEEXISTS", *_TUBE_ERRORS),
    ),
    Route(
        method="DELETE",
        path="/tubes/{tube}",
        group="Tubes",
        summary="Delete a tube and its jobs.",
        handler=_drop,
        access=ADMIN,
        status=204,
        returns=None,
        errors=("NOTUBE", "TUBETAKEN", "TUBEAWAITED"),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/pause",
        group="Tubes",
        summary="Refuse puts, suspend takes, or both.",
        handler=_pause,
        access=WRITE,
        status=204,
        body=Record(
            {}, {"puts": Yes("Refuse puts. Default: true."), "takes": Yes("Suspend takes. Default: true.")}, example={}
        ),
        body_required=False,
        returns=None,
        errors=("NOTUBE",),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/resume",
        group="Tubes",
        summary="Accept puts and serve takes again.",
        handler=_resume,
        access=WRITE,
        status=204,
        body=Record({}, example={}),
        body_required=False,
        returns=None,
        errors=("NOTUBE",),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/kick",
        group="Tubes",
        summary="Return the first buried jobs to the tube, in their order.",
        handler=_kick,
        access=WRITE,
        body=Record(
            {},
            {
                "count": Whole("Number of jobs. Default: 1.", least=1, most=BATCH_JOBS_MAX, example=10),
                "delay": Time("Wait this long before the jobs can be taken.", example="10s"),
                "ttl": Null(Time("Expire the jobs after this long. null: never.")),
            },
        ),
        body_required=False,
        returns=Record({"kicked": Whole("Number of jobs.", example=10)}),
        errors=("NOTUBE", "UNSUPPORTED"),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/release",
        group="Tubes",
        summary="Return all taken jobs to the tube, no matter which session holds them.",
        handler=_release,
        access=ADMIN,
        body=Record({}, _DRY_RUN),
        body_required=False,
        returns=_COUNTED,
        errors=("NOTUBE",),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/truncate",
        group="Tubes",
        summary="Delete all jobs of a tube.",
        handler=_truncate,
        access=ADMIN,
        body=Record({}, _DRY_RUN),
        body_required=False,
        returns=_COUNTED,
        errors=("NOTUBE",),
    ),
]
