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
    """An error that a Lua procedure raises. In the originals, its text begins with a file name and a line number."""

    def __init__(self, text: str) -> None:
        super().__init__(32, text)


class NoProcedure(BoxError):
    """A function that does not exist, or that is called on a tube that does not exist."""

    def __init__(self, name: bytes) -> None:
        super().__init__(33, f"Procedure '{name[:200].decode('utf-8', 'backslashreplace')}' is not defined")


class RefusedByPeer(ProtocolError):
    """A peer refused the connection and gave the reason. Its messages are well-formed."""


class Elsewhere(NoHome):
    """A command whose tube or job is on another node. Nothing is changed, so the command can be forwarded."""

    def __init__(self, node: bytes, what: str, is_promised: bool = False) -> None:
        super().__init__(f"{what} lives on node {node.decode()}; connect to that node")
        self.node = node
        self.what = what
        self.is_promised = is_promised  # The tube was to be made there, and it is unknown whether it was.


class OnSeveralNodes(Elsewhere):
    """A command whose tubes or jobs are on several nodes. `parts` has the words to run on each node and on this one."""

    def __init__(self, parts: dict[bytes, list[bytes]]) -> None:
        super().__init__(next(iter(parts)), "a part of this")
        self.parts = parts


class NeedsAnswer(PenstockError):
    """A command that can run only after other nodes have answered a question. Nothing is changed."""

    def __init__(self) -> None:
        super().__init__("the other nodes have to be asked first; try again")


class NeedsHome(NeedsAnswer):
    """A command that creates a tube with a home. The other nodes have to agree on the home first."""

    def __init__(self, tube: bytes) -> None:
        super().__init__()
        self.tube = tube


class NeedsLookup(NeedsAnswer):
    """A command with a name that this node does not have. The other nodes have to be asked for it first."""

    def __init__(self, about: int, name: bytes) -> None:
        super().__init__()
        self.about = about
        self.name = name
