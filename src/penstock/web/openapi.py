"""The OpenAPI 3.1 document of the API, made from the table of routes, and a page that lists the routes."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock._version import __version__
from penstock.web.credentials import COOKIE
from penstock.web.refusals import OWN_CODES, STATUS_BY_CODE
from penstock.web.response_shapes import ERROR
from penstock.web.route_table import OPEN, Route
from penstock.web.shapes import Items, Map, Null, Record, Schema, Shape

_PREFIX: Final = "/api/v1"
_SESSION: Final = "Penstock-Session"

# Codes that any route can return.
_ANYWHERE: Final = ("BADREQUEST", "BADHOST", "TOOMANY", "INTERNAL", "NOSERVER", "CONNECTIONLOST", "TIMEOUT", "LOADING")
_AUTHENTICATED: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "LEAVING", "NOHOME")
_WITH_BODY: Final = ("BADJSON", "BADMEDIA", "REQUESTTOOBIG")
_UNSAFE: Final = ("CSRF", "BADORIGIN")

_REASONS: Final = {
    200: "Done.",
    201: "Created.",
    204: "Done. There is no content.",
    304: "The response has not changed since the one with this ETag.",
}

_ABOUT: Final = (
    "Penstock's HTTP API: jobs and tubes as JSON. Every error has a stable `code`. Times in responses are in ms. "
    "A time in a request is a number of seconds, or text such as `250ms`, `5m` or `forever`."
)


def document(routes: Iterable[Route], prefix: str = "") -> dict[str, Any]:
    """Return the document. `prefix` is the path prefix of this process."""
    components = _Components()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path or "/", {})[route.method.lower()] = _operation(route, components)
    for path, operations in paths.items():
        parameters = _path_parameters(path)
        if parameters:
            operations["parameters"] = parameters
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix + _PREFIX}],
        "security": [{}, {"basic": []}, {"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic", "description": "A user of the server and its password."},
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `POST /tokens`."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by `POST /login`."},
            },
        },
    }


class _Components:
    """The shapes with a title, which the document contains once."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def schema(self, shape: Shape) -> Schema:
        """Return the schema of a shape. Shapes with a title are references."""
        if isinstance(shape, Record):
            found: Schema = {
                "type": "object",
                "properties": {name: self.schema(each) for name, each in {**shape.required, **shape.optional}.items()},
            }
            if shape.required:
                found["required"] = list(shape.required)
            if not shape.open:
                found["additionalProperties"] = False
            if shape.about:
                found["description"] = shape.about
            if shape.title:
                self.schemas[shape.title] = found
                return {"$ref": f"#/components/schemas/{shape.title}"}
            return found
        if isinstance(shape, Items):
            found = shape.schema()
            found["items"] = self.schema(shape.of)
            return found
        if isinstance(shape, Map):
            found = shape.schema()
            found["additionalProperties"] = self.schema(shape.of)
            return found
        if isinstance(shape, Null) and isinstance(shape.of, Record):
            return {"anyOf": [self.schema(shape.of), {"type": "null"}]}
        return shape.schema()


def codes_of(route: Route) -> list[str]:
    """Return all codes that a route can return."""
    codes = [*route.errors, *_ANYWHERE, "STOPPING"]
    if route.access != OPEN:
        codes += _AUTHENTICATED
    if route.body is not None:
        codes += _WITH_BODY
    if route.method != "GET":
        codes += _UNSAFE
    if "{" in route.path:
        codes += ["NOTFOUND", "BADNAME"]
    if route.session:
        codes.append("NOSESSION")
    return list(dict.fromkeys(codes))


