"""Requests of the API from within its process, for pages that are rendered on the server.

The request goes through the same checks and handlers as one from outside, except those of the Host and the Origin,
which the request of the page has passed. It has the credentials of that request.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from penstock.web.api_app import PREFIX, ApiApp
from penstock.web.credentials import BY_COOKIE, CSRF_HEADER, credentials_of
from penstock.web.guard import Message, Scope

_PASSED_ON = (b"authorization", b"cookie")


class InProcess:
    """Runs requests for another request, the one of a page."""

    def __init__(self, api: ApiApp) -> None:
        self._api = api

    async def __call__(
        self, scope: Scope, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of a response.

        `scope` is that of the page's request, and `path` a path below /api/v1, with its names encoded as %XX.
        """
        headers = [(name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        given = dict(headers)
        credentials = credentials_of(given.get(b"authorization"), given.get(b"cookie"))
        if credentials.kind == BY_COOKIE:
            headers.append((CSRF_HEADER.lower().encode(), credentials.csrf_token().encode()))
        data = b""
        if body is not None:
            data = json.dumps(body).encode()
            headers.append((b"content-type", b"application/json"))
        inner: Scope = {
            "type": "http",
            "method": method,
            "scheme": scope["scheme"],
            "path": PREFIX + path,
            "raw_path": (PREFIX + path).encode(),
            "query_string": urlencode(query or {}).encode(),
            "headers": headers,
            "client": scope.get("client"),
            "penstock.client": scope["penstock.client"],
        }
        messages: list[Message] = [{"type": "http.request", "body": data}]
        status, parts = 500, []

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._api(inner, receive, send)
        content = b"".join(parts)
        return status, json.loads(content) if content else None
