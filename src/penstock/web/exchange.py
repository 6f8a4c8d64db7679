"""One request and its response: the part of the API that handlers see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.commands import REPEAT, Call
from penstock.web.credentials import ANONYMOUS, Credentials
from penstock.web.refusals import Refused, bad_request
from penstock.web.route_table import Route

if TYPE_CHECKING:
    from penstock.web.settings import Settings
    from penstock.web.state import State

T = TypeVar("T")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Disconnected(Exception):
    """The client has disconnected, so there is no response."""


class Exchange:
    """A request whose path, query and body were checked against its route."""

    __slots__ = (
        "body",
        "client",
        "cookies",
        "credentials",
        "headers",
        "params",
        "query",
        "raw_body",
        "receive",
        "route",
        "routes",
        "scope",
        "session",
        "state",
    )

    def __init__(self, scope: Scope, receive: Receive, state: State, headers: dict[bytes, bytes]) -> None:
        self.scope = scope
        self.receive = receive
        self.state = state
        self.headers = headers
        self.client: str = scope["penstock.client"]
        self.credentials: Credentials = ANONYMOUS
        self.route: Route
        self.routes: list[Route]  # All routes of the API.
        self.params: dict[str, bytes] = {}
        self.query: dict[str, Any] = {}
        self.body: dict[str, Any] = {}
        self.raw_body: bytes | None = None
        self.session = ""
        self.cookies: list[str] = []  # Set-Cookie headers of the response.

    @property
    def settings(self) -> Settings:
        return self.state.settings

    @property
    def is_secure(self) -> bool:
        return bool(self.scope["scheme"] == "https")

    async def run(self, call: Call[T], alone: bool = False) -> T:
        """Run a call of the client on the node, as the user of the request and in its session."""
        return await self.state.pool.run(self.credentials, call, self.client, self.session, alone)

    async def ask(self, *words: bytes, repeat: int = REPEAT, alone: bool = False) -> Any:
        """Run a command on the node. Return its reply."""
        return await self.run(Call(list(words), _same, repeat), alone)

    async def wait(self, call: Call[T]) -> T:
        """Run a call that can wait on the node. It is cancelled if the client disconnects."""
        if not call.wait_ms:
            return await self.run(call)
        with self.state.waiting():
            task = asyncio.ensure_future(self.run(call))
            leaving = asyncio.ensure_future(self.left())
            stopping = asyncio.ensure_future(self.state.stopping.wait())
            try:
                await asyncio.wait((task, leaving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                if leaving.done():
                    raise Disconnected()
                raise Refused("STOPPING", "the API is stopping")
            finally:
                for each in (task, leaving, stopping):
                    if not each.done():
                        each.cancel()
                await asyncio.gather(task, leaving, stopping, return_exceptions=True)

    async def left(self) -> None:
        """Wait until the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def read(self, bytes_max: int) -> bytes:
        """Return the body of the request. Raise Refused if it is longer than this."""
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > bytes_max:
            raise too_big(bytes_max)
        parts: list[bytes] = []
        total = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected()
            part = message.get("body", b"")
            total += len(part)
            if total > bytes_max:
                raise too_big(bytes_max)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def need_body(self) -> bytes:
        if self.raw_body is None:
            raise bad_request("the request needs a body")
        return self.raw_body


def too_big(bytes_max: int) -> Refused:
    return Refused(
        "REQUESTTOOBIG",
        f"the body of a request may have up to {bytes_max:,} bytes",
        "raise --max-request",
        Connection="close",
    )


def _same(answer: Any) -> Any:
    return answer
