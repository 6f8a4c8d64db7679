"""The network between nodes. It delays, duplicates, reorders and loses messages, and links can be cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.cluster.messages import Message
from penstock.testing.sim.options import Options
from penstock.testing.sim.schedule import SECOND, Schedule, spread
from penstock.wire.bus import PACKET_BYTES_MAX, Frames, MessageEncoder, PacketTags, encode_packets, verified_payload
from penstock.wire.bus import decode_messages as read

# A message that would take longer is lost.
DELAY_MAX = 2 * SECOND

# The key of the packets' tags.
_KEY = bytes(32)

# Called with the sender, the receiver's life and the messages.
Receive = Callable[[int, int, list[Message]], None]


class Network:
    """Delivers messages between nodes. A node is identified by its number here."""

    def __init__(self, schedule: Schedule, random: Random, options: Options) -> None:
        self.delay = options.delay_us
        self.loss = options.loss
        self.duplication = options.duplication
        self._encoded = options.encoded
        self.lost = 0
        self.doubled = 0
        self._schedule = schedule
        self._random = random
        self._cuts: dict[tuple[int, int], int] = {}  # How many active cuts each direction has.
        self._receivers: dict[int, Receive] = {}

    def join(self, node: int, receive: Receive) -> None:
        """Add a node. `receive` is called with its incoming messages."""
        self._receivers[node] = receive

    def cut(self, sender: int, receiver: int) -> None:
        """Drop messages from `sender` to `receiver`. Each call of `cut` needs a call of `mend` to undo it."""
        link = sender, receiver
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, sender: int, receiver: int) -> None:
        """Undo one call of `cut`, if there was any."""
        link = sender, receiver
        self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)

    def heal(self) -> None:
        """Undo all cuts, and lose no messages from now on."""
        self._cuts.clear()
        self.loss = self.duplication = 0.0
        self.delay = min(self.delay, 1_000)

    def is_cut(self, sender: int, receiver: int) -> bool:
        """Return whether messages from `sender` to `receiver` are dropped."""
        return self._cuts.get((sender, receiver), 0) > 0

    def send(self, sender: int, receiver: int, life: int, messages: list[Message]) -> None:
        """Send the messages of one turn to the process number `life` of another node. Most of them arrive together."""
        if self.loss == 0 and self.duplication == 0:
            self._carry(sender, receiver, life, messages)
            return
        random = self._random
        together: list[Message] = []
        for message in messages:
            if random.random() < self.loss:
                self.lost += 1
                continue
            if random.random() < self.duplication:
                self.doubled += 1
                self._carry(sender, receiver, life, [message])
            if random.random() < 0.2:
                self._carry(sender, receiver, life, [message])
            else:
                together.append(message)
        if together:
            self._carry(sender, receiver, life, together)

    def _carry(self, sender: int, receiver: int, life: int, messages: list[Message]) -> None:
        if self._encoded:
            messages = as_they_arrive(messages)
        delay = spread(self._random, self.delay, DELAY_MAX)
        self._schedule.after(delay, lambda: self._arrive(sender, receiver, life, messages))

    def _arrive(self, sender: int, receiver: int, life: int, messages: list[Message]) -> None:
        # Messages in transit are lost when the link is cut, as with a broken connection.
        if self.is_cut(sender, receiver):
            self.lost += len(messages)
        else:
            self._receivers[receiver](sender, life, messages)


def as_they_arrive(messages: list[Message]) -> list[Message]:
    """Encode and decode messages, as on a real link."""
    frames, seal = Frames(), PacketTags(_KEY)
    frames.bytes_max = PACKET_BYTES_MAX
    frames.feed(encode_packets(messages, PacketTags(_KEY), MessageEncoder()))
    arrived: list[Message] = []
    while (frame := frames.next()) is not None:
        arrived += read(verified_payload(frame, seal))
    return arrived
