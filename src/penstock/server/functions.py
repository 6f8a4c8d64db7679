"""The functions that clients call by name: over IPROTO, and over RESP by CALL.

Only `queue.statistics` means two things: the map of today's queue, or the flat list of the 1.5 API. Under the name of
`queue15` the functions of the 1.5 API are what they are everywhere.
"""

from __future__ import annotations

from typing import Final

from penstock.dialects.call_command import CallCommand
from penstock.dialects.calls import Calls, Functions, LogIn, Method, argument
from penstock.dialects.command import ADMIN, EVERYTHING, Caller
from penstock.dialects.spaces import Box, Spaces
from penstock.dialects.tarantool import Queue, TubeMethods, read_options, shown
from penstock.dialects.xqueue_calls import Module, SpaceMethods
from penstock.server.native_table import Row
from penstock.server.server import Server
from penstock.wire.errors import BoxError, LuaError, NoProcedure
from penstock.wire.iproto import Request
from penstock.wire.msgpack import NO_VALUES

# Tarantool's errors for those whom it does not know.
_ER_NO_SUCH_USER: Final = 45
_ER_NO_SUCH_ROLE: Final = 82

# No session lasts longer without a connection.
_GRACE_S_MAX: Final = 1_000 * 365 * 86_400


def functions(server: Server, is_15: bool, log_in: LogIn) -> Calls:
    """Everything that can be called; with the statistics of the 1.5 API, if it is that one."""
    administration = Administration(server)
    tubes = TubeMethods(server.site)
    tubes.add(b"grant", Method(ADMIN, administration.grant))
    tubes.add(b"grant_role", Method(ADMIN, administration.grant_role))
    queue = Queue(server.site)
    queue.add(b"cfg", Method(ADMIN, administration.cfg))
    queue15 = server.queue15.functions()
    for name, method in queue15.items():
        if is_15 or name != b"statistics":
            queue.add(name, method)
    families = {b"queue": queue, b"queue15": Functions(queue15), b"xqueue": Module(server.spaces), b"box": Box()}
    spaces = SpaceMethods(server.spaces, Spaces(server.site))
    return Calls(server.desk, families, tubes, spaces, log_in)


def function_rows(server: Server) -> list[Row]:
    """The row of THE table of commands that calls them."""
    command = CallCommand(server.site, functions(server, False, _no_log_in))
    return [
        (
            *("call", -2, "w", EVERYTHING, "function [argument ...]"),
            *(
                "Call a function of Tarantool's queues in msgpack: its results, and which jobs were handed out.",
                command.call,
            ),
        ),
    ]


def _no_log_in(caller: Caller, request: Request) -> None:
    """Who speaks RESP logs in by AUTH."""
    raise NotImplementedError


class Administration:
    """The functions of the queue that are about the server: who may use which tube, how long sessions last."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def cfg(self, caller: Caller, call: Request, _: bytes, now: int) -> bytes | None:
        """queue.cfg({ttr, in_replicaset}): how long a session outlives its last connection; the rest has no effect"""
        for name, value in read_options(call.args[0]).items() if call.args else ():
            if name == "ttr":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _GRACE_S_MAX:
                    raise LuaError(f"Invalid value of ttr: {value}")
                self._server.config.change("session-grace", f"{value:.3f}")
                self._server.apply("session_grace")
            elif name == "in_replicaset":
                if not isinstance(value, bool):
                    raise LuaError(f"Invalid value of in_replicaset: {value}")
            else:
                raise LuaError(f"Unknown option {name}")
        return NO_VALUES

    def grant(self, caller: Caller, call: Request, tube: bytes, now: int) -> bytes | None:
        """tube:grant(user, {call, truncate}): let a user of the configuration use a tube, until the server ends"""
        if tube not in self._server.node.engine.tubes:
            self._server.site.seek([tube])
            raise NoProcedure(call.name)
        user = argument(call, 0)
        if not isinstance(user, str) or not self._server.accounts.grant(user, tube):
            raise BoxError(_ER_NO_SUCH_USER, f"User '{shown(user)}' is not found")
        return NO_VALUES

    def grant_role(self, caller: Caller, call: Request, tube: bytes, now: int) -> bytes | None:
        """tube:grant_role(role): there are no roles"""
        raise BoxError(_ER_NO_SUCH_ROLE, f"Role '{shown(argument(call, 0))}' is not found; grant users instead")
