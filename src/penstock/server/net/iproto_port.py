"""Clients over IPROTO: their greeting and their login.

There are two kinds of ports, for clients of tarantool/queue and for clients of the Tarantool 1.5 API.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from penstock.cluster import messages as m
from penstock.core.errors import ProtocolError
from penstock.core.limits import WAITS_PER_CONNECTION_MAX
from penstock.core.waits import Connection as EngineConnection
from penstock.dialects.tarantool.calls import CallInbox, iproto_reply
from penstock.node.caller import Caller
from penstock.server.commands.function_table import VERSION, functions, uuid_of
from penstock.server.net.access import ANONYMOUS, Account
from penstock.server.net.connection import Connection
from penstock.server.net.logins import Login
from penstock.server.server import Server
from penstock.wire import iproto
from penstock.wire.errors import BoxError
from penstock.wire.iproto import IprotoParser, IprotoReply, Request
from penstock.wire.msgpack import Reader

# As in Tarantool, this user needs no password.
_DEFAULT_USER: Final = "guest"


class IprotoPort:
    """An IPROTO port, with the functions that its clients can call."""

    def __init__(self, server: Server, is_15: bool, entropy: Callable[[int], bytes]) -> None:
        self.server = server
        self.entropy = entropy
        self.uuid = uuid_of(server.node_id)
        self.calls = functions(server, is_15, self._log_in)
        self.calls.protocol = m.IPROTO_15 if is_15 else m.IPROTO

    def accept(self) -> asyncio.BaseProtocol:
        return self.server.clients.accept_as(self._connection)

    def greeted(self, number: int, engine_connection: EngineConnection) -> Connection:
        """Return a connection without a greeting, for a client that received the greeting while the node loaded."""
        server, limits = self.server, self.server.clients.limits
        connection = Connection(server.turn, server.clients, number, engine_connection)
        parser = IprotoParser(limits.bulk_max, limits.buffer_max, not server.accounts.any)
        connection.inbox = CallInbox(parser, self.calls, WAITS_PER_CONNECTION_MAX)
        connection.reply = IprotoReply()
        return connection

    def _connection(self, number: int, engine_connection: EngineConnection) -> Connection:
        connection = self.greeted(number, engine_connection)
        salt = self.entropy(32)
        connection.salt = salt[: iproto.SALT_BYTES]
        connection.greeting = iproto.greeting(VERSION, self.uuid, salt)
        return connection

    def _log_in(self, caller: Caller, request: Request) -> None:
        if not isinstance(caller, Connection):
            # A client of another node has logged in there.
            raise BoxError(iproto.ER_PASSWORD, "a client of another node cannot log in here")
        if request.name.decode("utf-8", "replace") == _DEFAULT_USER and not self.server.accounts.any:
            caller.log_in_as(ANONYMOUS)
            iproto_reply(caller).done(request.sync)
            return
        self.server.logins.begin(caller, _IprotoLogin(self.server, caller, request))


class _IprotoLogin(Login):
    """A login by AUTH of IPROTO."""

    def __init__(self, server: Server, caller: Connection, request: Request) -> None:
        self._accounts = server.accounts
        self._answers = iproto_reply(caller)
        self._name = request.name.decode("utf-8", "replace")
        self._scramble = _scramble(request)
        self._salt = caller.salt
        self._sync = request.sync

    def account(self) -> Account | None:
        return self._accounts.log_in_by_scramble(self._name, self._scramble, self._salt)

    def accept(self) -> None:
        self._answers.done(self._sync)

    def refuse(self) -> None:
        text = "User not found or supplied credentials are invalid"
        if self._accounts.has_no_scramble(self._name):
            name = self._name[:64]
            text = f"User '{name}' cannot log in over IPROTO: the server has only a hash of its password"
        self._answers.refusal(self._sync, iproto.ER_PASSWORD, text.encode())

    def refuse_as_busy(self, sentence: str) -> None:
        self._answers.refusal(self._sync, iproto.ER_PASSWORD, sentence.encode())


def _scramble(request: Request) -> bytes:
    """Return the scramble of an AUTH request, or b"" if there is none. It proves that the client has the password.

    The request contains [method, 20 bytes]. Both are text or binary.
    """
    try:
        if len(request.args) == 2 and Reader(request.args[0]).string() == b"chap-sha1":
            return Reader(request.args[1]).string()
    except ProtocolError:
        pass
    return b""


def iproto_ports(server: Server) -> dict[str, IprotoPort]:
    """Return the IPROTO ports of a server, by the names of their settings."""
    today, old = (IprotoPort(server, is_15, secrets.token_bytes) for is_15 in (False, True))
    return {"iproto_port": today, "iproto15_port": old, "iproto_tls_port": today, "iproto15_tls_port": old}
