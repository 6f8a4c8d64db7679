"""Further commands as rules of the machine: see test_machine.py."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import DURATION_MS_MAX, JOB_TTL, NAME_BYTES_MAX, NEVER, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry

from .full_pair import FullPair
from .history_job_commands import CHANGES, CONSUMERS, RETRIES, STATES, WAITING_BODIES

INDEX = st.integers(0, 7)
STEP = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 5])
DELAY = st.sampled_from([0, 0, 0, 1, 3, 8])
TIMEOUT = st.sampled_from([NEVER, NEVER, 7, 2, 0])
KEY = st.sampled_from([None, b"a", b"a", b"b"])
LEASE = st.sampled_from([30, 9, 3, 0])
# A consumer, and the difference of its token to the newest one.
READER = st.sampled_from([(name, more) for name in CONSUMERS for more in (0, 0, 0, 0, 1, -1)])


class JobRules(RuleBasedStateMachine):
    """Rules for the less common commands. The subclass creates the pair."""

    pair: FullPair
    policies: list[TubePolicy]

    def tube(self, n: int) -> int:
        return n % len(self.policies)

    def any_job(self, n: int, *states: str) -> int:
        return self.pair.job(n, *(states or STATES))

    def holder_of(self, number: int, c: int) -> int:
        return self.pair.client(c) if c == 3 else self.pair.holder(number)

    def some_draft(self, t: int, body: bytes, key: bytes | None, delay: int) -> Draft:
        policy = self.policies[t]
        draft = Draft(body, key=key if policy.keys != p.KEYS_NONE else None)
        draft.delay_ms = delay if policy.has_delay else 0
        return draft

    # Putting

    @rule(t=INDEX, step=STEP, key=KEY, retry=st.sampled_from(RETRIES), urgent=st.booleans())
    def put_what_may_fail(self, t: int, step: int, key: bytes | None, retry: str, urgent: bool) -> None:
        self.pair.pass_time(step)
        draft = self.some_draft(self.tube(t), b"may fail", key, 0)
        draft.retry = parse_retry(retry)
        draft.urgent = urgent
        if self.policies[self.tube(t)].has_ttr:
            draft.ttr_ms = 4
        self.pair.put(self.tube(t), draft)

    @rule(t=INDEX, key=KEY, delay=DELAY)
    def put_urgent(self, t: int, key: bytes | None, delay: int) -> None:
        draft = self.some_draft(self.tube(t), b"urgent", key, delay)
        draft.urgent = True
        self.pair.put(self.tube(t), draft)

    @rule(
        t=INDEX,
        step=STEP,
        delay=DELAY,
        label=st.sampled_from([b"1", b"1", b"2", b"3"]),
        how=st.lists(st.sampled_from(["unique", "dedup", "name"]), min_size=1, max_size=2),
        twice=st.booleans(),
    )
    def put_what_may_be_there(self, t: int, step: int, delay: int, label: bytes, how: list[str], twice: bool) -> None:
        self.pair.pass_time(step)
        draft = self.some_draft(self.tube(t), b"alike", None, delay)
        for name in how:
            setattr(draft, name, label)
        if twice:
            self.pair.put_many(self.tube(t), [draft, self.some_draft(self.tube(t), b"new", None, 0), draft])
        else:
            self.pair.put(self.tube(t), draft)

    @precondition(lambda self: any(policy.unique_bodies for policy in self.policies))
    @rule(t=INDEX, step=STEP, delay=DELAY, body=st.sampled_from([b"a", b"a", b"b"]), ask=st.booleans())
    def put_the_same_body(self, t: int, step: int, delay: int, body: bytes, ask: bool) -> None:
        self.pair.pass_time(step)
        draft = self.some_draft(self.tube(t), body, None, delay)
        draft.same_body = ask
        self.pair.put(self.tube(t), draft)

    @rule(t=INDEX, what=st.sampled_from(["name", "unique", "dedup"]), length=st.sampled_from([0, NAME_BYTES_MAX + 1]))
    def put_with_a_bad_label(self, t: int, what: str, length: int) -> None:
        draft = Draft(b"bad")
        setattr(draft, what, b"n" * length)
        self.pair.put(self.tube(t), draft)

    @rule(
        t=INDEX,
        c=INDEX,
        step=STEP,
        key=KEY,
        delay=DELAY,
        timeout=TIMEOUT,
        body=st.sampled_from(WAITING_BODIES),
        label=st.sampled_from([None, None, None, b"1"]),
        how=st.sampled_from(["unique", "dedup", "name"]),
    )
    def wait_put(
        self,
        t: int,
        c: int,
        step: int,
        key: bytes | None,
        delay: int,
        timeout: int,
        body: bytes,
        label: bytes | None,
        how: str,
    ) -> None:
        self.pair.pass_time(step)
        draft = self.some_draft(self.tube(t), body, key, delay)
        setattr(draft, how, label)
        self.pair.wait_put(self.pair.client(c), self.tube(t), draft, timeout)

    # Jobs

    @rule(n=INDEX, c=INDEX, timeout=TIMEOUT, failures=st.booleans(), t=INDEX)
    def wait_end(self, n: int, c: int, timeout: int, failures: bool, t: int) -> None:
        self.pair.wait_end(self.pair.client(c), self.any_job(n), timeout, failures, self.tube(t))

    @rule(n=INDEX, c=INDEX, step=STEP)
    def requeue(self, n: int, c: int, step: int) -> None:
        self.pair.pass_time(step)
        number = self.any_job(n, "taken")
        self.pair.on_job(number, "requeue", session=self.holder_of(number, c))

    @rule(
        n=INDEX,
        c=INDEX,
        step=STEP,
        length=st.sampled_from([0, 3, 9, 101]),
        ttl=st.sampled_from([UNSET, JOB_TTL, NEVER, 0, 20, -3]),
    )
    def done(self, n: int, c: int, step: int, length: int, ttl: int) -> None:
        self.pair.pass_time(step)
        number = self.any_job(n, "taken")
        self.pair.done(number, self.holder_of(number, c), b"d" * length, ttl)

    @rule(n=INDEX, c=INDEX, delay=st.sampled_from([UNSET, 0, 4, 20, -2]), body=st.sampled_from([None, b"", b"acked"]))
    def ack_with_more(self, n: int, c: int, delay: int, body: bytes | None) -> None:
        number = self.any_job(n, "taken")
        self.pair.on_job(number, "ack", delay, body, session=self.holder_of(number, c))

    @rule(
        n=INDEX, step=STEP, delay=DELAY, command=st.sampled_from(["restart", "snatch"]), state=st.sampled_from(STATES)
    )
    def restart_or_snatch(self, n: int, step: int, delay: int, command: str, state: str) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.any_job(n, state), command, delay)

    @rule(n=INDEX, step=STEP, priority=st.sampled_from([0, 1, -1]), state=st.sampled_from(STATES))
    def set_priority(self, n: int, step: int, priority: int, state: str) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.any_job(n, state), "set_priority", priority)

    @rule(n=INDEX, step=STEP, body=st.sampled_from([*WAITING_BODIES, b"same"]), state=st.sampled_from(STATES))
    def edit(self, n: int, step: int, body: bytes, state: str) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.any_job(n, state), "edit", body)

    @rule(n=INDEX, step=STEP, state=st.sampled_from(["delayed", "delayed", "ready", "done"]))
    def end_delay(self, n: int, step: int, state: str) -> None:
        self.pair.pass_time(step)
        self.pair.on_job(self.any_job(n, state), "end_delay")

    @rule(
        n=INDEX, step=STEP, state=st.sampled_from([*STATES, "gone"]), delay=DELAY, right=st.sampled_from([1, 1, 1, 0])
    )
    def switch(self, n: int, step: int, state: str, delay: int, right: int) -> None:
        self.pair.pass_time(step)
        if right:
            delay = max(delay, 1) if state in ("delayed", "zombie") else 0
        self.pair.switch(self.any_job(n), state, delay)

    @rule(n=INDEX, c=INDEX, t=INDEX, step=STEP, delay=DELAY)
    def move(self, n: int, c: int, t: int, step: int, delay: int) -> None:
        self.pair.pass_time(step)
        number = self.any_job(n)
        self.pair.move(number, self.holder_of(number, c), self.tube(t), delay)

    @rule(
        t=INDEX,
        what=st.sampled_from(["release all", "kick", "kick", "kick"]),
        delay=DELAY,
        ttl=st.sampled_from([UNSET, 5]),
    )
    def tube_jobs(self, t: int, what: str, delay: int, ttl: int) -> None:
        if what == "kick":
            self.pair.kick(self.tube(t), 2, delay, ttl)
        else:
            self.pair.release_all(self.tube(t))

    @rule(t=INDEX, step=STEP, changes=st.sampled_from(CHANGES))
    def alter(self, t: int, step: int, changes: dict[str, object]) -> None:
        self.pair.pass_time(step)
        if self.pair.fits(self.tube(t), **changes):
            self.pair.alter(self.tube(t), **changes)

    # Claims

    @rule(
        t=INDEX,
        step=STEP,
        reader=READER,
        back=st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1]),
        count=st.sampled_from([1, 2, 3, 100_001]),
        lease=LEASE,
    )
    def claim(self, t: int, step: int, reader: tuple[bytes, int], back: int, count: int, lease: int) -> None:
        self.pair.pass_time(step)
        name, more = reader
        number = self.pair.next_claim(name) - back
        self.pair.claim(name, self.pair.token(name) + more, number, self.tube(t), count, lease)

    @precondition(lambda self: self.pair.model.consumers)
    @rule(
        step=STEP,
        reader=READER,
        back=st.sampled_from([1, 1, 1, 2, 3, 0]),
        lease=st.sampled_from([20, 6, DURATION_MS_MAX + 1]),
        what=st.sampled_from(["read", "renew", "ack", "ack", "ack", "release"]),
    )
    def on_claims(self, step: int, reader: tuple[bytes, int], back: int, lease: int, what: str) -> None:
        self.pair.pass_time(step)
        name, token = reader[0], self.pair.token(reader[0]) + reader[1]
        number = self.pair.next_claim(name) - back
        if what == "read":
            self.pair.on_claims("read_claim", name, number)
        elif what == "renew":
            self.pair.on_claims("renew_claims", name, token, lease)
        elif what == "ack":
            self.pair.on_claims("ack_claims", name, token, number)
        else:
            self.pair.on_claims("release_claims", name, token)

    @precondition(lambda self: any(job.claim for job in self.pair.model.jobs))
    @rule(n=INDEX, c=INDEX, command=st.sampled_from(["delete", "delete", "ack", "release", "bury", "snatch", "nack"]))
    def any_client_runs_any_command_on_a_claimed_job(self, n: int, c: int, command: str) -> None:
        claimed = [job.number for job in self.pair.model.jobs if job.claim]
        number = claimed[n % len(claimed)]
        if command in ("delete", "snatch"):
            self.pair.on_job(number, command)
        else:
            self.pair.on_job(number, command, session=self.pair.client(c))
