"""The routes of the pages, and of the files that they load.

A page is a frame without data, so its address is all that a route needs. If the node has users and nobody is signed in,
a page redirects to the login page.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from penstock._version import __version__
from penstock.dashboard.navigation import HISTORY, ITEMS
from penstock.dashboard.options import DashboardOptions
from penstock.dashboard.static_files import digest, static_files

THEME_COOKIE: Final = "penstock-theme"
_THEMES: Final = ("light", "dark")

# Pages that show one tube or one job, and the page of the navigation that they belong to.
_DETAILS: Final = {"/tubes/{name:path}": ("tube", "tubes"), "/jobs/{id:path}": ("job", "jobs")}

# Modules that nearly every page loads. The browser fetches them at once, not after those that import them.
_MODULES: Final = ("api", "charts", "dom", "format", "frame", "names", "rights", "scales", "stream", "table", "ui")


@cache
def _templates() -> Environment:
    return Environment(loader=PackageLoader("penstock.dashboard"), autoescape=True, trim_blocks=True)


class Pages:
    """The pages of one dashboard."""

    def __init__(self, options: DashboardOptions, has_lake: bool) -> None:
        self._options = options
        self._navigation = [item for item in ITEMS if item is not HISTORY or has_lake]

    def routes(self) -> list[BaseRoute]:
        pages: list[BaseRoute] = [self._route(item.path, item.page, item.page, item.label) for item in self._navigation]
        titles = {item.page: item.label for item in self._navigation}
        pages += [self._route(path, module, page, titles[page]) for path, (module, page) in _DETAILS.items()]
        return [*pages, Route("/login", self._login), Route("/static/{digest}/{path:path}", _static_file)]

    def _route(self, path: str, module: str, page: str, title: str) -> Route:
        async def show(request: Request) -> Response:
            status, _ = await request.app.state.call(request.scope, "GET", "/me")
            if status == 401:
                return RedirectResponse(f"{root_of(request)}/login?next={quote(_address(request), safe='')}", 303)
            return self._render(request, "page.html", module=module, page=page, title=title, modules=_MODULES)

        return Route(path, show, name=f"page:{module}")

    async def _login(self, request: Request) -> Response:
        return self._render(request, "login.html", module="login", page="login", title="Sign in", modules=())

    def _render(self, request: Request, template: str, **values: Any) -> Response:
        root = root_of(request)
        theme = request.cookies.get(THEME_COOKIE)
        text = (
            _templates()
            .get_template(template)
            .render(
                root=root,
                static=f"{root}/static/{digest()}",
                theme=theme if theme in _THEMES else "",
                navigation=self._navigation,
                environment=self._options.environment,
                version=__version__,
                **values,
            )
        )
        return HTMLResponse(text)


def root_of(request: Request) -> str:
    """Return the path below which a browser sees this application, without a slash at the end."""
    prefix: str = request.app.state.api.settings.path_prefix
    return str(request.scope.get("penstock.root", "")) + prefix


def _address(request: Request) -> str:
    """Return the path and the query of a page, below the root, as the browser has sent them."""
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("ascii", "replace")


async def _static_file(request: Request) -> Response:
    file = static_files().get(request.path_params["path"])
    if file is None:
        return Response("not found\n", 404, media_type="text/plain")
    # An address with an older digest gets the present file, but must not be kept.
    is_present = request.path_params["digest"] == digest()
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_present else "no-store",
        "Vary": "Accept-Encoding",
    }
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = file.compressed, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)
