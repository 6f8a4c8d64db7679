"""The interface to commands of this node's clients that run on other nodes.

`RemoteCommands` is the base class, which a node without peers uses. `forwarding.py` implements it for a cluster.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.messages import Message
from penstock.core.waits import Waiting
from penstock.node.caller import Caller
from penstock.node.routing import Elsewhere, NeedsAnswer
from penstock.wire.iproto import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteCommands:
    """The commands that clients of this node run on other nodes. This base class is for a node without peers."""

    def forward(self, caller: Caller, args: list[bytes], where: Elsewhere) -> None:
        """Forward a RESP command to another node, or its parts to several nodes. Raise an error if this fails."""
        raise where

    def forward_call(self, caller: Caller, request: Request, where: Elsewhere) -> None:
        """Forward an IPROTO call to another node. Raise an error if this fails."""
        raise where

    def ask(self, caller: Caller, question: NeedsAnswer, tag: object, now: i64) -> Waiting:
        """Ask the other nodes the question on which a command depends. Return the wait that ends with their answers."""
        raise question

    def nodes_in_use(self, caller: Caller) -> list[bytes]:
        """Return the reachable other nodes that a client's session uses."""
        return []

    def identified(self, caller: Caller) -> None:
        """Send a client's new session or grace time to the other nodes that it uses."""

    def stop_waiting(self, caller: Caller) -> None:
        """End the client's waits on other nodes as soon as possible."""

    def leaves(self, caller: Caller) -> None:
        """Drop the client's commands on other nodes, because it has disconnected."""

    def reads_again(self, caller: Caller) -> None:
        """Continue to receive replies from other nodes, because the client reads its replies again."""

    def receive(self, sender: bytes, message: Message) -> None:
        """Handle a message of another node about a forwarded command."""


NO_REMOTE_COMMANDS: Final = RemoteCommands()
