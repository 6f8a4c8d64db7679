"""Actions on many jobs, and dead letters."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import octets
from penstock.web.bulk_run import BulkRun
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of
from penstock.web.node_replies import fields
from penstock.web.refusals import bad_request
from penstock.web.response_shapes import CURSOR, ID_EXAMPLE, TUBE_ROW
from penstock.web.route_table import READ, WRITE, Route
from penstock.web.routes.job_routes import FILTERS, filter_words
from penstock.web.routes.settle_routes import ACTIONS
from penstock.web.shapes import Items, Null, Number, Record, Shape, Text, Time, Whole, Yes

_JOBS_MAX: Final = 100_000
_IDS_MAX: Final = 10_000

_CHANGES: Final[dict[str, Shape]] = {
    "delay": Time("dig, move, snatch, restart: wait this long before the jobs can be taken.", example="10s"),
    "reason": Text("bury: why.", length=(0, 8_192)),
    "to": Text("move: the name of the other tube.", length=(1, 65_535)),
    "priority": Whole("priority: the new priority.", least=-(2**31), most=2**31 - 1),
}
_ALLOWED: Final = {
    "delete": (),
    "bury": ("reason",),
    "dig": ("delay",),
    "move": ("delay", "to"),
    "snatch": ("delay",),
    "restart": ("delay",),
    "run": (),
    "priority": ("priority",),
}


async def _act(exchange: Exchange) -> dict[str, Any]:
    request = exchange.body
    action = request["action"]
    given = {name: request[name] for name in _CHANGES if name in request}
    for name in given:
        if name not in _ALLOWED[action]:
            raise bad_request(f"the action {action} has no field {name!r}")
    for name, needed in (("move", "to"), ("priority", "priority")):
        if action == name and needed not in given:
            raise bad_request(f"the action {name} needs the field {needed!r}")
    if "to" in given:
        given["tube"] = given.pop("to")
    run = BulkRun(
        exchange,
        lambda id: ACTIONS[action](id, given),
        limit=request.get("limit", _JOBS_MAX),
        dry_run=request.get("dry_run", False),
    )
    if ("ids" in request) == ("filter" in request):
        raise bad_request("the body needs either 'ids' or 'filter'")
    if "ids" in request:
        return await run.on_ids(request["ids"])
    words = filter_words(request["filter"])
    if not words:
        raise bad_request("the filter needs at least one condition")
    return await run.on_filter(f"{action} {request['filter']}", words, request.get("cursor"))


async def _redrive(exchange: Exchange) -> dict[str, Any]:
    request = exchange.body
    tube = exchange.params["tube"]
    await exchange.ask(b"TUBE", b"STATS", tube)  # A scan of an unknown tube would find nothing.
    states = [b"buried"] if "to" not in request else [b"buried", b"ready"]
    given = {name: request[name] for name in ("delay",) if name in request}
    if "to" in request:
        given["tube"] = request["to"]
        await exchange.ask(b"TUBE", b"STATS", bytes_of(request["to"]))
    action = ACTIONS["move" if "to" in request else "dig"]
    run = BulkRun(
        exchange,
        lambda id: action(id, given),
        limit=request.get("limit", _JOBS_MAX),
        rate=request.get("rate"),
        dry_run=request.get("dry_run", False),
    )
    words = [b"TUBE", tube, b"STATE", *states, *filter_words({n: request[n] for n in ("where",) if n in request})]
    return await run.on_filter(f"redrive {octets(tube)!r}", words, request.get("cursor"))


async def _dead_letters(exchange: Exchange) -> dict[str, Any]:
    state = exchange.state
    rows = await state.feeds.sampler(exchange.credentials).read(state.pool, exchange.credentials, exchange.client)
    return {"tubes": [row for row in rows if row["buried"]]}


async def _causes(exchange: Exchange) -> dict[str, Any]:
    words = [b"TUBE", b"CAUSES", exchange.params["tube"], b"COUNT", b"%d" % exchange.query.get("count", 100)]
    found = fields(await exchange.ask(*words, alone=True))
    for each in found["causes"]:
        each["oldest_ms"] = each.pop("oldest")
    return found


_RESULT: Final = Record(
    {
        "dry_run": Yes(example=False),
        "matched": Whole("Number of jobs that were found.", example=12),
        "done": Whole("Number of jobs that were changed.", example=11),
        "failed": Whole("Number of jobs that were refused.", example=1),
        "failures": Items(
            Record({"id": Text(example=ID_EXAMPLE), "code": Text(example="NOTBURIED"), "message": Text()}),
            "The first refusals.",
            example=[],
        ),
        "sample": Items(Text(), "Ids of the first jobs.", example=[ID_EXAMPLE]),
        "cursor": CURSOR,
    },
    title="BulkResult",
)

_RUN: Final[dict[str, Shape]] = {
    "dry_run": Yes("Change nothing, and only count the jobs.", example=True),
    "limit": Whole("Stop after about this many jobs.", least=1, most=_JOBS_MAX, example=1_000),
    "cursor": Null(Text("The cursor of the previous result, to continue.")),
}

ROUTES: Final = [
    Route(
        method="POST",
        path="/jobs/actions",
        group="Many jobs",
        summary="Apply an action to many jobs.",
        about=(
            "The jobs are those with the given ids, or those that a filter matches. A request runs for up to 20 "
            "seconds. If `cursor` is not null then, repeat the request with it to continue."
        ),
        handler=_act,
        access=WRITE,
        body=Record(
            {"action": Text(choices=tuple(_ALLOWED), example="delete")},
            {
                "ids": Items(Text(length=(1, 70_000)), "Ids of jobs.", most=_IDS_MAX),
                "filter": Record({}, FILTERS, about="The jobs that match all conditions."),
                **_CHANGES,
                **_RUN,
            },
            example={"action": "delete", "filter": {"tube": "emails", "state": ["buried"]}, "dry_run": True},
        ),
        returns=_RESULT,
        errors=("NOTUBE", "BADCURSOR", "BADID", "BADCONDITION"),
        session=True,
    ),
    Route(
        method="GET",
        path="/dead-letters",
        group="Many jobs",
        summary="List the tubes that have buried jobs.",
        handler=_dead_letters,
        access=READ,
        returns=Record({"tubes": Items(TUBE_ROW, most=1_000_000)}),
    ),
    Route(
        method="GET",
        path="/tubes/{tube}/dead-letters",
        group="Many jobs",
        summary="Count the buried jobs of a tube by the cause of their failure.",
        about="A cause is the reason without ids and numbers of attempts. At most 100,000 jobs are examined.",
        handler=_causes,
        access=READ,
        query={"count": Whole("Number of causes.", least=1, most=1_000, example=100)},
        returns=Record(
            {
                "causes": Items(
                    Record(
                        {
                            "cause": Text(example="timed out"),
                            "jobs": Whole("Number of jobs.", example=12),
                            "oldest_ms": Whole("When the oldest was put.", example=1_795_031_234_335),
                            "example": Text("The id of the oldest.", example=ID_EXAMPLE),
                        },
                        open=True,
                    ),
                    most=1_000,
                ),
                "buried": Whole(example=12),
                "examined": Whole(example=12),
                "others": Whole("Number of examined jobs with other causes.", example=0),
            },
            open=True,
        ),
        errors=("NOTUBE",),
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/redrive",
        group="Many jobs",
        summary="Retry the dead letters of a tube.",
        about=(
            "Buried jobs return to their places in the tube. With `to`, the buried and ready jobs of a dead-letter "
            "tube move to another tube. A request runs for up to 20 seconds; continue with `cursor`."
        ),
        handler=_redrive,
        access=WRITE,
        body=Record(
            {},
            {
                "to": Text("Move the jobs to this tube.", length=(1, 65_535)),
                "where": FILTERS["where"],
                "delay": Time("Wait this long before the jobs can be taken.", example="10s"),
                "rate": Number("Change at most this many jobs per second.", least=0.1, most=100_000, example=50),
                **_RUN,
            },
            example={"rate": 50, "dry_run": True},
        ),
        body_required=False,
        returns=_RESULT,
        errors=("NOTUBE", "BADCURSOR", "BADCONDITION"),
    ),
]
