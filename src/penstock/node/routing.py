"""Errors of commands that cannot run on this node, or not yet: they say where the command has to run, or what to ask.

Not compiled, because their base classes in core/errors.py are not.
"""

from __future__ import annotations

from penstock.core.errors import NoHome, PenstockError


class Elsewhere(NoHome):
    """A command whose tube or job is on another node. Nothing is changed, so the command can be forwarded."""

    def __init__(self, node: bytes, what: str, is_promised: bool = False) -> None:
        super().__init__(f"{what} lives on node {node.decode()}; connect to that node")
        self.node = node
        self.what = what
        self.is_promised = is_promised  # The tube was to be made there, and it is unknown whether it was.


class OnSeveralNodes(Elsewhere):
    """A command whose tubes or jobs are on several nodes, one of which can be this node.

    `parts` has the words of the command that each of these nodes runs, by node id.
    """

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
