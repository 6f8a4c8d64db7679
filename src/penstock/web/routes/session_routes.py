"""HTTP sessions: they hold the jobs that were taken over HTTP."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import items, octets
from penstock.core.errors import UnknownSession
from penstock.web.cursors import read_cursor, write_cursor
from penstock.web.exchange import Exchange
from penstock.web.node_replies import fields
from penstock.web.response_shapes import page
from penstock.web.route_table import READ, WRITE, Route
from penstock.web.shapes import Items, Record, Text, Time, Whole

_GRACE_MS: Final = 60_000
_GRACE_S_MAX: Final = 24 * 3_600.0


def _token(exchange: Exchange) -> str:
    token = exchange.params["session"].decode("latin-1")
    if len(token) != 32 or not all(digit in "0123456789abcdef" for digit in token):
        raise UnknownSession("the path does not have the token of a session")
    return token


async def _begin(exchange: Exchange) -> dict[str, Any]:
    grace_ms = exchange.body.get("grace", _GRACE_MS)
    token, grace_ms = await exchange.state.pool.begin_session(exchange.credentials, grace_ms, exchange.client)
    return {"session": token, "grace_ms": grace_ms}


async def _end(exchange: Exchange) -> None:
    await exchange.state.pool.end_session(exchange.credentials, _token(exchange), exchange.client)


async def _held(exchange: Exchange) -> dict[str, Any]:
    exchange.session = _token(exchange)
    answer = await exchange.ask(b"JOB", b"HELD")
    return {"jobs": [octets(id).decode("ascii") for id in items(answer)]}


async def list_sessions(exchange: Exchange, tube: bytes = b"") -> dict[str, Any]:
    """Return a page of sessions: all, or those that hold or await jobs of a tube."""
    query = exchange.query
    after = read_cursor("sessions", query["cursor"], int)[0] % 2**63 if "cursor" in query else 0
    words = [b"SESSION", b"SCAN", b"%d" % after, b"COUNT", b"%d" % query.get("limit", 100)]
    answer = await exchange.ask(*words, *([b"TUBE", tube] if tube else []), alone=True)
    following = int(octets(answer[0]))
    return {
        "sessions": [fields(each) for each in items(answer[1])],
        "cursor": write_cursor("sessions", following) if following else None,
    }


PAGE_QUERY: Final = {
    "cursor": Text("The cursor of the previous page."),
    "limit": Whole("Number of sessions per page.", least=1, most=1_000, example=100),
}
PAGE: Final = page(
    "sessions",
    Record(
        {
            "number": Whole("Its number in the journal.", example=8),
            "name": Text("The name of its client.", example="penstock-api"),
            "user": Text("The user of its client.", example="default"),
            "held": Whole("Number of jobs that it holds.", example=1),
        },
        open=True,
        title="Session",
    ),
    "The sessions of this page.",
)


_PATH_ERRORS: Final = ("NOSESSION",)

ROUTES: Final = [
    Route(
        method="GET",
        path="/sessions",
        group="Sessions",
        summary="List the sessions of all clients: their jobs, and the tubes that they wait on.",
        handler=list_sessions,
        access=READ,
        query=PAGE_QUERY,
        returns=PAGE,
        errors=("BADCURSOR",),
    ),
    Route(
        method="POST",
        path="/sessions",
        group="Sessions",
        summary="Begin a session, which owns the jobs that are taken with it.",
        about=(
            "Name the session in the header Penstock-Session of takes and of requests that settle its jobs. A session "
            "ends when it was not named for its grace time, and its jobs then return to their tubes. The token works "
            "with every process of the API."
        ),
        handler=_begin,
        access=WRITE,
        status=201,
        body=Record(
            {},
            {"grace": Time("End the session after this time without requests.", example="1m", most_s=_GRACE_S_MAX)},
        ),
        body_required=False,
        returns=Record(
            {
                "session": Text("The token of the session: keep it secret.", example="9f86d081884c7d65…"),
                "grace_ms": Whole("The grace time. Milliseconds.", example=60_000),
            }
        ),
    ),
    Route(
        method="GET",
        path="/sessions/{session}/jobs",
        group="Sessions",
        summary="List the jobs that a session holds.",
        about="This also renews the session.",
        handler=_held,
        access=WRITE,
        returns=Record({"jobs": Items(Text(), "Ids of jobs.", most=10_000_000, example=[])}),
        errors=_PATH_ERRORS,
    ),
    Route(
        method="DELETE",
        path="/sessions/{session}",
        group="Sessions",
        summary="End a session. Its jobs return to their tubes at once.",
        handler=_end,
        access=WRITE,
        status=204,
        returns=None,
        errors=_PATH_ERRORS,
    ),
]
