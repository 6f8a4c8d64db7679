"""Further commands for random histories: see history.py."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import JOB_TTL, NEVER, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry

from .full_pair import FullPair
from .model_parts import ModelVerdict

STATES = ["ready", "taken", "delayed", "buried", "done", "zombie"]
RETRIES = [
    "1x then bury",
    "2x const(4ms) then drop",
    "2x then move tube 0",
    "const(2ms)",
    "3x then move tube of the dead",
]
CONSUMERS = [b"reader", b"reader", b"another"]

# Waiting puts need different amounts of room: when a larger one ends, a smaller one behind it may fit.
WAITING_BODIES = [b"", b"ab", b"abcdef"]

# Changes of a tube's policy. Those that do not fit the tube are left out.
CHANGES: list[dict[str, object]] = [
    {"capacity": 0, "capacity_bytes": 0},
    {"capacity": 4},
    {"capacity": 8},
    {"capacity_bytes": 9},
    {"capacity_bytes": 30},
    {"key_limit": 1},
    {"key_limit": 2},
    {"key_limit": 5},
    {"key_order": p.FAIR},
    {"key_order": p.STRICT},
    {"ttl_while_taken": p.KILLS},
    {"ttl_while_taken": p.WAITS},
    {"retry": ""},
    {"retry": "2x const(3ms) then bury"},
    {"zombie_ms": 3},
    {"owner": p.ANYONE},
    {"owner": p.SESSION},
]


class JobCommands:
    """Further commands of History."""

    random: Random
    pair: FullPair
    policies: list[TubePolicy]
    any: Callable[[], int]
    tube: Callable[[], int]
    client: Callable[[], int]
    holder: Callable[[int], int]
    draft: Callable[[TubePolicy], Draft]

    def more(self) -> list[tuple[int, Callable[[], object]]]:
        return [
            *[(5, self.wait_put), (4, self.wait_end), (2, self.requeue), (3, self.done), (2, self.ack_with_more)],
            *[(2, self.snatch), (3, self.restart), (3, self.switch), (4, self.move), (1, self.release_all)],
            *[(2, self.set_priority), (3, self.edit), (1, self.end_delay)],
            *[(3, self.alter), (8, self.claim), (2, self.read_claim), (3, self.ack_claims), (2, self.renew_claims)],
            *[(1, self.release_claims), (3, self.delete_claimed), (6, self.judge)],
        ]

    def add_options(self, draft: Draft, policy: TubePolicy) -> None:
        """Add random options to a draft: urgent, unique, dedup, name, retry, same body."""
        roll = self.random.randrange(20)
        draft.urgent = roll in (0, 1)
        draft.unique = self.random.choice([b"u", b"v"]) if roll in (2, 3) else None
        draft.dedup = self.random.choice([b"1", b"2", b"3", b"4"]) if roll in (3, 4, 5) else None
        draft.name = self.random.choice([b"n", b"m"]) if roll in (5, 6) else None
        if roll in (7, 8, 9):
            draft.retry = parse_retry(self.random.choice(RETRIES))
        if policy.unique_bodies and roll >= 10:
            draft.body = self.random.choice([b"same", b"same", b"other"])
            draft.same_body = self.random.random() < 0.6

    def delay(self, tube: int) -> int:
        return self.random.choice([0, 0, 2, 7]) if self.policies[tube].has_delay else 0

    def delay_of(self, number: int) -> int:
        return self.random.choice([0, 0, 3, 9]) if self.pair.policy_of(number).has_delay else 0

    def wait_put(self) -> None:
        tube = self.tube()
        if len(self.pair.waits) < 30:
            timeout = self.random.choice([NEVER, 40, 15, 6, 1, 0])
            draft = self.draft(self.policies[tube])
            draft.body = self.random.choice(WAITING_BODIES)
            self.pair.wait_put(self.client(), tube, draft, timeout)

    def wait_end(self) -> None:
        number = self.pair.job(self.any(), *STATES)
        timeout = self.random.choice([NEVER, NEVER, 15, 0])
        self.pair.wait_end(self.client(), number, timeout, self.random.random() < 0.5, self.tube())

    def requeue(self) -> None:
        number = self.pair.job(self.any(), "taken")
        self.pair.on_job(number, "requeue", session=self.holder(number))

    def done(self) -> None:
        number = self.pair.job(self.any(), "taken")
        ttl = self.random.choice([UNSET, JOB_TTL, NEVER, 25])
        self.pair.done(number, self.holder(number), self.random.choice([b"", b"result"]), ttl)

    def ack_with_more(self) -> None:
        number = self.pair.job(self.any(), "taken")
        body = self.random.choice([None, b"the result"])
        self.pair.on_job(number, "ack", self.random.choice([UNSET, 0, 5, 30]), body, session=self.holder(number))

    def snatch(self) -> None:
        number = self.pair.job(self.any(), "taken")
        self.pair.on_job(number, "snatch", self.delay_of(number))

    def restart(self) -> None:
        number = self.pair.job(self.any(), self.random.choice(STATES), "done", "zombie", "delayed")
        self.pair.on_job(number, "restart", self.delay_of(number))

    def set_priority(self) -> None:
        number = self.pair.job(self.any(), *STATES[:4], "ready")
        self.pair.on_job(number, "set_priority", self.random.choice([0, 1, -1, 5]))

    def edit(self) -> None:
        number = self.pair.job(self.any(), *STATES[:4], "ready", "delayed")
        self.pair.on_job(number, "edit", self.random.choice([*WAITING_BODIES, b"same", b"other"]))

    def end_delay(self) -> None:
        self.pair.on_job(self.pair.job(self.any(), "delayed", "delayed", "ready"), "end_delay")

    def switch(self) -> None:
        state = self.random.choice(STATES)
        timed = state in ("delayed", "zombie") and self.random.random() < 0.95
        number = self.pair.job(self.any(), *STATES)
        self.pair.switch(number, state, self.random.choice([1, 4, 20]) if timed else 0)

    def move(self) -> None:
        number, target = self.pair.job(self.any(), *STATES), self.tube()
        self.pair.move(number, self.holder(number), target, self.delay(target))

    def release_all(self) -> None:
        self.pair.release_all(self.tube())

    def alter(self) -> None:
        tube = self.tube()
        of_keys = self.policies[tube].keys != p.KEYS_NONE and self.random.random() < 0.5
        changes = self.random.choice([x for x in CHANGES if "key_limit" in x] if of_keys else CHANGES)
        if self.pair.fits(tube, **changes):
            self.pair.alter(tube, **changes)

    # Claims

    def reader(self) -> tuple[bytes, int]:
        """Return a consumer and its token, sometimes a greater or smaller token."""
        name = self.random.choice(CONSUMERS)
        return name, self.pair.token(name) + self.random.choice([0, 0, 0, 0, 0, 0, 1, -1])

    def claim(self) -> None:
        name, token = self.reader()
        number = self.pair.next_claim(name) - self.random.choice([0, 0, 0, 0, 1, 1, 2, -1])
        lease, count = self.random.choice([200, 40, 12, 4, 0]), self.random.choice([1, 2, 3, 10])
        self.pair.claim(name, token, number, self.tube(), count, lease)

    def read_claim(self) -> None:
        name, _ = self.reader()
        self.pair.on_claims("read_claim", name, self.pair.next_claim(name) - self.random.choice([1, 1, 2, 3]))

    def ack_claims(self) -> None:
        name, token = self.reader()
        self.pair.on_claims("ack_claims", name, token, self.pair.next_claim(name) - self.random.choice([1, 1, 2, 0]))

    def renew_claims(self) -> None:
        self.pair.on_claims("renew_claims", *self.reader(), self.random.choice([20, 6, -1]))

    def release_claims(self) -> None:
        self.pair.on_claims("release_claims", *self.reader())

    def judge(self) -> None:
        """Give a verdict on one or two jobs of a claim, sometimes with the number of another claim."""
        name, token = self.reader()
        consumer = self.pair.model.consumers.get(name)
        if consumer is None or not consumer.claims:
            return
        number = self.random.choice([*consumer.claims, consumer.newest])
        claim = self.random.choice(list(consumer.claims.values()))
        verdicts = [
            *(None, ModelVerdict("nack", b"why"), ModelVerdict("nack", delay_ms=7), ModelVerdict("bury", b"bad")),
            *(ModelVerdict("move", b"odd", tube=name) for name in self.pair.names),
            ModelVerdict("move", delay_ms=7, tube=self.random.choice(self.pair.names)),
        ]
        self.pair.judge(name, token, number, [(job.number, self.random.choice(verdicts)) for job in claim.jobs[:2]])

    def delete_claimed(self) -> None:
        claimed = [job.number for job in self.pair.model.jobs if job.claim]
        if claimed:
            self.pair.on_job(self.random.choice(claimed), "delete")
