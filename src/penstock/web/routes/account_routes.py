"""Who the user is: the entry point of the API, and /me."""

from __future__ import annotations

from typing import Any, Final

from penstock._version import __version__
from penstock.client.commands import items, octets
from penstock.core.errors import CommandError, Unauthenticated, WrongPassword
from penstock.web.credentials import BY_COOKIE, NONE
from penstock.web.exchange import Exchange
from penstock.web.names import text_of
from penstock.web.node_replies import sections
from penstock.web.refusals import Refused
from penstock.web.route_table import OPEN, READ, Route
from penstock.web.shapes import Items, Null, Record, Text, Whole, Yes

CLASSES: Final = ("read", "write", "admin", "debug")

ME: Final = Record(
    {
        "user": Text("The name of the user.", example="default"),
        "classes": Items(Text(), "The classes of commands that the user may run.", example=["read", "write", "admin"]),
        "tubes": Items(Text(), "Patterns of the tubes that the user may use.", example=["*"]),
        "authenticated_by": Text(choices=("none", "basic", "bearer", "cookie"), example="none"),
        "has_users": Yes("Whether the server has users, so that clients have to authenticate.", example=False),
        "token_name": Null(Text("The name of the token, if the user presented one with a name."), example=None),
        "expires_ms": Null(Whole("When the token expires. Milliseconds since 1970."), example=None),
        "csrf_token": Null(
            Text("With a cookie: the value of X-CSRF-Token for requests that change something."), example=None
        ),
    },
    open=True,
    title="Me",
)


async def who_am_i(exchange: Exchange) -> dict[str, Any]:
    """Return the user of a request and its rights."""
    answer = await exchange.ask(b"TOKEN", b"INFO")
    credentials = exchange.credentials
    return {
        "user": text_of(octets(answer[b"user"])),
        "classes": [text_of(octets(each)) for each in items(answer[b"commands"])],
        "tubes": [text_of(octets(each)) for each in items(answer[b"tubes"])],
        "authenticated_by": credentials.kind,
        "has_users": credentials.kind != NONE,
        "token_name": text_of(octets(answer[b"name"])) or None,
        "expires_ms": answer[b"expires"],
        "csrf_token": credentials.csrf_token() if credentials.kind == BY_COOKIE else None,
    }


async def _index(exchange: Exchange) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "penstock-api", "version": __version__, "node": None, "user": None}
    try:
        server = sections(await exchange.ask(b"INFO", b"server"))
        found["node"] = {"version": server["penstock_version"]}
        found["user"] = (await who_am_i(exchange))["user"]
    except (Unauthenticated, WrongPassword):
        pass
    except CommandError:
        pass  # The user may not ask.
    except Refused as refused:
        if refused.code != "NOAUTH":
            raise
    below = ("me", "server", "overview", "tubes", "jobs", "events", "journal", "cluster", "openapi.json", "docs")
    prefix = exchange.settings.path_prefix
    found["links"] = {name.partition(".")[0]: f"{prefix}/api/v1/{name}" for name in below}
    return found


ROUTES: Final = [
    Route(
        method="GET",
        path="",
        group="About",
        summary="Show the version, the user and the main paths.",
        handler=_index,
        access=OPEN,
        returns=Record(
            {
                "name": Text(example="penstock-api"),
                "version": Text("Version of the API.", example=__version__),
                "node": Null(Record({"version": Text(example=__version__)}, open=True)),
                "user": Null(Text("null: the request is not authenticated."), example="default"),
                "links": Record({}, open=True, example={"tubes": "/api/v1/tubes"}),
            }
        ),
    ),
    Route(
        method="GET",
        path="/me",
        group="About",
        summary="Show the user of the request and its rights.",
        handler=who_am_i,
        access=READ,
        returns=ME,
    ),
]
