"""Put jobs into a tube, and take them."""

from __future__ import annotations

from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import REPEAT, Call, octets
from penstock.core.errors import UnknownSession
from penstock.core.job import BODY_BYTES, BODY_TEXT
from penstock.core.limits import BATCH_JOBS_MAX, NEVER, UNSET
from penstock.options import EncodedBody, NewJob
from penstock.web import node_replies
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of, job_path
from penstock.web.put_options import PUT_JOB, PUT_OPTIONS, put_of, python_options, seconds
from penstock.web.refusals import bad_request
from penstock.web.response_shapes import ID_EXAMPLE, JOB, URL_EXAMPLE
from penstock.web.route_table import WRITE, Route
from penstock.web.shapes import Items, Null, Record, Text, Time, Whole

_TAKE_MAX: Final = 1_000
_TUBES_MAX: Final = 1_000
_WAIT_S: Final = 300.0

_PUT_ERRORS: Final = (
    *("NOTUBE", "PAUSED", "FULL", "TOOBIG", "BADNAME", "BADHEADERS", "BADRETRY", "UNSUPPORTED", "RANGE"),
    *("JOBEXISTS", "NAMETAKEN", "NUMBERTAKEN", "NOSPACE", "NOMEMORY", "NOREPL"),
)

_IDENTITY: Final = Record(
    {"id": Text("The id of the job.", example=ID_EXAMPLE), "url": Text("Its path.", example=URL_EXAMPLE)}
)

# The options of a put that a query can have, because its values are text.
_IN_QUERY: Final = {
    **{name: shape for name, shape in PUT_OPTIONS.items() if name not in ("options", "headers")},
    "timeout": Time("If the tube is full, wait this long for room.", most_s=_WAIT_S),
}


async def _put(exchange: Exchange) -> dict[str, Any]:
    tube = exchange.params["tube"]
    if exchange.raw_body is not None:
        given = dict(exchange.query)
        timeout = seconds(given.pop("timeout", 0))
        kind = BODY_TEXT if exchange.headers[b"content-type"].lower().startswith(b"text/") else BODY_BYTES
        if kind == BODY_TEXT:
            try:
                exchange.raw_body.decode()
            except UnicodeDecodeError:
                raise bad_request("the body is not UTF-8; send it as application/octet-stream") from None
        body = EncodedBody(exchange.raw_body, kind)
        return await _put_one(exchange, tube, body, timeout, python_options(given))
    if exchange.query:
        raise bad_request("the options of a put in JSON belong into the body of the request")
    request = dict(exchange.body)
    timeout = seconds(request.pop("timeout", 0))
    jobs = request.pop("jobs", None)
    if jobs is None:
        if "body" not in request:
            raise bad_request("the body needs the field 'body', or the field 'jobs'")
        body, options = put_of(request)
        return await _put_one(exchange, tube, body, timeout, options)
    if timeout:
        raise bad_request("a put of several jobs does not wait; leave out timeout")
    if "body" in request or "as" in request:
        raise bad_request("each of the jobs has a body of its own; leave out body and as")
    new = []
    for each in jobs:
        body, options = put_of(each)
        new.append(NewJob(body, **options))
    call = commands.put_many(tube, new, python_options(request))  # type: ignore[arg-type]
    found = [] if call is None else await exchange.run(call)
    return {"jobs": [_identity(job.id) for job in found]}


async def _put_one(
    exchange: Exchange, tube: bytes, body: EncodedBody, timeout: Any, options: dict[str, Any]
) -> dict[str, Any]:
    job = await exchange.wait(commands.put(tube, body, timeout, options))  # type: ignore[arg-type]
    return _identity(job.id)


def _identity(id: str) -> dict[str, str]:
    return {"id": id, "url": "/api/v1" + job_path(id)}


# ---- Taking ----------------------------------------------------------------------------------------------------------


async def _take(exchange: Exchange) -> dict[str, Any]:
    return await _take_from(exchange, [exchange.params["tube"]])


async def _take_any(exchange: Exchange) -> dict[str, Any]:
    return await _take_from(exchange, [bytes_of(name) for name in exchange.body["tubes"]])


