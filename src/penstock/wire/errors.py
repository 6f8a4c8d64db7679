"""Refusals in the very words of a protocol. Not compiled: the class stands on those of core/errors.py."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import NoHome, PenstockError, ProtocolError

# What many commands refuse.
SYNTAX: Final = b"ERR syntax error"
NOT_AN_INTEGER: Final = b"ERR value is not an integer or out of range"


class Refused(PenstockError):
    """A refusal whose whole line is given, code and all, because clients know it in just these words."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line


class BoxError(PenstockError):
    """A refusal over IPROTO: Tarantool's number for it, and its sentence. Clients know both."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class LuaError(BoxError):
    """What a procedure refuses. In the originals the text has a file and a line in front."""

    def __init__(self, text: str) -> None:
        super().__init__(32, text)


class NoProcedure(BoxError):
    """There is no such function, or no such tube to call it on."""

    def __init__(self, name: bytes) -> None:
        super().__init__(33, f"Procedure '{name[:200].decode('utf-8', 'backslashreplace')}' is not defined")


class TurnedAway(ProtocolError):
    """A node did as it should, and says why it does not talk to us."""


class Elsewhere(NoHome):
    """What a command is about is not here, but on another node: nothing has been done, and the command can go there."""

    def __init__(self, node: bytes, what: str, is_promised: bool = False) -> None:
        super().__init__(f"{what} lives on node {node.decode()}; ask that one")
        self.node = node
        self.what = what
        self.is_promised = is_promised  # It was to be made there, and nobody knows whether it was.


class Spread(Elsewhere):
    """What a command is about is on several nodes: the words of each, this one among them."""

    def __init__(self, parts: dict[bytes, list[bytes]]) -> None:
        super().__init__(next(iter(parts)), "a part of this")
        self.parts = parts


class AskFirst(PenstockError):
    """Other nodes have to be asked something before a command can be run: nothing has been done."""

    def __init__(self) -> None:
        super().__init__("the other nodes have to be asked first")


class Unclaimed(AskFirst):
    """A tube that is on one node only is to be made, and the other nodes were not asked whether it may be."""

    def __init__(self, tube: bytes) -> None:
        super().__init__()
        self.tube = tube


class Sought(AskFirst):
    """Something is not known here by its name, and the other nodes were not asked for it."""

    def __init__(self, about: int, name: bytes) -> None:
        super().__init__()
        self.about = about
        self.name = name
