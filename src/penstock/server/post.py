"""The cluster in the turns of a node: time passes for it, and what it has to say is collected. Compiled.

What nodes say comes and goes through here, too. The bus, which has the links, is called when there is something for it:
letters to send, a table of nodes that has changed, what a client of another node says. Most turns have none of these.
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
    """All links to other nodes."""

    def tend(self) -> None:
        """Nodes came or went, or a link leads nowhere: see Cluster.news."""

    def send(self, letters: Letters) -> None:
        """Say what is in the letters."""

    def tunnelled(self, sender: bytes, message: Message) -> None:
        """A node has said something that is about a client of its own, or of ours."""


class Post:
    """What a node and its cluster have for each other in every turn; of a node without a cluster, nothing."""

    next_due: i64  # When time has to pass for the cluster again.
    _cluster: Cluster | None
    _links: Links | None
    _seen: i64  # Of the news.

    def __init__(self) -> None:
        self.next_due = NEVER
        self._cluster = None
        self._links = None
        self._seen = _NOTHING_SEEN

    def open(self, cluster: Cluster, links: Links) -> None:
        """Let a cluster take part from now on."""
        self._cluster = cluster
        self._links = links

    def close(self) -> None:
        """There are no links any more, and there will be none."""
        self._cluster = None
        self._links = None
        self.next_due = NEVER

    def advance(self, now: i64) -> None:
        """Let time pass for the cluster."""
        cluster = self._cluster
        if cluster is not None:
            cluster.advance(now)
            self.next_due = cluster.next_due
            news = cluster.news()
            if news != self._seen and self._links is not None:
                self._seen = news
                self._links.tend()

    def hear(self, sender: bytes, place: str, said: list[Message], now: i64) -> None:
        """A node at some place has said this."""
        for message in said:
            # What it does may be the end of all links.
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
        """Whether there is anything to be said."""
        cluster = self._cluster
        return cluster is not None and len(cluster.mail.letters) > 0

    def take(self) -> Letters | None:
        """What there is to be said, to be sent when the log is durable."""
        cluster = self._cluster
        return cluster.mail.take() if cluster is not None and cluster.mail.letters else None

    def send(self, letters: Letters) -> None:
        """Say what was taken."""
        if self._links is not None:
            self._links.send(letters)
