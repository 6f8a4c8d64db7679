"""The functions that clients call by name: over IPROTO, and over RESP by CALL.

Only `queue.statistics` depends on the port: it returns a map as in tarantool/queue, or a flat list as in the 1.5 API.
The functions of the 1.5 API are also available under `queue15`, where they are the same on every port.
"""

from __future__ import annotations

import uuid
from typing import Final

from penstock.core.limits import DURATION_MS_MAX
from penstock.dialects.spaces.methods import BoxFunctions, SpaceFunctions
from penstock.dialects.tarantool.call_command import CallCommand
from penstock.dialects.tarantool.calls import CallDispatcher, Functions, LogIn, Method, argument, encode_result
from penstock.dialects.tarantool.queue_functions import QueueFunctions, TubeMethods, lua_text, read_options
from penstock.dialects.xqueue.calls import SpaceMethods, XqueueFunctions
from penstock.node.caller import ADMIN, READ, Caller, check_whole_server
from penstock.node.dispatch import Command
from penstock.server.commands.native_table import command
from penstock.server.server import Server
from penstock.wire.errors import BoxError, LuaError, NoProcedure
from penstock.wire.iproto import Request
from penstock.wire.msgpack import NO_VALUES

# Tarantool's error codes for unknown users and roles.
_ER_NO_SUCH_USER: Final = 45
_ER_NO_SUCH_ROLE: Final = 82

# The Tarantool version reported to clients. From 2.10 on, clients send ID; below 1.7, they decode replies differently.
VERSION: Final = "2.11.0"


def functions(server: Server, is_15: bool, log_in: LogIn) -> CallDispatcher:
    """Return a dispatcher for all functions. If `is_15` is set, `queue.statistics` is that of the 1.5 API.

    `log_in` runs AUTH requests.
    """
    administration = Administration(server)
    tubes = TubeMethods(server.context)
    tubes.add(b"grant", Method(ADMIN, administration.grant))
    tubes.add(b"grant_role", Method(ADMIN, administration.grant_role))
    queue = QueueFunctions(server.context)
    queue.add(b"cfg", Method(ADMIN, administration.cfg))
    queue15 = server.queue15.functions()
    for name, method in queue15.items():
        if is_15 or name != b"statistics":
            queue.add(name, method)
    box = BoxFunctions({b"info": Method(READ, administration.info)})
    families = {b"queue": queue, b"queue15": Functions(queue15), b"xqueue": XqueueFunctions(server.spaces), b"box": box}
    spaces = SpaceFunctions(server.context, server.spaces)
    return CallDispatcher(
        server.dispatcher, families, tubes, SpaceMethods(server.spaces, spaces), spaces.select, log_in
    )


def function_rows(server: Server) -> list[Command]:
    """Return the rows of the command table for functions. There is one: CALL."""
    calls = CallCommand(server.context, functions(server, False, _no_log_in))
    return [
        command(
            *("call -2 w all", "function [argument ...]"),
            "Call a function of Tarantool's queues. Values are msgpack. Return its results and the delivered jobs.",
            calls.call,
        ),
    ]


def _no_log_in(caller: Caller, request: Request) -> None:
    """Raise NotImplementedError. RESP clients log in with AUTH, so this is never called."""
    raise NotImplementedError


def uuid_of(node: str) -> str:
    """Return a UUID made from the id of a node, for protocols whose node ids are UUIDs."""
    # net.box closes the connection if the version bits are wrong, as they are in one of eight random ids.
    return str(uuid.UUID(hex=node[:32], version=4))


class Administration:
    """The functions that administer the server: box.info, queue.cfg, and grants of tubes to users."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def info(self, caller: Caller, call: Request, _: bytes, now: int) -> bytes | None:
        """Run box.info(). Connection pools use it to find out which instance accepts writes."""
        server = self._server
        return encode_result(
            {
                "id": 1,
                "package": "Penstock",
                "version": VERSION,
                "uuid": uuid_of(server.node_id),
                "status": "running",
                "ro": server.context.leaving,
            }
        )

    def cfg(self, caller: Caller, call: Request, _: bytes, now: int) -> bytes | None:
        """Run queue.cfg({ttr, in_replicaset}): change settings of the server.

        `ttr` is the grace time of sessions. With `in_replicaset`, temporary tubes are refused.
        """
        check_whole_server(caller)
        for name, value in read_options(call.args[0]).items() if call.args else ():
            if name == "ttr":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                    raise LuaError(f"Invalid value of ttr: {value}")
                # Some clients send nanoseconds. The value is limited to the longest duration.
                self._server.config.change("session-grace", f"{min(value, DURATION_MS_MAX // 1_000):.3f}")
                self._server.apply("session_grace")
            elif name == "in_replicaset":
                if not isinstance(value, bool):
                    raise LuaError(f"Invalid value of in_replicaset: {value}")
                self._server.config.change("queue-in-replicaset", "yes" if value else "no")
                self._server.apply("queue_in_replicaset")
            else:
                raise LuaError(f"Unknown option {name}")
        return NO_VALUES

    def grant(self, caller: Caller, call: Request, tube: bytes, now: int) -> bytes | None:
        """Run tube:grant(user, {call, truncate}): give a user access to a tube until the server ends.

        With `truncate`, the user may also truncate the tube.
        """
        if tube not in self._server.turn.engine.tubes:
            self._server.context.raise_if_elsewhere([tube])
            raise NoProcedure(call.name)
        user = argument(call, 0)
        options = read_options(call.args[1]) if len(call.args) > 1 else {}
        # As in Lua, all values but nil and false are true.
        truncate = options.get("truncate") not in (None, False)
        if not isinstance(user, str) or not self._server.accounts.grant(user, tube, truncate):
            raise BoxError(_ER_NO_SUCH_USER, f"User '{lua_text(user)}' is not found")
        return NO_VALUES

    def grant_role(self, caller: Caller, call: Request, tube: bytes, now: int) -> bytes | None:
        """Run tube:grant_role(role): raise an error, because there are no roles."""
        raise BoxError(_ER_NO_SUCH_ROLE, f"Role '{lua_text(argument(call, 0))}' is not found; grant users instead")
