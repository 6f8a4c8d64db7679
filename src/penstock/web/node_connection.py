"""One connection from the API to a node, authenticated with the credentials of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock._version import __version__
from penstock.client import handshake
from penstock.client.async_connection import AsyncConnection
from penstock.client.commands import number
from penstock.client.url import Target
from penstock.core.errors import BadAnswer
from penstock.wire.resp_client import ErrorReply, encode

NAME: Final = b"penstock-api"


class NodeConnection(AsyncConnection):
    """A connection that can have joined a session."""

    def __init__(
        self,
        on_unseen: Callable[[Any], None],
        on_gone: Callable[[AsyncConnection], None],
        answer_s: float | None,
    ) -> None:
        super().__init__(on_unseen, _ignore, on_gone, answer_s)
        self.opened_at = self._loop.time()
        self.used_at = self.opened_at
        self.session = ""
        self.grace_ms = 0

    async def authenticate(
        self,
        target: Target,
        address: tuple[str, int],
        login: tuple[str, bytes] | None,
        identify: list[bytes] | None,
        connect_s: float,
    ) -> None:
        """Connect and log in. `identify` is the command that joins a session, or begins one."""
        hello = [b"HELLO", b"3"]
        if login is not None:
            hello += [b"AUTH", login[0].encode("utf-8", "surrogateescape"), login[1]]
        commands = [[*hello, b"SETNAME", NAME], [b"CLIENT", b"SETINFO", b"LIB-VER", __version__.encode()]]
        try:
            async with asyncio.timeout(connect_s):
                await self._loop.create_connection(
                    lambda: self, *address, ssl=target.tls, server_hostname=address[0] if target.tls else None
                )
                # The commands are sent together. If the login is refused, so are the others.
                answers = [self.send(encode(words)) for words in ([*commands, identify] if identify else commands)]
                replies = await asyncio.gather(*answers)
                hello_reply = handshake.read_plain(address, list(replies))
                self.number = number(hello_reply[b"id"])
                if identify is not None:
                    self._joined(replies[-1])
        except BaseException:
            self.abort(ConnectionAbortedError("the handshake failed"))
            if not hasattr(self, "transport"):
                self._on_gone(self)
            raise

    def _joined(self, identity: object) -> None:
        if isinstance(identity, ErrorReply):
            raise handshake.refusal(identity)
        if not isinstance(identity, dict):
            raise BadAnswer("the server answers IDENTIFY with something else")
        self.session = bytes(identity[b"token"]).decode("ascii")
        self.grace_ms = number(identity[b"grace"])


def _ignore() -> None:
    """The reply to a cancelled take was lost. Its jobs return when their session or their ttr ends."""
