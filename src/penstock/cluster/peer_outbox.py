"""Messages that this node sends to its peers at the end of the turn.

The server takes them when the turn is over. If there is a log, it waits until the log is durable, so no peer learns of
a change that a crash can undo.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.cluster.messages import MESSAGES_COUNT, Message


class PeerOutbox:
    """Messages for other nodes, by node id and in order."""

    def __init__(self) -> None:
        self.by_peer: dict[bytes, list[Message]] = {}
        self.sent: list[int] = [0] * MESSAGES_COUNT  # How many messages of each kind were sent since the start.

    def send(self, node: bytes, message: Message) -> None:
        """Queue a message for a node. Delivery is not guaranteed."""
        kind: i64 = message.kind
        self.sent[kind] = self.sent[kind] + 1
        messages = self.by_peer.get(node)
        if messages is None:
            self.by_peer[node] = [message]
        else:
            messages.append(message)

    def take(self) -> dict[bytes, list[Message]]:
        """Return the queued messages by node, and clear the queue."""
        messages, self.by_peer = self.by_peer, {}
        return messages
