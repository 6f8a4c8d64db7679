"""The dashboard as an application of its own, or mounted below a path of a FastAPI or Starlette application."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.errors import Unsupported
from penstock.dashboard.options import DashboardOptions
from penstock.dashboard.page_routes import Pages
from penstock.web.application import create_app
from penstock.web.settings import Settings

_NEEDS_A_SERVER: Final = (
    "the dashboard needs a server, because it is a client of one: give the URL of a node (penstock://host:7711). A "
    "queue in a directory or in memory can be used only by the process that opened it; run it with `penstock serve`"
)


def create_dashboard(
    url: str | None = None, settings: Settings | None = None, options: DashboardOptions | None = None
) -> Starlette:
    """Return the application with the pages and /api/v1."""
    settings = settings or Settings()
    pages = Pages(options or DashboardOptions(), has_lake=bool(settings.lake))
    return create_app(url, settings, pages=pages.routes())


class Mounted:
    """An application that a parent mounts below a path. It sees paths below that path only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = str(scope.get("root_path", ""))
        if scope["type"] == "http" and root:
            scope = _below(scope, root)
        await self._app(scope, receive, send)


def _below(scope: MutableMapping[str, Any], root: str) -> MutableMapping[str, Any]:
    """Return a scope whose path starts below `root`. Servers differ in whether the raw path includes it."""
    found = {**scope, "root_path": "", "app_root_path": "", "penstock.root": root}
    found["path"] = scope["path"].removeprefix(root) or "/"
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        found["raw_path"] = raw.removeprefix(root.encode()) or b"/"
    return found


def mounted_dashboard(
    url: str | None, environment: str, lake: str, hide_bodies: bool, allowed_hosts: Sequence[str]
) -> ASGIApp:
    """Return the application for `penstock.dashboard`, which describes the arguments."""
    if url is not None and (not isinstance(url, str) or "://" not in url):
        raise Unsupported(_NEEDS_A_SERVER)
    settings = Settings(allowed_hosts=tuple(allowed_hosts), hide_bodies=hide_bodies, lake=lake)
    return Mounted(create_dashboard(url, settings, DashboardOptions(environment=environment)))
