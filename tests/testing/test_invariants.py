"""The checker finds each inconsistency that a test creates, and names the invariant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from penstock.core import claims
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBE
from penstock.core.tube import Tube
from penstock.testing import check
from penstock.testing.invariants import is_behind
from tests.core.engine_harness import EngineHarness

KEYED = dataclasses.replace(FIFOTTL, keys=p.KEYS_LIMITED, key_stats=("a",), unique_bodies=True)


def busy_desk() -> tuple[EngineHarness, Tube]:
    """Return a desk with jobs in every state, keys, labels, waits, claims and a session in its grace time."""
    desk = EngineHarness()
    desk.engine.session_grace_ms = 5_000
    tube = desk.tube(KEYED)
    for key in (b"a", b"a", b"a", b"b", b"c", b"d", b"e", b"f"):
        desk.put(tube, key=key, ttl_ms=60_000, ttr_ms=900)
    desk.put(tube, key=b"g", delay_ms=700, name=b"name", unique=b"value")
    desk.take(tube)
    leaving = desk.connect()
    desk.take(tube, by=leaving)
    desk.engine.disconnect(leaving, desk.clock.ms)
    buried = [desk.put(tube, key=b"buried", priority=n) for n in (2, 1, 3)]
    for job in buried:
        desk.do("bury", job, b"why")
    plain, disque = desk.tube(FIFO, b"plain"), desk.tube(DISQUE, b"disque")
    desk.puts(plain, 2)
    claims.claim(desk.engine, b"reader", 1, 1, plain, 2, 10_000, desk.clock.ms)
    spent = desk.put(disque, once=True)
    desk.take(disque)
    desk.do("bury", spent)
    waiting_on = desk.tube(UTUBE, b"waiting")
    desk.wait(waiting_on, timeout_ms=800)
    desk.wait(waiting_on, key=b"z")
    desk.wait(waiting_on, plain, count=2)
    check(desk.engine)
    return desk, tube


def ready(tube: Tube, at: int = 0) -> object:
    return tube.first_jobs(s.READY, at + 1)[at]


def plain(desk: EngineHarness) -> Tube:
    """Return a tube without keys that has a ready job."""
    tube = desk.tube(FIFO, b"ready")
    desk.put(tube)
    return tube


def set_on(thing: object, name: str, value: object) -> None:
    setattr(thing, name, value)


def swap(items: list[object], a: int, b: int) -> None:
    items[a], items[b] = items[b], items[a]


def take_another(desk: EngineHarness, tube: Tube) -> None:
    """Make a second job of key a look taken, in every index except the limit."""
    keys = tube.keys
    assert keys is not None
    keys.limit = 2
    job = keys.find(b"a").first
    job.holder = tube.taken.items[0].holder
    came_from = job.state
    rule = s.move(job, s.TOOK)
    tube.counts[rule] += 1
    tube.key_stats[b"a"].states[came_from] -= 1
    tube.key_stats[b"a"].states[s.TAKEN] += 1
    tube.ready_bodies.remove(job.body, job)
    tube.remove_from(job, came_from)
    tube.place(job)
    keys.limit = 1


def wait_beside_a_job(desk: EngineHarness, tube: Tube) -> None:
    desk.engine.pause(tube, False, True, desk.clock.ms)
    desk.engine.wait(desk.me, [tube], desk.clock.ms)
    tube.paused_out = False


def bury_as_spent(desk: EngineHarness, tube: Tube) -> None:
    tube.buried.items[0].once = True
    tube.buried.items[0].deliveries = 1


Damage = Callable[[EngineHarness, Tube], object]
DAMAGES: list[tuple[str, str, Damage]] = [
    ("E1", "a put that was not counted", lambda desk, tube: set_on(tube, "counts", [0, *tube.counts[1:]])),
    ("E1", "a key that counted wrongly", lambda desk, tube: tube.key_stats[b"a"].states.__setitem__(s.READY, 9)),
    ("E1", "a job lost from its container", lambda desk, tube: tube.delayed.items.pop()),
    ("E2", "a job of a tube that is not there", lambda desk, tube: set_on(ready(tube), "tube", 7)),
    ("E2", "a wrong count of the table", lambda desk, tube: set_on(desk.engine.jobs, "count", 3)),
    ("E2", "body bytes that are not there", lambda desk, tube: set_on(tube, "body_bytes", 1)),
    ("E2", "a place in the wrong container", lambda desk, tube: set_on(tube.taken.items[0], "pos", 5)),
    ("E2", "buried jobs out of order", lambda desk, tube: set_on(tube.buried.items[-1], "priority", -9)),
    ("E2", "a spent job that can be kicked", bury_as_spent),
    ("E2", "a name nobody has", lambda desk, tube: tube.names.__setitem__(b"x", ready(tube))),
    ("E2", "a unique value that was forgotten", lambda desk, tube: tube.uniques.clear()),
    (
        "E2",
        "a body nobody has",
        lambda desk, tube: tube.ready_bodies.single.clear() or tube.ready_bodies.several.clear(),
    ),
    ("E2", "integers not reserved", lambda desk, tube: set_on(tube, "reserved", 0)),
    ("E2", "a key that counts too many jobs", lambda desk, tube: set_on(tube.keys.find(b"b"), "jobs", 2)),
    ("E2", "a key that counts too many taken", lambda desk, tube: set_on(tube.keys.find(b"c"), "taken", 1)),
    ("E2", "open keys out of order", lambda desk, tube: swap(tube.keys._open, 0, 1)),
    ("E2", "an open key that is missing", lambda desk, tube: tube.keys._open.pop()),
    ("E2", "a leaked slot of a key", lambda desk, tube: tube.keys.slots.append(None)),
    ("E2", "deadlines out of order", lambda desk, tube: swap(desk.engine.deadlines.items, 0, 1)),
    ("E2", "a next deadline that is not next", lambda desk, tube: set_on(desk.engine.deadlines, "next_due", 5)),
    ("E2", "a free slot that is taken", lambda desk, tube: desk.engine.tube_slots_free.append(0)),
    ("E2", "a session nobody can find", lambda desk, tube: desk.engine.sessions.clear()),
    ("E2", "a line miscounted", lambda desk, tube: set_on(desk.engine.tubes[b"waiting"].take_line, "length", 7)),
    ("E2", "a wait its connection forgot", lambda desk, tube: desk.me.waits.clear()),
    ("E2", "an ended wait in line", lambda desk, tube: set_on(next(iter(desk.me.waits.values())), "outcome", 1)),
    ("E3", "two taken of one key", take_another),
    ("E5", "a ttl that lies", lambda desk, tube: set_on(ready(tube), "expiry", desk.clock.ms + 1)),
    ("E5", "a ttr that lies", lambda desk, tube: set_on(tube.taken.items[0], "wake", desk.clock.ms + 1)),
    ("E5", "a deadline nobody has", lambda desk, tube: set_on(tube.delayed.items[0], "wake", desk.clock.ms + 9)),
    ("E7", "a ready job that waits", lambda desk, tube: set_on(ready(tube), "wake", desk.clock.ms + 1)),
    ("E8", "a holder that is gone", lambda desk, tube: set_on(tube.taken.items[0], "holder", 99)),
    ("E8", "a held job that is not taken", lambda desk, tube: set_on(ready(tube), "holder", 0)),
    ("E8", "a session that holds too little", lambda desk, tube: desk.me.session.held.pop()),
    ("E8", "a session without grace", lambda desk, tube: desk.me.session.connections.clear()),
    ("E8", "a claim that lost a job", lambda desk, tube: desk.engine.consumers[b"reader"].claims[1].jobs.pop()),
    ("E9", "a tube left to be looked at", lambda desk, tube: desk.engine.woken_tubes.append(tube)),
    ("E9", "a job and who waits for it", wait_beside_a_job),
    ("E11", "a state from the future", lambda desk, tube: set_on(ready(tube), "since", desk.clock.ms + 1)),
    ("E11", "a ready time that was not counted", lambda desk, tube: plain(desk).ready_times.remove(1_000_000)),
    ("E11", "a ready time of no job", lambda desk, tube: plain(desk).ready_times.add(1_000_001)),
    (
        "E11",
        "a key that is older than its first job",
        lambda desk, tube: tube.keys._by_age.set(tube.keys.find(b"b"), 9),
    ),
]


@pytest.mark.parametrize(("invariant", "what", "damage"), DAMAGES, ids=[what for _, what, _ in DAMAGES])
def test_an_inconsistency_is_found_and_named(invariant: str, what: str, damage: Damage) -> None:
    desk, tube = busy_desk()
    damage(desk, tube)
    with pytest.raises(AssertionError, match=rf"^{invariant}:"):
        check(desk.engine)


def test_waits_are_not_checked_while_an_engine_is_behind() -> None:
    desk = EngineHarness()
    tube = desk.tube(FIFOTTL)
    desk.put(tube, delay_ms=10)
    desk.wait(tube)
    desk.engine.now = desk.clock.ms + 10
    assert is_behind(desk.engine)
    check(desk.engine)
    desk.pass_ms(10)
    assert not is_behind(desk.engine)
