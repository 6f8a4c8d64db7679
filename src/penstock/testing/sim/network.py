"""The network between nodes: messages come late, twice, in another order, or not at all; and links can be cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.cluster.messages import Message
from penstock.testing.sim.options import Options
from penstock.testing.sim.schedule import SECOND, Schedule, spread
from penstock.wire.bus import PACKET_BYTES_MAX, Frames, Scribe, Seal, opened, packets
from penstock.wire.bus import messages as read

# A network that takes longer than this has lost a message.
_DELAY_MAX = 2 * SECOND

# Of the tags that packets have on a link.
_KEY = bytes(32)

# Who says it, to which life of the receiver, and what.
Receive = Callable[[int, int, list[Message]], None]


class Network:
    """Who hears what of whom, and when. Nodes are numbers here."""

    def __init__(self, schedule: Schedule, random: Random, options: Options) -> None:
        self.delay = options.delay_us
        self.loss = options.loss
        self.duplication = options.duplication
        self._encoded = options.encoded
        self.lost = 0
        self.doubled = 0
        self._schedule = schedule
        self._random = random
        self._cuts: dict[tuple[int, int], int] = {}  # How many hold a direction cut.
        self._receivers: dict[int, Receive] = {}

    def join(self, node: int, receive: Receive) -> None:
        """Let a node be heard, and hear."""
        self._receivers[node] = receive

    def cut(self, sender: int, receiver: int) -> None:
        """Let nothing come through in one direction, until `mend` was called as often."""
        link = sender, receiver
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, sender: int, receiver: int) -> None:
        """Undo one cut, unless all were undone."""
        link = sender, receiver
        self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)

    def heal(self) -> None:
        """From now on everything arrives."""
        self._cuts.clear()
        self.loss = self.duplication = 0.0
        self.delay = min(self.delay, 1_000)

    def is_cut(self, sender: int, receiver: int) -> bool:
        """Whether nothing comes through."""
        return self._cuts.get((sender, receiver), 0) > 0

    def send(self, sender: int, receiver: int, life: int, messages: list[Message]) -> None:
        """Send what one node says to a life of another in one turn. What is said together comes together, mostly."""
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
            messages = _as_they_arrive(messages)
        delay = spread(self._random, self.delay, _DELAY_MAX)
        self._schedule.after(delay, lambda: self._arrive(sender, receiver, life, messages))

    def _arrive(self, sender: int, receiver: int, life: int, messages: list[Message]) -> None:
        # What was under way when a link was cut is lost with it, as it is when a connection breaks.
        if self.is_cut(sender, receiver):
            self.lost += len(messages)
        else:
            self._receivers[receiver](sender, life, messages)


def _as_they_arrive(messages: list[Message]) -> list[Message]:
    """Messages, written as they are sent and read as they are received."""
    frames, seal = Frames(), Seal(_KEY)
    frames.bytes_max = PACKET_BYTES_MAX
    frames.feed(packets(messages, Seal(_KEY), Scribe()))
    arrived: list[Message] = []
    while (frame := frames.next()) is not None:
        arrived += read(opened(frame, seal))
    return arrived
