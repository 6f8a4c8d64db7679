"""Errors of commands that must run on another node, or that can run only after other nodes have answered a question.

This module is not compiled, because the base classes in core/errors.py are not.
"""

from __future__ import annotations

from penstock.core.errors import NoHome, PenstockError


class Elsewhere(NoHome):
    """The tube or job of a command is on another node. Nothing is changed, so the command can be forwarded."""

    def __init__(self, node: bytes, what: str, promised: bytes = b"") -> None:
        super().__init__(f"{what} lives on node {node.decode()}; connect to that node")
        self.node = node
        self.what = what
        self.promised = promised  # The tube, if the node was granted its creation and has not confirmed it.


class OnSeveralNodes(Elsewhere):
    """The tubes or jobs of a command are on several nodes, one of which can be this node.

    `parts` has the words of the command that each of these nodes runs, by node id.
    """

    def __init__(self, parts: dict[bytes, list[bytes]]) -> None:
        super().__init__(next(iter(parts)), "a part of this")
        self.parts = parts


class NeedsAnswer(PenstockError):
    """The command can run only after other nodes have answered a question. Nothing is changed."""

    def __init__(self) -> None:
        super().__init__("the other nodes have to be asked first; try again")


class NeedsHome(NeedsAnswer):
    """The command creates a tube with a home. The other nodes have to agree on the home first."""

    def __init__(self, tube: bytes) -> None:
        super().__init__()
        self.tube = tube


class NeedsDecision(NeedsAnswer):
    """The node `where` was granted the creation of the command's tube. It has to create the tube or withdraw first."""

    def __init__(self, where: Elsewhere) -> None:
        super().__init__()
        self.where = where


class NeedsLookup(NeedsAnswer):
    """The command names a stage or a consumer that this node does not have. The other nodes have to be asked for it."""

    def __init__(self, about: int, name: bytes) -> None:
        super().__init__()
        self.about = about
        self.name = name
