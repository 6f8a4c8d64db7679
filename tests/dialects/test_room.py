"""Queues that come by themselves take disk and memory: what there is no room for is refused, and nothing is done."""

from __future__ import annotations

import pytest

from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.limits import JOB_MEMORY_BYTES, TUBE_MEMORY_BYTES
from penstock.core.outbox import Outbox
from penstock.core.tube import Tube
from penstock.dialects.command import Caller, Command, Desk
from penstock.dialects.disque import Disque
from penstock.testing import check

NODE = b"0123456789abcdef0123456789abcdef01234567"
NOW = 1_000_000
NO_SPACE = b"-NOSPACE "
NO_MEMORY = b"-OOM "


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
        self.disque = Disque(self.engine, ids, NODE, lambda job: b"", self._make_room)
        names = {"addjob": self.disque.addjob, "getjob": self.disque.getjob, "pause": self.disque.pause}
        commands = [Command(name, -2, "", 2, "", "", handler) for name, handler in names.items()]
        self.desk = Desk(commands, lambda: 0)
        self.caller = Caller(self.engine.connect(b"token"))

    def _make_room(self, length: int) -> None:
        self.asked_for = length

    def ask(self, *words: bytes) -> bytes:
        self.desk.run_all(self.caller, [list(words)], 0, NOW)
        check(self.engine)
        return self.caller.reply.take()


@pytest.fixture
def shop() -> Shop:
    return Shop()


NEW_QUEUES = {
    "ADDJOB": ([b"ADDJOB", b"queue", b"x" * 100, b"0"], [b"queue"], 100),
    "GETJOB": ([b"GETJOB", b"FROM", b"one", b"another", b"one"], [b"one", b"another"], 0),
    "PAUSE": ([b"PAUSE", b"queue", b"in"], [b"queue"], 0),
}


@pytest.mark.parametrize("case", NEW_QUEUES)
@pytest.mark.parametrize("short", [0, 1])
def test_a_queue_that_does_not_fit_on_the_disk_is_not_made(shop: Shop, case: str, short: int) -> None:
    words, queues, body = NEW_QUEUES[case]
    needed = sum(TUBE_MEMORY_BYTES + len(name) for name in queues) + body
    shop.engine.room_bytes = needed - short
    answer = shop.ask(*words)
    assert answer.startswith(NO_SPACE) == bool(short)
    assert shop.asked_for == needed * short
    assert shop.log.told == ([] if short else [b"+" + name for name in queues])


@pytest.mark.parametrize("case", NEW_QUEUES)
@pytest.mark.parametrize("short", [0, 1])
def test_a_queue_that_does_not_fit_in_memory_is_not_made(shop: Shop, case: str, short: int) -> None:
    words, queues, body = NEW_QUEUES[case]
    needed = sum(TUBE_MEMORY_BYTES + len(name) for name in queues) + (body and body + JOB_MEMORY_BYTES)
    shop.engine.memory_max = needed - short
    answer = shop.ask(*words)
    assert answer.startswith(NO_MEMORY) == bool(short)
    assert shop.log.told == ([] if short else [b"+" + name for name in queues])
    assert shop.engine.memory_used() == (0 if short else needed)


def test_a_body_that_is_too_long_leaves_no_trace_of_its_queue(shop: Shop) -> None:
    shop.engine.body_bytes_max = 10
    assert shop.ask(b"ADDJOB", b"queue", b"x" * 11, b"0").startswith(b"-TOOBIG ")
    assert shop.log.told == []


def test_a_queue_that_goes_gives_its_memory_back(shop: Shop) -> None:
    shop.engine.memory_max = TUBE_MEMORY_BYTES + 10
    assert shop.ask(b"PAUSE", b"queue", b"in") == b"+in\r\n"
    assert shop.ask(b"PAUSE", b"other", b"in").startswith(NO_MEMORY)
    shop.engine.drop(shop.engine.tube(b"queue"), NOW)
    assert shop.ask(b"PAUSE", b"other", b"in") == b"+in\r\n"
