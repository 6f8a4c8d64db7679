"""An engine with Disque's words, and one client of it: what commands do, without a server around them."""

from __future__ import annotations

from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.outbox import Outbox
from penstock.core.tube import Tube
from penstock.dialects.command import WRITE, Caller, Command, Desk, Long
from penstock.dialects.disque import Disque
from penstock.dialects.site import Site

NODE = b"0123456789abcdef0123456789abcdef01234567"
NOW = 1_000_000


class Log(Outbox):
    """Remembers which queues it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes] = []

    def tube_made(self, tube: Tube, now: int) -> None:
        self.told.append(b"+" + tube.name)

    def tube_dropped(self, tube: Tube, now: int) -> None:
        self.told.append(b"-" + tube.name)


class Shop:
    """An engine and a client of it."""

    def __init__(self) -> None:
        self.log = Log()
        self.engine = Engine(1, NOW, self.log)
        self.asked_for = 0  # So much room in the log was asked for.
        ids = IdForms(NODE[:8], b"k" * 32)
        self.site = Site(self.engine, ids, NODE, lambda job: b"", self._make_room)
        self.site.start_long = self._start_long
        self.disque = Disque(self.site)
        self.long: Long | None = None  # What goes on in slices.
        names = ["addjob", "getjob", "pause", "ackjob", "deljob", "nack", "enqueue", "dequeue"]
        commands = [Command(name, -1, "", WRITE, "", "", getattr(self.disque, name)) for name in names]
        self.desk = Desk(commands, lambda: 0)
        self.caller = Caller(self.engine.connect(b"token"))

    def _make_room(self, length: int) -> None:
        self.asked_for = length

    def _start_long(self, caller: Caller, long: Long) -> None:
        self.long = long

    def ask(self, *words: bytes) -> bytes:
        self.desk.run_all(self.caller, [list(words)], 0, NOW)
        return self.caller.reply.take()
