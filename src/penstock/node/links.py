"""The links of a node to its peers, as the rest of the node sees them. `server/peers/bus.py` has the real ones."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.cluster.messages import Message

# Messages to other nodes, by the id of the node.
Messages = dict[bytes, list[Message]]


@mypyc_attr(allow_interpreted_subclasses=True)
class PeerLinks:
    """The links of a node to its peers."""

    def update(self) -> None:
        """Open and close links and save the node table, because `Cluster.news` has changed."""
        raise NotImplementedError

    def send(self, messages: Messages) -> None:
        """Send messages. Those to a peer without a link are dropped."""
        raise NotImplementedError

    def is_two_way(self, node: bytes) -> bool:
        """Return whether messages can be sent to a node and received from it."""
        raise NotImplementedError

    def is_crowded(self, node: bytes) -> bool:
        """Return whether the link to a node is too full, so that clients' bytes have to wait."""
        return False
