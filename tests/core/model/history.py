"""A long random history of commands for the engine and the model. The same seed gives the same commands and result.

    python -m tests.core.model.history SEED STEPS [KIND]

plays one history and prints the digest of the engine at its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.testing import digest

from .full_pair import FullPair
from .history_job_commands import STATES, JobCommands
from .tube_kinds import KINDS

# No further jobs are put beyond this number, because the model examines every job at every step.
JOBS_MAX = 40


class History(JobCommands):
    """A random history. Commands with a greater weight are chosen more often."""

    def __init__(self, seed: int, kind: str = "many at once", swarm: bool = True) -> None:
        """With `swarm`, each seed leaves out some commands, so that common ones do not suppress rare combinations."""
        self.random = Random(seed)
        self.policies = KINDS[kind]
        self.pair = FullPair(self.policies, grace_ms=self.random.choice([0, 0, 15]))
        commands: list[tuple[int, Callable[[], object]]] = [
            *[(16, self.put), (4, self.put_many), (12, self.take), (4, self.take_many), (10, self.wait)],
            *[(2, self.cancel), (1, self.undelivered), (6, self.time), (6, self.next_deadline)],
            *[(8, self.ack), (4, self.release), (2, self.nack), (3, self.bury), (2, self.dig), (2, self.kick)],
            *[(3, self.touch), (2, self.delete), (4, self.any_job), (2, self.pause), (1, self.empty)],
            *[(2, self.connect), (2, self.disconnect), (2, self.identify)],
            *self.more(),
        ]
        kept = [pair for pair in commands if not swarm or self.random.random() < 0.8]
        self.commands = [command for _, command in kept] or [self.put]
        self.weights = [weight for weight, _ in kept] or [1]

    def play(self, steps: int, compare_every: int = 1) -> FullPair:
        for step in range(steps):
            if self.random.random() < 0.3:
                self.pair.pass_time(self.random.choice([1, 1, 2, 4]))
            self.random.choices(self.commands, self.weights)[0]()
            if step % compare_every == 0:
                self.pair.compare()
        self.pair.advance()
        self.pair.compare()
        return self.pair

    # Random choices

    def any(self) -> int:
        return self.random.randrange(1_000)

    def tube(self) -> int:
        return self.random.randrange(len(self.policies))

    def client(self) -> int:
        return self.pair.client(self.any())

    def holder(self, number: int) -> int:
        return self.client() if self.random.random() < 0.1 else self.pair.holder(number)

    def key(self, policy: p.TubePolicy) -> bytes | None:
        if policy.keys == p.KEYS_NONE:
            return None
        return self.random.choice([None, b"", b"a", b"a", b"b", b"c"])

    def draft(self, policy: p.TubePolicy) -> Draft:
        choose = self.random.choice
        draft = Draft(b"%d" % self.any(), key=self.key(policy))
        draft.ttl_ms = choose([UNSET, UNSET, UNSET, 60, 25, 8, 0, NEVER]) if policy.has_ttl else UNSET
        draft.ttr_ms = choose([UNSET, 20, 20, 8, 2, NEVER]) if policy.has_ttr else UNSET
        draft.delay_ms = choose([0, 0, 0, 1, 5, 12]) if policy.has_delay else 0
        if policy.order == p.BY_PRIORITY:
            draft.priority = choose([PRIORITY_UNSET, PRIORITY_UNSET, -1, 0, 7])
        draft.once = policy.owner == p.ANYONE and choose([False, False, True])
        self.add_options(draft, policy)
        return draft

    def on_return(self, number: int) -> tuple[int, int, int]:
        draft = self.draft(self.pair.policy_of(number))
        return draft.delay_ms, draft.ttl_ms, draft.priority

    # Commands

    def time(self) -> None:
        self.pair.pass_time(self.random.choice([1, 3, 10, 30, 30, 1_000]))
        self.pair.advance()

    def next_deadline(self) -> None:
        due = self.pair.model.next_due()
        if due != NEVER and due < self.pair.now + 10_000:
            self.pair.pass_time(max(0, due - self.pair.now + self.random.choice([-1, 0, 0, 0, 2])))
        self.pair.advance()

    def put(self) -> None:
        tube = self.tube()
        if len(self.pair.model.jobs) < JOBS_MAX:
            self.pair.put(tube, self.draft(self.policies[tube]))

    def put_many(self) -> None:
        tube = self.tube()
        if len(self.pair.model.jobs) < JOBS_MAX:
            count = self.random.randrange(5)
            self.pair.put_many(tube, [self.draft(self.policies[tube]) for _ in range(count)])

    def take(self) -> None:
        tube = self.tube()
        policy = self.policies[tube]
        key = self.key(policy) if self.random.random() < 0.4 else None
        ttr = self.random.choice([UNSET, UNSET, 3, 20]) if policy.has_ttr else UNSET
        self.pair.take(self.client(), tube, key, ttr)

    def take_many(self) -> None:
        tubes = [self.tube() for _ in range(self.random.randrange(1, 4))]
        self.pair.take_many(self.client(), tubes, self.random.choice([1, 2, 3, 5]))

    def wait(self) -> None:
        tubes = [self.tube() for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        policies = [self.policies[tube] for tube in tubes]
        keyed = all(policy.keys != p.KEYS_NONE for policy in policies) and self.random.random() < 0.5
        key = self.random.choice([b"", b"a", b"b"]) if keyed else None
        timeout = self.random.choice([NEVER, 40, 40, 15, 6, 1, 0])
        self.pair.wait(self.client(), tubes, timeout, self.random.choice([1, 1, 1, 2, 3]), key, UNSET)

    def cancel(self) -> None:
        if self.pair.waits:
            self.pair.cancel(self.any() % len(self.pair.waits))

    def undelivered(self) -> None:
        self.pair.undelivered(self.pair.job(self.any(), "taken"))

    def ack(self) -> None:
        number = self.pair.job(self.any(), "taken")
        self.pair.on_job(number, "ack", session=self.holder(number))

    def release(self) -> None:
        number = self.pair.job(self.any(), "taken")
        self.pair.on_job(number, "release", *self.on_return(number), session=self.holder(number))

    def nack(self) -> None:
        number = self.pair.job(self.any(), "taken")
        self.pair.on_job(number, "nack", self.random.choice([b"", b"why"]), session=self.holder(number))

    def bury(self) -> None:
        number = self.pair.job(self.any(), "taken", self.random.choice(["taken", "ready", "delayed", "buried"]))
        self.pair.on_job(number, "bury", b"why", session=self.holder(number))

    def dig(self) -> None:
        number = self.pair.job(self.any(), "buried")
        self.pair.on_job(number, "dig", *self.on_return(number))

    def kick(self) -> None:
        tube = self.tube()
        draft = self.draft(self.policies[tube])
        self.pair.kick(tube, self.random.choice([1, 2, 100]), draft.delay_ms, draft.ttl_ms)

    def touch(self) -> None:
        number = self.pair.job(self.any(), "taken")
        more = self.random.choice([UNSET, UNSET, 0, 5, 20])
        self.pair.on_job(number, "touch", more, session=self.holder(number))

    def delete(self) -> None:
        self.pair.on_job(self.pair.job(self.any(), *STATES), "delete")

    def any_job(self) -> None:
        """Run a command of any client on a job in any state, or on a job that does not exist."""
        number = self.pair.model.made - self.random.randrange(-2, 40)
        command = self.random.choice(["ack", "release", "nack", "bury", "touch", "dig"])
        if command == "dig":
            self.pair.on_job(number, command)
        else:
            self.pair.on_job(number, command, session=self.client())

    def pause(self) -> None:
        inward, outward = self.random.choice([(False, False)] * 3 + [(True, False), (False, True)])
        self.pair.pause(self.tube(), inward, outward)

    def empty(self) -> None:
        self.random.choice([self.pair.truncate, self.pair.drop])(self.tube())

    def connect(self) -> None:
        if len(self.pair.connections) < 6:
            self.pair.connect()

    def disconnect(self) -> None:
        if len(self.pair.connections) > 1:
            self.pair.disconnect(self.client())

    def identify(self) -> None:
        tokens = [*self.pair.model.sessions, b"never heard of"]
        self.pair.identify(self.client(), self.random.choice(tokens))


if __name__ == "__main__":
    played = History(int(sys.argv[1]), *sys.argv[3:], swarm=False).play(int(sys.argv[2]), compare_every=100)
    print(digest(played.engine))
