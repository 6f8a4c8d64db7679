"""Queues that are made implicitly need disk and memory. If there is no room, the command is refused without effect."""

from __future__ import annotations

import pytest

from penstock.core.job import Draft
from penstock.core.limits import JOB_MEMORY_BYTES, TUBE_MEMORY_BYTES
from penstock.core.policy import DISQUE
from penstock.core.states import READY
from penstock.node.context import ANSWER_BYTES_MAX

from .command_engine import NOW, CommandEngine

NO_SPACE = b"-NOSPACE "
NO_MEMORY = b"-OOM "


NEW_QUEUES = {
    "ADDJOB": ([b"ADDJOB", b"queue", b"x" * 100, b"0"], [b"queue"], 100),
    "GETJOB": ([b"GETJOB", b"FROM", b"one", b"another", b"one"], [b"one", b"another"], 0),
    "PAUSE": ([b"PAUSE", b"queue", b"in"], [b"queue"], 0),
}


@pytest.mark.parametrize("case", NEW_QUEUES)
@pytest.mark.parametrize("short", [0, 1])
def test_a_queue_that_does_not_fit_on_the_disk_is_not_made(shop: CommandEngine, case: str, short: int) -> None:
    words, queues, body = NEW_QUEUES[case]
    needed = sum(TUBE_MEMORY_BYTES + len(name) for name in queues) + body
    shop.engine.room_bytes = needed - short
    answer = shop.ask(*words)
    assert answer.startswith(NO_SPACE) == bool(short)
    assert shop.asked_for == needed * short
    assert shop.log.tube_changes == ([] if short else [b"+" + name for name in queues])


@pytest.mark.parametrize("case", NEW_QUEUES)
@pytest.mark.parametrize("short", [0, 1])
def test_a_queue_that_does_not_fit_in_memory_is_not_made(shop: CommandEngine, case: str, short: int) -> None:
    words, queues, body = NEW_QUEUES[case]
    needed = sum(TUBE_MEMORY_BYTES + len(name) for name in queues) + (body and body + JOB_MEMORY_BYTES)
    shop.engine.memory_max = needed - short
    answer = shop.ask(*words)
    assert answer.startswith(NO_MEMORY) == bool(short)
    assert shop.log.tube_changes == ([] if short else [b"+" + name for name in queues])
    assert shop.engine.memory_used() == (0 if short else needed)


def test_a_body_that_is_too_long_leaves_no_trace_of_its_queue(shop: CommandEngine) -> None:
    shop.engine.body_bytes_max = 10
    assert shop.ask(b"ADDJOB", b"queue", b"x" * 11, b"0").startswith(b"-TOOBIG ")
    assert shop.log.tube_changes == []


def test_a_dropped_queue_frees_its_memory(shop: CommandEngine) -> None:
    shop.engine.memory_max = TUBE_MEMORY_BYTES + 10
    assert shop.ask(b"PAUSE", b"queue", b"in") == b"+in\r\n"
    assert shop.ask(b"PAUSE", b"other", b"in").startswith(NO_MEMORY)
    shop.engine.drop(shop.engine.tube(b"queue"), NOW)
    assert shop.ask(b"PAUSE", b"other", b"in") == b"+in\r\n"


def test_commands_that_make_no_queue_need_no_room(shop: CommandEngine) -> None:
    shop.ask(b"PAUSE", b"queue", b"in")
    shop.engine.room_bytes, shop.engine.memory_max = -1, 0
    assert shop.ask(b"PAUSE", b"queue", b"none") == b"+none\r\n"
    assert shop.ask(b"GETJOB", b"NOHANG", b"FROM", b"queue", b"another") == b"*-1\r\n"
    assert shop.ask(b"GETJOB", b"FROM", b"queue", b"queue") == b""
    assert shop.caller.wait is not None


@pytest.mark.parametrize("take", ["GETJOB COUNT 10 FROM queue", "TAKE queue COUNT 10 TIMEOUT 1h"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_reply_does_not_exceed_its_limit_for_any_count(shop: CommandEngine, take: str, waits: bool) -> None:
    body = b"x" * (ANSWER_BYTES_MAX // 4)
    words = take.encode().split()
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    if waits:
        assert shop.ask(*words) == b""
    shop.engine.put_many(tube, [Draft(body) for _ in range(8)], NOW)
    if not waits:
        shop.ask(*words)
    # A reply ends when it reaches the limit, so it may exceed it by a part of one body.
    assert len(tube.taken) in (4, 5)
    assert tube.count_in(READY) == 8 - len(tube.taken)
