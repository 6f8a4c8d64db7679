"""The rig: one engine with one tube and one consumer, and the loop that puts, takes and acks.

All features of a policy (keys, priorities, ttl) are used. Every job gets a body of its own, because a shared body would
stay in the processor's cache, and freeing it would cost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, cycle, islice
from operator import attrgetter

from penstock.core import policy as p
from penstock.core.engine import Engine
from penstock.core.job import Draft, Job
from penstock.core.limits import PRIORITY_UNSET, UNSET
from penstock.core.outbox import Outbox
from penstock.core.waits import Connection

BODY_BYTES = 40
KEYS_COUNT = 1_000
PRIORITIES_COUNT = 256
START_MS = 1_700_000_000_000
TTL_MS = 86_400_000
# Jobs per simulated millisecond: the target speed of the engine.
JOBS_PER_MS = 256
# Number of random orders before they repeat. A prime, so that each job gets another order in the next round.
_ORDERS_COUNT = 8_191

# A slice of it is a new object; see `body`.
_SOURCE = bytes(BODY_BYTES + 1)

# Priority of a job, its key, and the key to take it by.
_Order = tuple[int, bytes | None, bytes | None]


def body() -> bytes:
    """Return a new body object."""
    return _SOURCE[1:]


class Rig:
    """One engine, one tube, one consumer."""

    def __init__(self, policy: p.TubePolicy, priorities: int = PRIORITIES_COUNT) -> None:
        self.now = START_MS
        self.outbox = Outbox()
        self.engine = Engine(1, self.now, self.outbox)
        self.tube = self.engine.create_tube(b"bench", policy, self.now)
        self._tokens = count(1)
        self.consumer = self.connect()
        self._ttl_ms = TTL_MS if policy.has_ttl else UNSET
        drawn = priorities if policy.order == p.BY_PRIORITY else 0
        self._orders: Iterator[_Order] = cycle(_draw_orders(drawn, policy.keys))
        # Clients name a job by the id of their protocol: the number in the tube, or the global id.
        self.number_of: Callable[[Job], int]
        self.find: Callable[[int, int], Job | None]
        if policy.ids == p.ID_INTEGER:
            self.number_of = attrgetter("local")
            self.find = partial(self.engine.find_local, self.tube)
        else:
            self.number_of = attrgetter("id")
            self.find = self.engine.find

    def connect(self) -> Connection:
        """Return the connection of a new client."""
        return self.engine.connect(next(self._tokens).to_bytes(16, "big"))

    def drafts(self, number: int) -> Iterator[Draft]:
        """Yield the drafts of the next jobs."""
        ttl_ms = self._ttl_ms
        for priority, key, _ in islice(self._orders, number):
            yield Draft(_SOURCE[1:], ttl_ms, UNSET, 0, priority, key)

    def fill(self, number: int) -> None:
        """Put the given number of jobs."""
        put = self.engine.put
        tube = self.tube
        for i, draft in enumerate(self.drafts(number)):
            put(tube, draft, self.now + i // JOBS_PER_MS)
        self.now += number // JOBS_PER_MS

    def cycles(self, turns: int, producers: int = 1) -> None:
        """Run turns: every producer puts a job, then the consumer takes each job, finds it by its id, and acks it."""
        before = self.tube.total()
        turns_per_ms = max(1, JOBS_PER_MS // producers)
        for done in range(0, turns, turns_per_ms):
            self._cycles(min(turns_per_ms, turns - done), producers)
            self.now += 1
        assert self.tube.total() == before, "not all jobs were taken and acked"

    def _cycles(self, turns: int, producers: int) -> None:
        put, take, ack = self.engine.put, self.engine.take, self.engine.ack
        find, number_of = self.find, self.number_of
        tube, session, now = self.tube, self.consumer.session, self.now
        orders, ttl_ms, source = self._orders, self._ttl_ms, _SOURCE
        # Iterating over a tuple has the least overhead for turns of one job, which most rows use.
        each = (None,) * producers
        for _ in range(turns):
            for _ in each:
                priority, key, taken_by = next(orders)
                put(tube, Draft(source[1:], ttl_ms, UNSET, 0, priority, key), now)
            for _ in each:
                job = take(session, tube, now, taken_by)
                assert job is not None
                found = find(number_of(job), now)
                assert found is not None
                ack(session, found, now)


@cache
def _draw_orders(priorities: int, keys: str) -> list[_Order]:
    """Return random priorities and keys, the same in every run."""
    dice = random.Random(1)
    orders: list[_Order] = []
    for _ in range(_ORDERS_COUNT):
        priority = dice.randrange(priorities) if priorities else PRIORITY_UNSET
        key = b"key-%d" % dice.randrange(KEYS_COUNT) if keys != p.KEYS_NONE else None
        orders.append((priority, key, key if keys == p.KEYS_NAMED else None))
    return orders
