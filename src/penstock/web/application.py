"""The Starlette application of `penstock api`: /api/v1, the probes, and pages that the dashboard adds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from penstock.client.url import Target, target
from penstock.core.errors import BadUrl
from penstock.web.api_app import PREFIX, ApiApp
from penstock.web.guard import Guard
from penstock.web.in_process import InProcess
from penstock.web.refusals import Refused
from penstock.web.route_table import RouteTable
from penstock.web.routes.all_routes import all_routes
from penstock.web.settings import Settings
from penstock.web.state import State

# How long a node may take to answer, beyond the time that a request waits.
_ANSWER_S = 20.0


def node_target(url: str | None) -> Target:
    """Return the nodes that a URL names. The API has no user of its own, so the URL has none."""
    found = target(url, name="penstock-api", timeout=_ANSWER_S, connect_timeout=5)
    if found.user or found.password:
        raise BadUrl(
            "the URL for the API has no user and no password, because each request is run as the user who sends it; "
            "remove them, and let clients authenticate"
        )
    return found


def create_app(
    url: str | None = None, settings: Settings | None = None, *, pages: Sequence[BaseRoute] = ()
) -> Starlette:
    """Return the application. `url` names the node, or several nodes of a cluster. `pages` are routes of a dashboard.

    `app.state.api` is the State of the process, and `app.state.call` runs a request of the API in the process.
    """
    state = State(node_target(url), settings or Settings())
    api = ApiApp(state, RouteTable(all_routes()))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await state.close()

    app = Starlette(
        routes=[
            Route("/livez", _livez),
            Route("/readyz", _readyz),
            Route("/metrics", _metrics),
            _ApiRoute(api),
            *pages,
        ],
        middleware=[Middleware(Guard, state=state)],
        exception_handlers={404: _not_found, 405: _not_found},
        lifespan=lifespan,
    )
    app.state.api = state
    app.state.call = InProcess(api)
    return app


class _ApiRoute(BaseRoute):
    """All paths below /api/v1. The API finds its routes itself, because it needs the path before it is decoded."""

    def __init__(self, api: ApiApp) -> None:
        self._api = api

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_below = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/")
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api(scope, receive, send)


async def _not_found(request: Request, error: Exception) -> Response:
    if getattr(error, "status_code", 404) == 405:
        allowed = getattr(error, "headers", None) or {}
        raise Refused("BADMETHOD", "this path does not support the method", **allowed)
    raise Refused("NOTFOUND", "there is no such path; the API is below /api/v1")


async def _livez(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _readyz(request: Request) -> Response:
    """Answer whether the API reaches a node. A node that requires a login has answered."""
    state: State = request.app.state.api
    if state.stopping.is_set():
        return PlainTextResponse("stopping\n", 503)
    ready, reason = await state.probe()
    return PlainTextResponse("ok\n" if ready else f"{reason}\n", 200 if ready else 503)


async def _metrics(request: Request) -> Response:
    state: State = request.app.state.api
    gauges: dict[str, tuple[str, float]] = {
        "penstock_api_streams": ("Open event streams.", state.streams),
        "penstock_api_waiting_requests": ("Requests that wait on the node.", state.waits),
        "penstock_api_node_connections": ("Open connections to the nodes.", len(state.pool)),
    }
    return PlainTextResponse(state.metrics.text(gauges), media_type="text/plain; version=0.0.4")
