"""The outermost layer of the process: it sees every request and response, also those of pages.

It finds the client behind a proxy, checks Host and Origin, removes the path prefix, adds the security headers, counts
the request, and writes the access log. An error that no other layer handles becomes a response with status 500.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from penstock.web.exchange import Disconnected
from penstock.web.json_text import encode
from penstock.web.origins import Proxies, check_host, check_origin, cors_headers
from penstock.web.refusals import RETRY_AFTER_S, Refused
from penstock.web.state import State

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CSP: Final = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; "
    b"require-trusted-types-for 'script'"
)
_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", CSP),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE: Final = (b"cache-control", b"no-store")

# Paths that answer to any Host and without a prefix, because probes use addresses.
PROBES: Final = frozenset(["/livez", "/readyz", "/metrics"])

_log = logging.getLogger("penstock.web")
_access_log = logging.getLogger("penstock.web.access")


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, state: State) -> None:
        self._app = app
        self._state = state
        self._proxies = Proxies(state.settings.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        state, settings = self._state, self._state.settings
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._proxies.apply(scope, headers)
        scope["penstock.route"] = "other"
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                given += [header for header in _HEADERS if header[0] not in names]
                if b"cache-control" not in names:
                    given.append(_NO_STORE)
                if settings.cors_origins:
                    is_preflight = scope["method"] == "OPTIONS"
                    given += cors_headers(headers, settings, is_preflight)
                    given = [each for each in given if each[0] != b"cross-origin-resource-policy"]
                message["headers"] = given
            await send(message)

        try:
            try:
                if scope["path"] not in PROBES:
                    check_host(scope["headers"], settings)
                    check_origin(scope["method"], headers, scope["scheme"], settings)
                    self._remove_prefix(scope)
                    if _is_preflight(scope, headers) and settings.cors_origins:
                        await send_guarded({"type": "http.response.start", "status": 204, "headers": []})
                        await send_guarded({"type": "http.response.body", "body": b""})
                        return
                await self._app(scope, receive, send_guarded)
            except Refused as refused:
                await send_refusal(send_guarded, refused)
            except Disconnected:
                status = status or 499
            except Exception:
                _log.exception("request failed: method=%s route=%s", scope["method"], scope["penstock.route"])
                if status == 0:
                    await send_refusal(send_guarded, Refused("INTERNAL", "the API has a defect; its log has details"))
        finally:
            spent = time.perf_counter() - start
            state.metrics.count(scope["method"] if status != 405 else "other", scope["penstock.route"], status, spent)
            if settings.access_log:
                _access_log.info(
                    "request: client=%s method=%s route=%s status=%d ms=%.1f",
                    *(scope["penstock.client"], scope["method"], scope["penstock.route"], status, spent * 1000),
                )

    def _remove_prefix(self, scope: Scope) -> None:
        prefix = self._state.settings.path_prefix
        if prefix:
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if not f"{scope['path']}/".startswith(f"{prefix}/") or not (raw + b"/").startswith(f"{prefix}/".encode()):
                raise Refused("NOTFOUND", f"all paths begin with {prefix}/")
            scope["path"] = scope["path"][len(prefix) :] or "/"
            scope["raw_path"] = raw[len(prefix) :] or b"/"


def _is_preflight(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in headers


async def send_refusal(send: Send, refused: Refused) -> None:
    """Send the response for a refused request."""
    body = encode(refused.document()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    given = dict(refused.headers)
    if refused.status in RETRY_AFTER_S:
        given.setdefault("Retry-After", str(RETRY_AFTER_S[refused.status]))
    if refused.status == 401 and "WWW-Authenticate" not in given:
        # Without Basic, so that browsers do not show a dialog of their own.
        given["WWW-Authenticate"] = 'Bearer realm="penstock"'
    headers += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
