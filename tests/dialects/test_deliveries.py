"""A take delivers the body that was read, and reads it only once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import DamagedJournal
from penstock.core.job import BODY_TEXT, Draft, Job
from penstock.core.policy import FIFO
from penstock.dialects.tarantool.calls import Method
from penstock.dialects.tarantool.queue15_functions import Queue15Functions
from penstock.dialects.tarantool.queue_functions import TubeMethods
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.wire.iproto import CALL, Request
from penstock.wire.msgpack import pack, unpack
from tests.spilled_bodies import spill

from .command_engine import NODE, NOW, CommandEngine


class Disk:
    """Reads bodies from disk. It fails after the first one."""

    def __init__(self, body: bytes) -> None:
        self.bodies = [body]

    def read(self, job: Job) -> bytes:
        if not self.bodies:
            raise DamagedJournal("segment-1 is damaged")
        return self.bodies.pop()


def take(method: Method | None, caller: Caller, tube: bytes, *args: object) -> Any:
    call = Request(CALL, 0)
    call.args = [pack(arg) for arg in args]
    assert method is not None
    results = method.function(caller, call, tube, NOW)
    assert results is not None
    [task] = unpack(results)  # type: ignore[misc]
    return task


@pytest.mark.parametrize("family", ["today", "1.5"])
def test_a_body_on_disk_is_read_once_when_its_job_is_taken(shop: CommandEngine, family: str) -> None:
    site = CommandContext(shop.engine, shop.context.ids, NODE, Disk(b"data").read, lambda length: None)
    tube = shop.engine.create_tube(b"q", FIFO, NOW)
    for _ in range(2):
        job = shop.engine.put(tube, Draft(b"data", body_kind=BODY_TEXT), NOW)
        spill(shop.engine, job, 1, 10)
    if family == "today":
        method, args = TubeMethods(site).method(b"q", b"take"), [0]
    else:
        method, args = Queue15Functions(site).functions()[b"take"], [0, "q", 0]
    assert take(method, shop.caller, b"q", *args)[-1] == "data"
    with pytest.raises(DamagedJournal):
        take(method, shop.caller, b"q", *args)
    assert len(tube.taken) == 1 == len(tube.buried)