def _operation(route: Route, components: _Components) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "tags": [route.group],
        "summary": route.summary,
    }
    access = "" if route.access == OPEN else f"Needs a user with commands of the class {route.access}."
    if about := " ".join(filter(None, (route.about, access))):
        found["description"] = about
    parameters = [_query_parameter(name, shape, route) for name, shape in route.query.items()]
    if route.session:
        parameters.append(
            {
                "name": _SESSION,
                "in": "header",
                "required": False,
                "description": "The token of the session that holds the jobs.",
                "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            }
        )
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        content: dict[str, Any] = {
            "application/json": {"schema": components.schema(route.body), "example": route.body.sample()}
        }
        if route.raw_body:
            content["text/plain"] = {"schema": {"type": "string"}, "example": "hello"}
            content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        found["requestBody"] = {"required": route.body_required, "content": content}
    found["responses"] = _responses(route, components)
    if route.access == OPEN:
        found["security"] = [{}]
    return found


def _query_parameter(name: str, shape: Shape, route: Route) -> dict[str, Any]:
    schema = shape.schema()
    found: dict[str, Any] = {"name": name, "in": "query", "required": name in route.required_query}
    if about := schema.pop("description", ""):
        found["description"] = about
    if isinstance(shape, Items):
        found |= {"style": "form", "explode": False}
    return {**found, "schema": schema}


def _responses(route: Route, components: _Components) -> dict[str, Any]:
    done: dict[str, Any] = {"description": _REASONS[route.status]}
    if route.returns is not None:
        done["content"] = {route.media: {"schema": components.schema(route.returns), "example": route.returns.sample()}}
    responses: dict[str, Any] = {str(route.status): done}
    if route.etag:
        responses["304"] = {"description": _REASONS[304]}
    by_status: dict[int, list[str]] = {}
    for code in codes_of(route):
        by_status.setdefault(STATUS_BY_CODE.get(code, 400), []).append(code)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = {
            "description": f"Refused: {', '.join(codes)}.",
            "content": {
                "application/json": {
                    "schema": components.schema(ERROR),
                    "example": {"error": {"code": codes[0], "message": _sentence(codes[0]), "hint": None}},
                }
            },
        }
    return responses


def _sentence(code: str) -> str:
    return OWN_CODES[code][1] if code in OWN_CODES else "A sentence that says what to do."


def _path_parameters(path: str) -> list[dict[str, Any]]:
    about = {
        "tube": ("The name of a tube, percent-encoded.", "emails"),
        "id": (
            "The id of a job, in its form in URLs.",
            "D-77764aa0-6YXdE7ZcWR_phc0TtlxZH-Ln-ffff",
        ),
        "session": ("The token of a session.", "9f86d081884c7d659a2feaa0c55ad015"),
    }
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": about[name][0],
            "schema": {"type": "string", "minLength": 1},
            "example": about[name][1],
        }
        for name in names
    ]


def operation_id(route: Route) -> str:
    words = [word.strip("{}").replace("-", "_").replace(".", "_") for word in route.path.split("/") if word]
    return "_".join([route.method.lower(), *(words or ["index"])])


def page(routes: Iterable[Route], prefix: str) -> str:
    """Return a page that lists all routes. It needs no script and no style sheet."""
    groups: dict[str, list[Route]] = {}
    for route in routes:
        groups.setdefault(route.group, []).append(route)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Penstock HTTP API</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<h1>Penstock HTTP API</h1><p>For programs: <a href='{prefix}{_PREFIX}/openapi.json'>openapi.json</a>.</p>",
    ]
    for group, members in groups.items():
        parts.append(f"<h2>{html.escape(group)}</h2><dl>")
        for route in members:
            parts.append(f"<dt><code>{route.method} {_PREFIX}{html.escape(route.path)}</code>")
            parts.append(f"<dd>{html.escape(' '.join(filter(None, (route.summary, route.about))))}")
            parts.append(_fields("query", route.query))
            if route.body is not None:
                parts.append(_fields("body", {**route.body.required, **route.body.optional}))
        parts.append("</dl>")
    return "\n".join(filter(None, parts))


def _fields(what: str, shapes: Mapping[str, Shape]) -> str:
    if not shapes:
        return ""
    rows = "".join(f"<li><code>{html.escape(name)}</code> {html.escape(each.about)}" for name, each in shapes.items())
    return f"<details><summary>{what}</summary><ul>{rows}</ul></details>"


def as_text(found: dict[str, Any]) -> bytes:
    return (json.dumps(found, indent=1) + "\n").encode()
