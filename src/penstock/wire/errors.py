"""Errors in the exact words of a protocol. Not compiled, because their base classes in core/errors.py are not."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import NoHome, PenstockError, ProtocolError

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
    """An error that a Lua procedure raises. In the originals the text begins with a file and a line."""

    def __init__(self, text: str) -> None:
        super().__init__(32, text)


class NoProcedure(BoxError):
    """The function does not exist, or the tube that it is called on."""

    def __init__(self, name: bytes) -> None:
        super().__init__(33, f"Procedure '{name[:200].decode('utf-8', 'backslashreplace')}' is not defined")


class RefusedByPeer(ProtocolError):
    """The peer works correctly and refused the connection, with its reason."""


class Elsewhere(NoHome):
    """The tube or the job of a command is on another node. Nothing is changed, so the command can be forwarded."""

    def __init__(self, node: bytes, what: str, is_promised: bool = False) -> None:
        super().__init__(f"{what} lives on node {node.decode()}; connect to that node")
        self.node = node
        self.what = what
        self.is_promised = is_promised  # The tube was to be made there, and it is unknown whether it was.


class OnSeveralNodes(Elsewhere):
    """The tubes or jobs of a command are on several nodes. `parts` has the words for each node, also for this one."""

    def __init__(self, parts: dict[bytes, list[bytes]]) -> None:
        super().__init__(next(iter(parts)), "a part of this")
        self.parts = parts


class NeedsAnswer(PenstockError):
    """Other nodes have to be asked before a command can run. Nothing is changed."""

    def __init__(self) -> None:
        super().__init__("the other nodes have to be asked first; try again")


class NeedsHome(NeedsAnswer):
    """A tube with one home is to be made, and the other nodes have not agreed to it yet."""

    def __init__(self, tube: bytes) -> None:
        super().__init__()
        self.tube = tube


class NeedsLookup(NeedsAnswer):
    """A name is unknown here, and the other nodes have not been asked about it yet."""

    def __init__(self, about: int, name: bytes) -> None:
        super().__init__()
        self.about = about
        self.name = name
