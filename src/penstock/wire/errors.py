"""Errors in the exact words of a protocol. Not compiled, because their base classes in core/errors.py are not."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import PenstockError, ProtocolError

# Errors that many commands raise.
SYNTAX: Final = b"ERR syntax error"
NOT_AN_INTEGER: Final = b"ERR value is not an integer or out of range"


class Refused(PenstockError):
    """A refusal with its complete error line, code included, because clients match this text."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line


class BoxError(PenstockError):
    """A refusal over IPROTO with Tarantool's error number and sentence. Clients match both."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class LuaError(BoxError):
    """An error that a Lua procedure raises. Unlike in Tarantool, its text has no file name and line number."""

    def __init__(self, text: str) -> None:
        super().__init__(32, text)


class NoProcedure(BoxError):
    """The error for a function that does not exist, or that is called on a tube that does not exist."""

    def __init__(self, name: bytes) -> None:
        super().__init__(33, f"Procedure '{name[:200].decode('utf-8', 'backslashreplace')}' is not defined")


class RefusedByPeer(ProtocolError):
    """The error for a handshake that the peer refused. The message of the peer was well formed and has the reason."""
