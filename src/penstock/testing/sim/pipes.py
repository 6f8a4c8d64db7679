"""Ordered links between simulated nodes, as TCP provides them. The workload `tubes` uses them.

The network of `network.py` loses, duplicates and reorders single messages, which is harsher than a real link. The
messages about homes and tunnels rely on the order of a link, and on a link that breaks when a message is lost. A pipe
has these properties: its items arrive in order, late or not at all. While the network is cut, they are held back. When
the pipe breaks, all items in transit are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.testing.sim.network import DELAY_MAX, Network
from penstock.testing.sim.schedule import MS, Schedule, spread

# A sender tries again after this time while the network is cut.
_AGAIN = 20 * MS


class Pipe:
    """One link from the node number `sender` to the node number `receiver`."""

    def __init__(self, schedule: Schedule, network: Network, random: Random, sender: int, receiver: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.is_broken = False
        self._schedule = schedule
        self._network = network
        self._random = random
        self.bytes = 0  # The bytes of clients in transit.
        self.epoch = 0  # The epoch of the sender.
        self._last = 0  # When the last item arrives.
        self._held: list[Callable[[], None]] = []  # Items that wait until the network is not cut.

    def send(self, arrive: Callable[[], None]) -> None:
        """Call `arrive` at the other end, after everything that was sent before."""
        self._last = max(self._last, self._schedule.now + spread(self._random, self._network.delay, DELAY_MAX))
        self._schedule.at(self._last, lambda: self._arrive(arrive))

    def break_off(self) -> None:
        """Lose all items in transit."""
        self.is_broken = True
        self._held.clear()

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self.is_broken:
            return
        if self._held or self._network.is_cut(self.sender, self.receiver):
            self._held.append(arrive)
            if len(self._held) == 1:
                self._schedule.after(_AGAIN, self._try_again)
        else:
            arrive()

    def _try_again(self) -> None:
        if self._held and self._network.is_cut(self.sender, self.receiver):
            self._schedule.after(_AGAIN, self._try_again)
            return
        held, self._held = self._held, []
        for arrive in held:
            arrive()
