"""Disque's commands on tubes of every type: the policy of the tube decides."""

from __future__ import annotations

import dataclasses

from penstock.core.job import Draft
from penstock.core.policy import DISQUE, FIFOTTL
from penstock.core.states import BURIED

from .command_engine import NOW, CommandEngine, decoded

TOO_LATE = b"-ERR The specified DELAY is greater than TTL. Job refused since would never be delivered\r\n"
DAY = 86_400


def test_a_delay_must_be_shorter_than_the_default_ttl_of_the_queue(shop: CommandEngine) -> None:
    for name, days in ((b"long", 7), (b"short", 1 / 24)):
        shop.engine.create_tube(name, dataclasses.replace(DISQUE, default_ttl_ms=int(days * DAY * 1_000)), NOW)
    delays = {b"long": (6 * DAY, 7 * DAY), b"short": (DAY // 24 - 1, DAY // 24), b"new": (DAY - 1, DAY)}
    for name, (good, bad) in delays.items():
        assert shop.ask(b"ADDJOB", name, b"", b"0", b"DELAY", b"%d" % bad) == TOO_LATE
        assert shop.ask(b"ADDJOB", name, b"", b"0", b"DELAY", b"%d" % good).startswith(b"+D-")
        assert shop.ask(b"ADDJOB", name, b"", b"0", b"DELAY", b"%d" % bad, b"TTL", b"%d" % (bad + 1)).startswith(b"+D-")


def test_a_released_job_without_a_ttl_is_shown_without_a_next_event(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"queue", FIFOTTL, NOW)
    job = shop.engine.put(tube, Draft(b"", ttr_ms=60_000), NOW)
    session = shop.caller.connection.session
    shop.engine.take(session, tube, NOW)
    shop.engine.release(session, job, NOW)
    shop.disque.show(shop.caller, [b"SHOW", shop.context.id_of(job)], NOW)
    told = decoded(shop.caller.reply.take().replace(b"$-1\r\n", b"_\r\n"))
    assert dict(zip(told[::2], told[1::2], strict=True))[b"next-awake-within"] is None


def test_a_nack_that_is_refused_is_not_counted(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    job = shop.engine.put(tube, Draft(b""), NOW)
    shop.engine.switch(job, BURIED, NOW)
    shop.engine.moves_left = 0
    assert shop.ask(b"NACK", shop.context.id_of(job)).startswith(b"-NOSPACE ")
    assert job.nacks == 0
    shop.engine.moves_left = 1
    assert shop.ask(b"NACK", shop.context.id_of(job)) == b":1\r\n"
    assert job.nacks == 1
