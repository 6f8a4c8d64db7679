"""Commands about many jobs run in slices, so that they hold nobody up."""

from __future__ import annotations

import pytest

from penstock.core import states as s
from penstock.dialects.command import SLICE

from .shop import NOW, Shop

MANY = 2 * SLICE + 1
QUEUE = b"queue"


def add(shop: Shop, count: int) -> list[bytes]:
    return [shop.ask(b"ADDJOB", QUEUE, b"", b"0")[1:-2] for _ in range(count)]


@pytest.mark.parametrize("name", [b"ACKJOB", b"DELJOB", b"DEQUEUE"])
def test_many_jobs_are_done_a_slice_at_a_time(shop: Shop, name: bytes) -> None:
    ids = add(shop, MANY)
    tube = shop.engine.tube(QUEUE)
    assert shop.ask(name, *ids) == b""
    assert shop.long is not None
    left = [tube.count_in(s.READY)]
    while not shop.desk.step(shop.caller, shop.long, NOW):
        left.append(tube.count_in(s.READY))
    assert left[0] == MANY
    assert max(before - after for before, after in zip(left, [*left[1:], 0], strict=True)) <= SLICE
    assert shop.caller.reply.take() == b":%d\r\n" % MANY


@pytest.mark.parametrize("name", [b"NACK", b"ENQUEUE"])
def test_many_jobs_are_put_back_a_slice_at_a_time(shop: Shop, name: bytes) -> None:
    ids = add(shop, MANY)
    for _ in range(3):
        shop.ask(b"GETJOB", b"COUNT", b"%d" % SLICE, b"FROM", QUEUE)
    tube = shop.engine.tube(QUEUE)
    assert tube.count_in(s.TAKEN) == MANY
    shop.ask(name, *ids)
    assert shop.long is not None
    steps = 1
    while not shop.desk.step(shop.caller, shop.long, NOW):
        steps += 1
    assert steps >= 2 * MANY // SLICE
    assert shop.caller.reply.take() == b":%d\r\n" % MANY
    assert tube.count_in(s.READY) == MANY


def test_a_bad_id_behind_many_and_nothing_is_done(shop: Shop) -> None:
    ids = add(shop, MANY)
    shop.ask(b"ACKJOB", *ids, b"no id")
    assert shop.long is not None
    while not shop.desk.step(shop.caller, shop.long, NOW):
        pass
    assert shop.caller.reply.take().startswith(b"-BADID ")
    assert shop.engine.jobs.count == MANY


def test_as_many_as_a_slice_are_done_at_once(shop: Shop) -> None:
    assert shop.ask(b"ACKJOB", *add(shop, SLICE)) == b":%d\r\n" % SLICE
    assert shop.long is None


def test_count_is_an_upper_bound_and_no_take_gets_more_than_a_slice(shop: Shop) -> None:
    add(shop, SLICE + 1)
    assert shop.ask(b"GETJOB", b"COUNT", b"100000", b"FROM", QUEUE).startswith(b"*%d\r\n" % SLICE)
    assert shop.ask(b"GETJOB", b"COUNT", b"100000", b"FROM", QUEUE).startswith(b"*1\r\n")
