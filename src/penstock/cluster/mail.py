"""What a node has to say to its peers in this turn. The shell takes it when the turn is over and, where there is a log,
once that is durable: nobody is told of something that a crash can undo."""

from __future__ import annotations

from mypy_extensions import i64

from penstock.cluster.messages import MESSAGES_COUNT, Message


class Mail:
    """Messages by the node they go to, in the order they were said."""

    letters: dict[bytes, list[Message]]
    sent: list[int]  # How many of each kind, since the start.

    def __init__(self) -> None:
        self.letters = {}
        self.sent = [0] * MESSAGES_COUNT

    def send(self, node: bytes, message: Message) -> None:
        """Say something to a node. Whether it hears it, nobody knows."""
        kind: i64 = message.kind
        self.sent[kind] = self.sent[kind] + 1
        letters = self.letters.get(node)
        if letters is None:
            self.letters[node] = [message]
        else:
            letters.append(message)

    def take(self) -> dict[bytes, list[Message]]:
        """What was said since this was asked last."""
        letters, self.letters = self.letters, {}
        return letters
