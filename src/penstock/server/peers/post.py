"""The cluster within the turns of a node: it advances the cluster's time and collects its messages. Compiled.

Received messages pass through here, too. The bus, which has the links, is called only if there is work for it: messages
to send, changes of the node table, or messages about forwarded clients. Most turns have none of these.
"""

from __future__ import annotations

from typing import Final, Protocol

from mypy_extensions import i64

from penstock.cluster.messages import TUNNEL, TUNNELEND, Greeting, Message
from penstock.cluster.node import Cluster
from penstock.core.limits import NEVER

Letters = dict[bytes, list[Message]]

_NOTHING_SEEN: Final = -1


class Links(Protocol):
    """The interface of the bus for the turns of a node."""

    def tend(self) -> None:
        """Open and close links, because the node table has changed or a link is stale (see Cluster.news)."""

    def send(self, letters: Letters) -> None:
        """Send the messages in `letters`, a dictionary by peer."""

    def tunnelled(self, sender: bytes, message: Message) -> None:
        """Handle a message about a tunnel between this node and the sender."""


class Post:
    """Runs the cluster logic of a node in every turn. Without a cluster, it does nothing."""

    next_due: i64  # The time at which the cluster has to be advanced again.
    _cluster: Cluster | None
    _links: Links | None
    _seen: i64  # The last value of Cluster.news that was handled.

    def __init__(self) -> None:
        self.next_due = NEVER
        self._cluster = None
        self._links = None
        self._seen = _NOTHING_SEEN

    def open(self, cluster: Cluster, links: Links) -> None:
        """Start to run the logic of a cluster. `links` sends its messages."""
        self._cluster = cluster
        self._links = links

    def close(self) -> None:
        """Stop running the cluster logic. The bus calls this when it closes all links at the end."""
        self._cluster = None
        self._links = None
        self.next_due = NEVER

    def advance(self, now: i64) -> None:
        """Run the timers of the cluster that are due at `now`. Let the bus update its links if necessary."""
        cluster = self._cluster
        if cluster is not None:
            cluster.advance(now)
            self.next_due = cluster.next_due
            news = cluster.news()
            if news != self._seen and self._links is not None:
                self._seen = news
                self._links.tend()

    def hear(self, sender: bytes, place: str, said: list[Message], now: i64) -> None:
        """Handle messages from the node `sender`. `place` is the address from which it connected."""
        for message in said:
            # A message can end all links.
            cluster, links = self._cluster, self._links
            if cluster is None or links is None:
                return
            if TUNNEL <= message.kind <= TUNNELEND:
                links.tunnelled(sender, message)
                continue
            if isinstance(message, Greeting) and not message.host:
                message.host = place
            cluster.receive(sender, message, now)

    def has_mail(self) -> bool:
        """Return whether there are messages to send."""
        cluster = self._cluster
        return cluster is not None and len(cluster.outbox.by_peer) > 0

    def take(self) -> Letters | None:
        """Remove and return the messages to send, by peer, or None if there are none.

        The caller sends them with `send` when the log is durable.
        """
        cluster = self._cluster
        return cluster.outbox.take() if cluster is not None and cluster.outbox.by_peer else None

    def send(self, letters: Letters) -> None:
        """Send messages that `take` returned."""
        if self._links is not None:
            self._links.send(letters)
