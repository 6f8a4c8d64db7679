"""CALL: RESP clients call the functions of Tarantool clients, with the same arguments and permissions.

    CALL queue.tube.mail:put <msgpack> <msgpack>        each argument is a msgpack value, so its type is kept

The reply is an array of two: the results in msgpack, and the ids of the jobs that the call delivered.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.errors import ProtocolError, WrongType
from penstock.dialects.native.arguments import excerpt
from penstock.dialects.tarantool.calls import CallDispatcher, reply_to_resp_call
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.wire import iproto
from penstock.wire.errors import BoxError, Refused
from penstock.wire.iproto import Request
from penstock.wire.msgpack import TOO_DEEP, VALUE_DEPTH_MAX, VALUES_MAX, values_in


class CallCommand:
    """The CALL command."""

    def __init__(self, context: CommandContext, calls: CallDispatcher) -> None:
        self._context = context
        self._calls = calls

    def call(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CALL function [argument ...]: call a function and reply with its results."""
        request = Request(iproto.CALL, 0)
        request.name = args[1]
        request.args = args[2:]
        # The limit for all arguments together is the limit of a body, because a body may be an array of them.
        left: i64 = VALUES_MAX - 1
        for at, each in enumerate(request.args):
            count = values_in(each, left)
            left -= count
            if count == TOO_DEEP:
                what = f"argument {at + 1} of {excerpt(args[1])} is nested more than {VALUE_DEPTH_MAX} deep"
                raise WrongType(f"{what}; flatten it, or put it as text")
            if count < 0:
                raise WrongType(f"argument {at + 1} of {excerpt(args[1])} is not valid msgpack")
        before = len(caller.unsent)
        try:
            results = self._calls.call(caller, request, now)
        except ProtocolError as refusal:
            raise WrongType(f"an argument of {excerpt(args[1])} cannot be used: {refusal}") from None
        except BoxError as refusal:
            if refusal.number == iproto.ER_ACCESS_DENIED:
                raise Refused(b"NOPERM " + str(refusal).encode("utf-8", "backslashreplace")) from None
            raise
        if results is not None:
            reply_to_resp_call(caller, results, [self._context.id_of(job) for job in caller.unsent[before:]])
