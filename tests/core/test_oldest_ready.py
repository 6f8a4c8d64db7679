"""The age of the oldest ready job counts from when the job became ready, for every order and all ways to get ready."""

from __future__ import annotations

import dataclasses

from penstock.core import policy as p
from penstock.core.limits import NEVER
from penstock.core.tube import Tube
from tests.core.engine_harness import EngineHarness


def age(desk: EngineHarness, tube: Tube) -> int | None:
    oldest = tube.oldest_ready()
    return None if oldest == NEVER else desk.clock.ms - oldest


def test_it_counts_from_the_put_and_not_for_the_next_job_but_for_the_oldest() -> None:
    desk = EngineHarness()
    tube = desk.tube(p.FIFOTTL)
    assert age(desk, tube) is None
    desk.put(tube, priority=5)
    desk.pass_ms(10)
    desk.put(tube, priority=1)
    desk.pass_ms(10)
    assert age(desk, tube) == 20
    desk.take(tube)  # The second job is more urgent.
    assert age(desk, tube) == 20
    desk.take(tube)
    assert age(desk, tube) is None


def test_a_delay_and_a_delivery_do_not_count() -> None:
    desk = EngineHarness()
    tube = desk.tube(p.FIFOTTL)
    job = desk.put(tube, delay_ms=100)
    desk.pass_ms(99)
    assert age(desk, tube) is None
    desk.pass_ms(1)
    assert age(desk, tube) == 0
    desk.pass_ms(7)
    assert age(desk, tube) == 7
    desk.take(tube)
    desk.pass_ms(50)
    desk.do("release", job)
    assert age(desk, tube) == 0
    desk.pass_ms(3)
    desk.do("bury", desk.take(tube))
    assert age(desk, tube) is None
    desk.engine.kick(tube, 1, desk.clock.ms)
    assert age(desk, tube) == 0


def test_a_touch_and_a_pause_do_not_change_it() -> None:
    desk = EngineHarness()
    tube = desk.tube(p.FIFOTTL)
    desk.put(tube)
    taken = desk.take(tube)
    desk.put(tube)
    desk.pass_ms(10)
    desk.engine.pause(tube, True, True, desk.clock.ms)
    desk.do("touch", taken)
    desk.pass_ms(10)
    assert age(desk, tube) == 20
    assert desk.job(taken).since == desk.clock.ms - 20


def test_with_keys_it_is_the_oldest_first_job_of_a_key_below_its_limit() -> None:
    desk = EngineHarness()
    tube = desk.tube(p.UTUBE)
    first = desk.put(tube, key=b"a")
    desk.pass_ms(10)
    desk.put(tube, key=b"a")
    desk.pass_ms(10)
    desk.put(tube, key=b"b")
    desk.pass_ms(10)
    assert age(desk, tube) == 30
    desk.take(tube)
    # The second job of a has to wait, because the first one is taken.
    assert age(desk, tube) == 10
    desk.do("ack", first)
    assert age(desk, tube) == 20


def test_with_a_limit_above_one_the_next_job_of_the_key_counts() -> None:
    for order in (p.STRICT, p.FAIR):
        desk = EngineHarness()
        tube = desk.tube(dataclasses.replace(p.UTUBETTL, key_limit=3, key_order=order))
        for priority in (1, 2, 3):
            desk.put(tube, key=b"a", priority=priority)
            desk.pass_ms(10)
        assert age(desk, tube) == 30
        desk.take(tube)
        assert age(desk, tube) == 20
        urgent = desk.put(tube, key=b"a", priority=0)
        desk.pass_ms(1)
        # Only the first job of a key can be taken next.
        assert age(desk, tube) == 1
        desk.do("delete", urgent)
        assert age(desk, tube) == 21
