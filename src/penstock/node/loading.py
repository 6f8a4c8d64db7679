"""Refusing the requests that arrive while a node loads its journal. Pure.

No request is run before the journal is loaded, and a request that was refused is never run. When the journal is
loaded, the inbox of a client continues with the same parser, because the parser may contain the start of a request.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from penstock.wire import iproto
from penstock.wire.iproto import IprotoParser, IprotoReply
from penstock.wire.reply import Reply
from penstock.wire.resp import RespParser


def refuse_commands(parser: RespParser, most: i64, line: bytes, info: Callable[[], str] | None) -> bytes:
    """Remove up to `most` complete RESP commands from the parser, and return their replies.

    Each is refused with the error `line`, except INFO, which is answered with the text of `info` if this is not None.
    If the bytes are malformed, the last reply is the error of the parser.
    """
    reply = Reply()
    for words in parser.parse(most):
        if info is not None and words[0].upper() == b"INFO":
            reply.bulk(info().encode())
        else:
            reply.error(line)
    if parser.error:
        reply.error(b"ERR " + parser.error)
    return reply.take()


def refuse_calls(parser: IprotoParser, most: i64, sentence: bytes) -> bytes:
    """Remove up to `most` complete IPROTO requests from the parser, and return their replies: errors with `sentence`.

    If the bytes are malformed, the last reply is the error of the parser.
    """
    reply = IprotoReply()
    for request in parser.parse(most):
        reply.refusal(request.sync, iproto.ER_LOADING, sentence)
    if parser.error:
        reply.refusal(0, iproto.ER_INVALID_MSGPACK, parser.error)
    return reply.take()
