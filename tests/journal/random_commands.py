"""Random commands for a logged engine, with every kind of change that a log has to represent."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from penstock.core import claims, stages
from penstock.core import policy as p
from penstock.core.commands import edits
from penstock.core.engine import Engine
from penstock.core.errors import CommandError
from penstock.core.job import Draft
from penstock.core.limits import UNSET
from penstock.core.tasks import attention, batch, follow_ups
from penstock.core.tube import Tube
from penstock.core.waits import Connection
from penstock.wire.headers import encode_headers

POLICIES = [
    p.FIFO,
    p.FIFOTTL,
    p.UTUBE,
    dataclasses.replace(p.UTUBETTL, key_limit=2, key_order=p.FAIR),
    p.STUBE,
    p.DISQUE,
    p.QUEUE15,
    dataclasses.replace(p.XQUEUE, after_ack=p.KEPT, row_format=3),
    dataclasses.replace(p.FIFOTTL, after_ack=p.LINGERS, zombie_ms=5_000),
    dataclasses.replace(p.FIFO, temporary=True),
    dataclasses.replace(p.UTUBE, key_stats=("key-1",), dedup_count=3),
]

Step = Callable[[int], None]


class Script:
    """Random but repeatable work on one engine."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.chance = random.Random(seed)
        self.connection: Connection = engine.connect(b"%016d" % seed)
        self.steps: list[Callable[[int], None]] = [
            self.put,
            self.put,
            self.put_many,
            self.take,
            self.take,
            self.ack,
            self.finish,
            self.anyone,
            self.claims,
            self.stages,
            self.tubes,
            self.tasks,
        ]

    def step(self, now: int) -> None:
        """Execute one command, which may be refused. The name and user of its session change from time to time."""
        session = self.connection.session
        if self.chance.random() < 0.1:
            session.set_client(b"worker-%d" % self.chance.randrange(3), self.chance.choice([b"", b"ann", b"ben"]))
        self.engine.outbox.actor = session
        try:
            self.chance.choice(self.steps)(now)
        except CommandError:
            pass
        self.engine.outbox.actor = None

    def tube(self, now: int) -> Tube:
        number = self.chance.randrange(len(POLICIES))
        return self.engine.create_tube(b"tube-%d" % number, POLICIES[number], now)

    def draft(self, tube: Tube) -> Draft:
        chance, policy = self.chance, tube.policy
        draft = Draft(chance.randbytes(chance.choice([0, 5, 60, 400])))
        if tube.keys is not None and chance.random() < 0.8:
            draft.key = b"key-%d" % chance.randrange(3)
        if policy.has_ttl and chance.random() < 0.5:
            draft.ttl_ms = chance.randrange(1_000, 60_000)
        if policy.has_delay and chance.random() < 0.3:
            draft.delay_ms = chance.randrange(1, 900)
        if tube.by_priority and chance.random() < 0.5:
            draft.priority = chance.randrange(-2, 3)
        draft.urgent = chance.random() < 0.1
        draft.once = policy.type == "disque" and chance.random() < 0.3
        if chance.random() < 0.2:
            draft.unique = b"unique-%d" % chance.randrange(3)
        if chance.random() < 0.2:
            draft.dedup = b"dedup-%d" % chance.randrange(5)
        if chance.random() < 0.1:
            draft.name = b"name-%d" % chance.randrange(5)
        if chance.random() < 0.2:
            draft.headers = encode_headers(
                [("trace", chance.randbytes(6)), ("type", b"text")][: chance.randrange(1, 3)]
            )
        return draft

    def put(self, now: int) -> None:
        tube = self.tube(now)
        self.engine.put(tube, self.draft(tube), now)

    def put_many(self, now: int) -> None:
        tube = self.tube(now)
        self.engine.put_many(tube, [self.draft(tube) for _ in range(self.chance.randrange(1, 4))], now)

    def take(self, now: int) -> None:
        tube = self.tube(now)
        key = b"key-%d" % self.chance.randrange(3) if tube.requires_key else None
        self.engine.take(self.connection.session, tube, now, key)

    def ack(self, now: int) -> None:
        held = self.connection.session.held
        if held:
            self.engine.ack(self.connection.session, self.chance.choice(held), now)

    def finish(self, now: int) -> None:
        engine, session = self.engine, self.connection.session
        if not session.held:
            return
        job = self.chance.choice(session.held)
        what = self.chance.randrange(6)
        if what == 0:
            engine.release(session, job, now, body=b"changed" if self.chance.random() < 0.5 else None)
        elif what == 1:
            engine.nack(session, job, now, b"failed")
        elif what == 2:
            engine.bury(session, job, now, b"buried")
        elif what == 3:
            engine.requeue(session, job, now)
        elif what == 4:
            engine.touch(session, job, now, 500)
        else:
            engine.done(session, job, b"result", 0, now)

    def anyone(self, now: int) -> None:
        jobs, _ = self.engine.scan(0, 1_000)
        if not jobs:
            return
        job = self.chance.choice(jobs)
        what = self.chance.randrange(8)
        if what == 0:
            self.engine.delete(job, now)
        elif what == 5:
            edits.set_priority(self.engine, job, now, self.chance.randrange(-2, 3))
        elif what == 6:
            edits.edit(self.engine, job, now, self.chance.randbytes(self.chance.choice([0, 60, 400])))
        elif what == 7:
            edits.end_delay(self.engine, job, now)
        elif what == 1:
            self.engine.dig(job, now)
        elif what == 2:
            self.engine.move(self.connection.session, job, self.tube(now), now)
        elif what == 3:
            self.engine.kick(self.engine.tube_of(job), 2, now)
        else:
            self.engine.ack(self.connection.session, job, now)

    def claims(self, now: int) -> None:
        if self.chance.random() < 0.5:
            newest = self.engine.consumers[b"reader"].newest if b"reader" in self.engine.consumers else 0
            claims.claim(self.engine, b"reader", 1, newest + 1, self.tube(now), 3, 10**9, now)
        elif b"reader" in self.engine.consumers:
            claims.ack_claims(self.engine, b"reader", 1, self.engine.consumers[b"reader"].newest, now)

    def stages(self, now: int) -> None:
        names = [b"stage-%d" % self.chance.randrange(1_000_000) for _ in range(2)]
        names = [*self.engine.stages.names()[-2:], *names][: self.chance.randrange(1, 3)]
        what = self.chance.randrange(6)
        if what == 0:
            stages.publish(self.engine, names, now)
        elif what == 1:
            stages.discard(self.engine, names, now)
        else:
            tube = self.tube(now)
            draft = self.draft(tube)
            draft.unique = draft.dedup = None
            expire_ms = self.chance.choice([UNSET, 50, 60_000])
            stages.stage_jobs(self.engine, names[0], tube, [draft, Draft(b"staged")], expire_ms, now)

    def tasks(self, now: int) -> None:
        engine, session = self.engine, self.connection.session
        if not session.held:
            return
        job = self.chance.choice(session.held)
        if self.chance.random() < 0.4:
            attention.cancel(engine, job, b"not needed", now)
            return
        if self.chance.random() < 0.4:
            self.batches(now)
            return
        tubes = [self.tube(now) for _ in range(self.chance.randrange(1, 3))]
        drafts = [self.draft(tube) for tube in tubes]
        settle = self.chance.choice([engine.ack, engine.nack, engine.bury])
        follow_ups.settle_then(engine, session, job, lambda: settle(session, job, now), tubes, drafts, now)

    def batches(self, now: int) -> None:
        """Create a batch, put a member, or seal it. Members end by the other steps."""
        name = b"batch-%d" % self.chance.randrange(3)
        what = self.chance.randrange(4)
        if what == 0:
            batch.create_batch(self.engine, name, [b"tube-0"] * 2, [Draft(b"callback")] * 2, 60_000, now)
        elif what == 1:
            batch.seal_batch(self.engine, name, now)
        else:
            self.engine.put_many(self.tube(now), [Draft(b"member", batch=name)] * what, now)

    def tubes(self, now: int) -> None:
        tube = self.tube(now)
        what = self.chance.randrange(4)
        if what == 0:
            self.engine.pause(tube, self.chance.random() < 0.2, self.chance.random() < 0.2, now)
        elif what == 1 and self.chance.random() < 0.2:
            self.engine.truncate(tube, now)
        elif what == 2 and self.chance.random() < 0.2:
            self.engine.drop(tube, now)
