"""The table of routes: what each method of a path expects, returns and refuses.

A path is matched before %XX is decoded, because the names of tubes and jobs can contain slashes. The parameters of a
path are therefore bytes: a name that is not UTF-8 can be written as %XX.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from penstock.web.refusals import Refused, bad_request
from penstock.web.shapes import Record, Shape

# A handler gets the exchange of a request (exchange.py) and returns the result.
Handler = Callable[[Any], Awaitable[Any]]

# The classes of commands that a route needs, as in the permissions of a user.
OPEN: Final = "open"
READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"

# Longer names cannot exist: 65,535 bytes, of which each can be written as %XX.
_SEGMENT_MAX: Final = 200_000


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str  # With its parameters, for example /tubes/{tube}.
    group: str  # The heading under which the document lists it.
    summary: str  # An imperative sentence.
    handler: Handler
    returns: Shape | None  # The shape of the response; None: there is no content.
    status: int = 200
    access: str = READ
    about: str = ""
    query: Mapping[str, Shape] = field(default_factory=dict)
    required_query: tuple[str, ...] = ()
    body: Record | None = None
    body_required: bool = True
    raw_body: bool = False  # The request can also be the plain body of a job, with options in the query.
    errors: tuple[str, ...] = ()  # Codes that are specific to this route.
    session: bool = False  # The route uses the session that Penstock-Session names.
    media: str = "application/json"
    etag: bool = False  # The response has an ETag, and If-None-Match is answered with 304.
    waits: bool = False  # The request can wait on the node, with a connection of its own.


class _Node:
    """A position in the tree of paths."""

    __slots__ = ("literals", "methods", "parameter", "parameter_name")

    def __init__(self) -> None:
        self.literals: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.parameter_name = ""
        self.methods: dict[str, Route] = {}


class RouteTable:
    """All routes, and the search for the one of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: list[Route] = []
        self._root = _Node()
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        node = self._root
        for part in _parts(route.path.encode()):
            if part.startswith(b"{"):
                if node.parameter is None:
                    node.parameter = _Node()
                    node.parameter_name = part[1:-1].decode()
                assert node.parameter_name == part[1:-1].decode(), "one position has one name"
                node = node.parameter
            else:
                node = node.literals.setdefault(part, _Node())
        assert route.method not in node.methods
        node.methods[route.method] = route
        self.routes.append(route)

    def find(self, method: str, path: bytes) -> tuple[Route, dict[str, bytes]]:
        """Return the route of a request and the parameters in its path. Raise Refused if there is none."""
        node = self._root
        parameters: dict[str, bytes] = {}
        for part in _parts(path):
            below = node.literals.get(part)
            if below is None:
                below = node.parameter
                if below is None or not part:
                    raise Refused("NOTFOUND", "there is no such path; GET /api/v1/docs lists all", None)
                parameters[node.parameter_name] = _decoded(part)
            node = below
        if not node.methods:
            raise Refused("NOTFOUND", "there is no such path; GET /api/v1/docs lists all", None)
        route = node.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = [*node.methods, *(["HEAD"] if "GET" in node.methods else [])]
            raise Refused("BADMETHOD", f"this path supports {', '.join(allowed)}", Allow=", ".join(allowed))
        return route, parameters


def _parts(path: bytes) -> list[bytes]:
    path = path.removeprefix(b"/").removesuffix(b"/")
    return path.split(b"/") if path else []


def _decoded(part: bytes) -> bytes:
    if len(part) > _SEGMENT_MAX:
        raise bad_request("a part of the path is too long")
    return unquote_to_bytes(part) if b"%" in part else part