async def _take_from(exchange: Exchange, tubes: list[bytes]) -> dict[str, Any]:
    request = exchange.body
    if not exchange.session:
        await _check_owners(exchange, tubes)
    ttr = request.get("ttr", UNSET)
    call = commands.take(
        tubes,
        request.get("count", 1),
        request.get("timeout", 0),
        bytes_of(request["key"]) if "key" in request else None,
        NEVER if ttr is None else ttr,
    )
    # The jobs are read from the raw reply, because their bodies stay as they are.
    taking: Call[list[dict[str, Any]]] = Call(
        call.words, node_replies.jobs, commands.NO_REPEAT, call.wait_ms, call.timeout_at, taken=lambda jobs: {}
    )
    return {"jobs": await exchange.wait(taking)}


async def _check_owners(exchange: Exchange, tubes: list[bytes]) -> None:
    """Raise UnknownSession if a session owns the jobs that it takes from one of these tubes.

    Without a session of its own, a request shares the session of a connection with other requests, so nothing would
    return its jobs when its client ends.
    """
    for tube in tubes:
        if await exchange.run(Call([b"TUBE", b"INFO", tube], _owner, REPEAT)) == b"session":
            raise UnknownSession("the jobs of this tube belong to the session that takes them, so a take needs one")


def _owner(answer: Any) -> bytes:
    return octets(answer[b"policy"][b"owner"])


_TAKE: Final = {
    "count": Whole("Take up to this many jobs.", least=1, most=_TAKE_MAX, example=1),
    "timeout": Time("If there is no job, wait this long for the first one.", example="20s", most_s=_WAIT_S),
    "key": Text("Take only jobs of this key."),
    "ttr": Null(Time("Time to work on the jobs before they return to their tube. null: no limit.")),
}
_JOBS: Final = Record({"jobs": Items(JOB, "Empty if no job became ready in time.", most=_TAKE_MAX)})
_TAKE_ERRORS: Final = ("NOTUBE", "NOSESSION", "RANGE", "UNSUPPORTED", "TOOMANYWAITS", "CROSSHOME")

ROUTES: Final = [
    Route(
        method="POST",
        path="/tubes/{tube}/jobs",
        group="Putting and taking",
        summary="Put one job, or several jobs, all or none of them.",
        about=(
            "With `jobs`, the other fields are defaults for all of them. With the content type text/plain or "
            "application/octet-stream, the request is the body of the job, and the query has its options."
        ),
        handler=_put,
        access=WRITE,
        status=201,
        query=_IN_QUERY,
        body=Record(
            {},
            {
                **PUT_JOB.required,
                **PUT_JOB.optional,
                "timeout": Time("If the tube is full, wait this long for room.", most_s=_WAIT_S),
                "jobs": Items(PUT_JOB, "Several jobs.", least=1, most=BATCH_JOBS_MAX),
            },
            example={"body": {"to": "ada"}, "delay": "10s"},
        ),
        raw_body=True,
        returns=Record({}, {**_IDENTITY.required, "jobs": Items(_IDENTITY, "With `jobs`.", most=BATCH_JOBS_MAX)}),
        errors=_PUT_ERRORS,
        waits=True,
    ),
    Route(
        method="POST",
        path="/tubes/{tube}/take",
        group="Putting and taking",
        summary="Take jobs, or wait for one.",
        about="Needs the header Penstock-Session, unless anyone may settle the jobs of the tube (`disque` tubes).",
        handler=_take,
        access=WRITE,
        body=Record({}, _TAKE, example={"count": 1, "timeout": "20s"}),
        body_required=False,
        returns=_JOBS,
        errors=_TAKE_ERRORS,
        session=True,
        waits=True,
    ),
    Route(
        method="POST",
        path="/take",
        group="Putting and taking",
        summary="Take jobs from several tubes, or wait for one.",
        about="The tubes are searched in this order. All of them must be on one node.",
        handler=_take_any,
        access=WRITE,
        body=Record(
            {"tubes": Items(Text(length=(1, 65_535)), "Names of tubes.", least=1, most=_TUBES_MAX, example=["emails"])},
            _TAKE,
            example={"tubes": ["emails", "news"], "timeout": "20s"},
        ),
        returns=_JOBS,
        errors=_TAKE_ERRORS,
        session=True,
        waits=True,
    ),
]
