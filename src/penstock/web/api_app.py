"""The ASGI application of /api/v1: it finds the route of a request, checks the request, and sends the result."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Final
from urllib.parse import parse_qsl

from penstock.web.content import Content
from penstock.web.credentials import BY_COOKIE, CSRF_HEADER, NONE, credentials_of
from penstock.web.event_feed import Stream
from penstock.web.exchange import Exchange
from penstock.web.guard import Receive, Scope, Send, send_refusal
from penstock.web.hidden_bodies import without_bodies
from penstock.web.json_text import encode, parse_request
from penstock.web.origins import SAFE_METHODS, is_loopback
from penstock.web.refusals import Refused, bad_request, refusal_of
from penstock.web.route_table import OPEN, Route, RouteTable
from penstock.web.state import State

PREFIX: Final = "/api/v1"
SESSION_HEADER: Final = "Penstock-Session"

_JSON: Final = "application/json"
_RAW_MEDIA: Final = frozenset(["application/octet-stream", "text/plain"])
_QUERY_BYTES_MAX: Final = 65_536
_PARAMETERS_MAX: Final = 200


class ApiApp:
    """Serves all routes of a table."""

    def __init__(self, state: State, table: RouteTable) -> None:
        self.state = state
        self.table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            exchange = Exchange(scope, receive, self.state, dict(scope["headers"]))
            result = await self._run(exchange)
        except Exception as error:
            await send_refusal(send, refusal_of(error))
            return
        if isinstance(result, Stream):
            await self._send_stream(exchange, result, send)
        else:
            await _send_result(exchange, result, send)

    async def _run(self, exchange: Exchange) -> Any:
        scope = exchange.scope
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        # Some servers include the query in the raw path.
        path = raw.partition(b"?")[0].removeprefix(PREFIX.encode())
        route, exchange.params = self.table.find(scope["method"], path)
        exchange.route = route
        exchange.routes = self.table.routes
        scope["penstock.route"] = route.path or "/"
        exchange.query = _read_query(route, scope["query_string"])
        headers = exchange.headers
        exchange.credentials = credentials_of(headers.get(b"authorization"), headers.get(b"cookie"))
        if route.access != OPEN:
            self._check_access(exchange)
        if route.session:
            exchange.session = _session_of(headers.get(SESSION_HEADER.lower().encode()))
        if route.body is not None:
            await _read_body(exchange, route)
        return await route.handler(exchange)

    def _check_access(self, exchange: Exchange) -> None:
        """Check what does not need the node: CSRF, and that a node without users is used from this machine only."""
        credentials = exchange.credentials
        if credentials.kind == BY_COOKIE and exchange.scope["method"] not in SAFE_METHODS:
            given = exchange.headers.get(CSRF_HEADER.lower().encode(), b"").decode("latin-1")
            if not credentials.is_csrf_token(given):
                raise Refused("CSRF", f"the header {CSRF_HEADER} is missing or wrong", "GET /api/v1/me returns it")
        if credentials.kind == NONE and not is_loopback(exchange.client):
            raise Refused("NOAUTH", "a request from another machine needs a user and a password, or a token")

    async def _send_stream(self, exchange: Exchange, stream: Stream, send: Send) -> None:
        """Send an event stream until the client disconnects or the stream ends."""
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx sends events at once.
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(self._send_chunks(stream, send))
        leaving = asyncio.ensure_future(exchange.left())
        overflowing = asyncio.ensure_future(stream.overflowed.wait())
        tasks = (sending, leaving, overflowing)
        try:
            # A client that does not read blocks the task that sends.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if stream.overflowed.is_set():
                self.state.metrics.dropped_streams += 1
            stream.on_close()

    async def _send_chunks(self, stream: Stream, send: Send) -> None:
        async for chunk in stream.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _read_query(route: Route, query: bytes) -> dict[str, Any]:
    if not query:
        _check_required(route, {})
        return {}
    if len(query) > _QUERY_BYTES_MAX:
        raise bad_request("the query is too long")
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=_PARAMETERS_MAX,
        )
    except ValueError:
        raise bad_request("the query is malformed") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        shape = route.query.get(name)
        if shape is None:
            known = ", ".join(route.query) or "none"
            raise bad_request(f"there is no parameter {name[:50]!r}; there are {known}")
        if name in found:
            raise bad_request(f"the parameter {name} occurs twice")
        try:
            found[name] = shape.read(value)
        except ValueError as error:
            raise bad_request(f"the parameter {name} {error}") from None
    _check_required(route, found)
    return found


def _check_required(route: Route, found: dict[str, Any]) -> None:
    for name in route.required_query:
        if name not in found:
            raise bad_request(f"the parameter {name} is missing")


def _session_of(header: bytes | None) -> str:
    if header is None:
        return ""
    text = header.decode("latin-1")
    if len(text) != 32 or not all(digit in "0123456789abcdef" for digit in text):
        raise Refused("NOSESSION", f"{SESSION_HEADER} is not the token of a session")
    return text


async def _read_body(exchange: Exchange, route: Route) -> None:
    assert route.body is not None
    data = await exchange.read(exchange.settings.request_bytes_max)
    media = exchange.headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if route.raw_body and media in _RAW_MEDIA:
        exchange.raw_body = data
        return
    if media and media != _JSON:
        # A form of another site could otherwise send a request without a preflight.
        raise Refused("BADMEDIA", f"the content type must be {_JSON}")
    if not data:
        if route.body_required:
            raise bad_request("the request needs a JSON object as its body")
        return
    if not media:
        raise Refused("BADMEDIA", f"the request needs the header Content-Type: {_JSON}")
    try:
        exchange.body = route.body.check(parse_request(data))
    except ValueError as error:
        sentence = str(error)
        separator = "" if sentence.startswith((".", "[")) else " "
        raise bad_request(f"the body{separator}{sentence}") from None


async def _send_result(exchange: Exchange, result: Any, send: Send) -> None:
    route = exchange.route
    headers: list[tuple[bytes, bytes]] = [(b"set-cookie", each.encode("latin-1")) for each in exchange.cookies]
    status = route.status
    if result is None:
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    if isinstance(result, Content):
        body, media = result.body, result.media
    else:
        shown = without_bodies(result) if exchange.settings.hide_bodies else result
        body, media = encode(shown).encode(), _JSON
    if route.etag:
        tag = b'"' + hashlib.blake2b(body, digest_size=12).hexdigest().encode() + b'"'
        headers += [(b"etag", tag), (b"cache-control", b"private, no-cache")]
        if tag in [each.strip() for each in exchange.headers.get(b"if-none-match", b"").split(b",")]:
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
    headers += [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if exchange.scope["method"] == "HEAD" else body})
