"""The queue as it should be, in the plainest words: lists, linear scans, and no cleverness.

It promises what the engine promises and nothing about speed. Where the engine keeps an index, the model looks at every
job; where the engine keeps a deadline, the model asks every job when its state ends. States and events are the names of
states.py. A refusal is its code: raised where the engine raises, returned where the engine returns it.
model_parts.py has the nouns and the small rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import TubePolicy

from .model_parts import (
    ModelConnection,
    ModelJob,
    ModelSession,
    ModelTube,
    ModelWait,
    Refused,
    check_key,
    check_return,
    check_taking,
    check_ttr,
    is_duration,
    is_spent,
    later,
    not_held,
    rank,
    require,
    swap_out,
    ttl_of,
    ttr_of,
)


class Model:
    """All tubes of one node."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.grace_ms = 0
        self.body_bytes_max = limits.BODY_BYTES_MAX
        self.tubes: dict[bytes, ModelTube] = {}
        self.sessions: dict[bytes, ModelSession] = {}
        self.jobs: list[ModelJob] = []  # Those that are not gone, oldest first.
        self.waits: list[ModelWait] = []  # Those that wait, first come first.
        self.ended: list[ModelWait] = []  # Those that were served or timed out since anybody looked.
        self.counts: Counter[tuple[ModelTube, str, str]] = Counter()  # (tube, event, from which state)
        self.made = 0
        self.ticks = 0
        self.woken: list[ModelTube] = []  # Tubes in which those who wait have to be looked at, first woken first.

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    # What happens to a job

    def happen(self, job: ModelJob, event: str, to: str) -> None:
        self.counts[job.tube, event, job.state] += 1
        if job.state == "taken" and to != "taken":
            if job.holder is not None:
                swap_out(job.holder.held, job)
                job.holder = None
            self.wake(job.tube)
        job.state = to
        job.set_at = self.tick()
        if to in ("ready", "buried"):
            job.wake = NEVER
        if to == "ready":
            self.wake(job.tube)
        if to == "gone":
            self.jobs.remove(job)

    def wake(self, tube: ModelTube) -> None:
        if tube not in self.woken:
            self.woken.append(tube)

    # Time

    def advance(self, now: int) -> None:
        """Let all that is due happen: by moment, then by when it was set. Then look at those who wait."""
        self.now = max(self.now, now)
        while True:
            due = [item for item in self.timed() if item.due <= now]
            if not due:
                break
            self.fire(min(due, key=lambda item: (item.due, item.set_at)))
        self.settle()

    def timed(self) -> Iterator[ModelJob | ModelWait | ModelSession]:
        yield from self.jobs
        yield from self.waits
        yield from self.sessions.values()

    def next_due(self) -> int:
        return min((item.due for item in self.timed()), default=NEVER)

    def fire(self, item: ModelJob | ModelWait | ModelSession) -> None:
        if isinstance(item, ModelWait):
            # What it waits for may have come in time, and only the shell is late.
            self.settle()
            if item in self.waits:
                self.end_wait(item, "timed out")
        elif isinstance(item, ModelSession):
            for job in reversed(list(item.held)):
                job.returns += 1
                self.happen(job, "disconnected", "ready")
            del self.sessions[item.token]
        elif item.state == "taken" and (item.expiry > self.now or item.tube.policy.ttl_while_taken == p.WAITS):
            item.returns += 1
            self.happen(item, "ttr passed", "ready")
        elif item.expiry <= self.now:
            self.happen(item, "expired", "gone")
        else:
            self.happen(item, "delay passed", "ready")

    # Tubes

    def create_tube(self, name: bytes, policy: TubePolicy, now: int) -> ModelTube:
        self.advance(now)
        tube = self.tubes.setdefault(name, ModelTube(name, policy))
        if tube.policy != policy:
            raise Refused("TUBEEXISTS")
        return tube

    def pause(self, tube: ModelTube, inward: bool, outward: bool, now: int) -> None:
        self.advance(now)
        tube.paused_in, tube.paused_out = inward, outward
        self.wake(tube)
        self.settle()

    def truncate(self, tube: ModelTube, now: int) -> int:
        self.advance(now)
        jobs = [job for job in self.jobs if job.tube is tube]
        for job in jobs:
            self.happen(job, "truncated", "gone")
        self.settle()
        return len(jobs)

    def drop(self, tube: ModelTube, now: int) -> None:
        self.advance(now)
        if any(tube in wait.tubes for wait in self.waits):
            raise Refused("TUBEAWAITED")
        if any(job.tube is tube and job.state == "taken" for job in self.jobs):
            raise Refused("TUBETAKEN")
        self.truncate(tube, now)
        del self.tubes[tube.name]

    # Putting

    def put(self, tube: ModelTube, draft: Draft, now: int) -> ModelJob:
        return self.put_many(tube, [draft], now)[0]

    def put_many(self, tube: ModelTube, drafts: list[Draft], now: int) -> list[ModelJob]:
        self.advance(now)
        require(1 <= len(drafts) <= limits.BATCH_JOBS_MAX, "RANGE")
        require(not tube.paused_in, "PAUSED")
        for draft in drafts:
            self.check_draft(tube, draft)
        jobs = [self.admit(tube, draft) for draft in drafts]
        self.settle()
        return jobs

    def check_draft(self, tube: ModelTube, draft: Draft) -> None:
        require(len(draft.body) <= self.body_bytes_max, "TOOBIG")
        if draft.ttl_ms != UNSET:
            require(tube.policy.has_ttl, "UNSUPPORTED")
            require(is_duration(draft.ttl_ms), "RANGE")
        if draft.ttr_ms != UNSET:
            check_ttr(tube, draft.ttr_ms)
        if draft.priority != PRIORITY_UNSET:
            require(tube.policy.order == p.BY_PRIORITY, "UNSUPPORTED")
            require(abs(draft.priority) <= limits.PRIORITY_MAX, "RANGE")
        if draft.delay_ms != 0:
            require(tube.policy.has_delay, "UNSUPPORTED")
            require(0 < draft.delay_ms <= limits.DURATION_MS_MAX, "RANGE")
            require(tube.policy.delay_stretches_ttl or draft.delay_ms < ttl_of(tube, draft), "RANGE")
        if draft.key is not None:
            check_key(tube, draft.key)
        if draft.once:
            require(tube.policy.owner == p.ANYONE, "UNSUPPORTED")

    def admit(self, tube: ModelTube, draft: Draft) -> ModelJob:
        ttl = ttl_of(tube, draft)
        lives = ttl + (draft.delay_ms if tube.policy.delay_stretches_ttl else 0)
        job = ModelJob(
            number=self.made,
            local=tube.next_local if tube.policy.ids == p.ID_INTEGER else -1,
            tube=tube,
            body=draft.body,
            key=draft.key or b"",
            once=draft.once,
            priority=tube.policy.default_priority if draft.priority == PRIORITY_UNSET else draft.priority,
            ttr=NEVER if draft.once else ttr_of(tube, draft),
            expiry=NEVER if ttl == NEVER else self.now + lives,
        )
        self.made += 1
        tube.next_local += 1
        self.jobs.append(job)
        if draft.delay_ms:
            job.wake = self.now + draft.delay_ms
            self.happen(job, "put delayed", "delayed")
        else:
            self.happen(job, "put", "ready")
        return job

    # Taking

    def take(
        self, session: ModelSession, tube: ModelTube, now: int, key: bytes | None = None, ttr_ms: int = UNSET
    ) -> ModelJob | None:
        jobs = self.take_many(session, [tube], 1, now, key, ttr_ms)
        return jobs[0] if jobs else None

    def take_many(
        self,
        session: ModelSession,
        tubes: list[ModelTube],
        count: int,
        now: int,
        key: bytes | None = None,
        ttr_ms: int = UNSET,
    ) -> list[ModelJob]:
        """One of each tube in turn, until there are enough or none is left."""
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        check_taking(tubes, key, ttr_ms)
        self.advance(now)
        jobs: list[ModelJob] = []
        while True:
            before = len(jobs)
            for tube in tubes:
                if len(jobs) < count:
                    job = self.hand_out(session, tube, key, ttr_ms)
                    jobs += [job] if job else []
            if len(jobs) == before:
                return jobs

    def hand_out(self, session: ModelSession, tube: ModelTube, key: bytes | None, ttr: int) -> ModelJob | None:
        job = None if tube.paused_out else self.first(tube, key)
        if job is not None:
            job.deliveries += 1
            length = job.ttr if ttr == UNSET or job.once else ttr
            job.wake = NEVER if length == NEVER else self.now + length
            if tube.policy.owner == p.SESSION:
                job.holder = session
                session.held.append(job)
            self.happen(job, "taken", "taken")
        return job

    def first(self, tube: ModelTube, key: bytes | None) -> ModelJob | None:
        """The first of the jobs that can be had; a dead one that stands in the way expires."""
        while True:
            job = min(self.eligible(tube, key), key=rank, default=None)
            if job is None or job.expiry > self.now:
                return job
            self.happen(job, "expired", "gone")

    def eligible(self, tube: ModelTube, key: bytes | None) -> list[ModelJob]:
        mine = [job for job in self.jobs if job.tube is tube]
        ready = [job for job in mine if job.state == "ready"]
        if tube.policy.keys == p.KEYS_NAMED:
            return [job for job in ready if job.key == (key or b"")]
        if tube.policy.keys == p.KEYS_LIMITED:
            busy = Counter(job.key for job in mine if job.state == "taken")
            ready = [job for job in ready if busy[job.key] < tube.policy.key_limit]
        return ready if key is None else [job for job in ready if job.key == key]

    # Waiting

    def wait(
        self,
        connection: ModelConnection,
        tubes: list[ModelTube],
        now: int,
        timeout_ms: int = NEVER,
        count: int = 1,
        key: bytes | None = None,
        ttr_ms: int = UNSET,
    ) -> ModelWait:
        require(is_duration(timeout_ms), "RANGE")
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        require(1 <= len(tubes) <= limits.WAIT_TUBES_MAX, "RANGE")
        mine = [wait for wait in self.waits if wait.connection is connection]
        require(len(mine) < limits.WAITS_PER_CONNECTION_MAX, "TOOMANYWAITS")
        check_taking(tubes, key, ttr_ms)
        self.advance(now)
        due = NEVER if timeout_ms == NEVER else now + timeout_ms
        tick = self.tick()
        wait = ModelWait(tick, connection, list(tubes), key, count, ttr_ms, due, tick)
        self.waits.append(wait)
        for tube in tubes:
            self.wake(tube)
        self.settle()
        return wait

    def cancel(self, wait: ModelWait) -> None:
        if wait.outcome == "waiting":
            self.end_wait(wait, "cancelled")

    def end_wait(self, wait: ModelWait, outcome: str) -> None:
        wait.outcome = outcome
        self.waits.remove(wait)
        if outcome != "cancelled":
            self.ended.append(wait)

    def settle(self) -> None:
        """In each tube that woke: who came first gets what it can have, as much as there is and it wants."""
        while self.woken:
            tube = self.woken.pop(0)
            for wait in [wait for wait in self.waits if tube in wait.tubes]:
                while len(wait.jobs) < wait.want:
                    job = self.hand_out(wait.connection.session, tube, wait.key, wait.ttr)
                    if job is None:
                        break
                    wait.jobs.append(job)
                if wait.jobs:
                    self.end_wait(wait, "served")

    # Finishing. The job is one that `find` found at this moment.

    def find(self, number: int, now: int) -> ModelJob | None:
        self.advance(now)
        return next((job for job in self.jobs if job.number == number), None)

    def ack(self, session: ModelSession, job: ModelJob, now: int) -> str:
        refusal = not_held(job, session)
        if refusal != "OK" and not job.tube.policy.ack_cancels:
            return refusal
        self.happen(job, "acked", "gone")
        self.settle()
        return "OK"

    def release(
        self,
        session: ModelSession,
        job: ModelJob,
        now: int,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
    ) -> str:
        refusal = not_held(job, session)
        if refusal == "OK" and job.once:
            refusal = "ONLYONCE"
        if refusal == "OK":
            self.send_back(job, ("released", "postponed"), delay_ms, ttl_ms, priority)
        return refusal

    def dig(
        self, job: ModelJob, now: int, delay_ms: int = 0, ttl_ms: int = UNSET, priority: int = PRIORITY_UNSET
    ) -> str:
        if job.state != "buried":
            return "NOTBURIED"
        if is_spent(job):
            return "ONLYONCE"
        self.send_back(job, ("kicked", "kicked delayed"), delay_ms, ttl_ms, priority)
        return "OK"

    def send_back(self, job: ModelJob, events: tuple[str, str], delay_ms: int, ttl_ms: int, priority: int) -> None:
        check_return(job.tube, delay_ms, ttl_ms, priority)
        job.returns += 1
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else self.now + ttl_ms
        if priority != PRIORITY_UNSET:
            job.priority = priority
        if delay_ms:
            policy = job.tube.policy
            if policy.delay_stretches_ttl and (ttl_ms != UNSET or policy.release_stretches_ttl):
                job.expiry = later(job.expiry, delay_ms)
            job.wake = self.now + delay_ms
            self.happen(job, events[1], "delayed")
        else:
            self.happen(job, events[0], "ready")
        self.settle()

    def nack(self, session: ModelSession, job: ModelJob, now: int) -> str:
        refusal = not_held(job, session)
        if refusal == "OK" and job.once:
            refusal = "ONLYONCE"
        if refusal == "OK":
            job.nacks += 1
            self.happen(job, "nacked", "ready")
            self.settle()
        return refusal

    def bury(self, session: ModelSession, job: ModelJob, now: int, reason: bytes = b"") -> str:
        require(len(reason) <= limits.REASON_BYTES_MAX, "RANGE")
        if job.tube.policy.bury_by == p.SESSION and not_held(job, session) != "OK":
            return not_held(job, session)
        if job.state != "buried":
            job.reason = reason
            job.buries += 1
            self.happen(job, "buried", "buried")
            self.settle()
        return "OK"

    def touch(self, session: ModelSession, job: ModelJob, now: int, more_ms: int = UNSET) -> str:
        require(job.tube.policy.has_ttr, "UNSUPPORTED")
        require(more_ms == UNSET or 0 <= more_ms <= limits.DURATION_MS_MAX, "RANGE")
        refusal = not_held(job, session)
        if refusal != "OK":
            return refusal
        if more_ms == UNSET:
            job.wake = later(job.ttr, now)
        else:
            job.wake = later(job.wake, more_ms)
            job.expiry = later(job.expiry, more_ms)
            job.ttr = later(job.ttr, more_ms)
        self.happen(job, "touched", "taken")
        return "OK"

    def delete(self, job: ModelJob, now: int) -> str:
        self.happen(job, "deleted", "gone")
        self.settle()
        return "OK"

    def undelivered(self, job: ModelJob, now: int) -> None:
        if job.state == "taken":
            job.deliveries -= 1
            self.happen(job, "undelivered", "ready")
            self.settle()

    def kick(self, tube: ModelTube, count: int, now: int) -> int:
        self.advance(now)
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        buried = [job for job in self.jobs if job.tube is tube and job.state == "buried" and not is_spent(job)]
        for job in sorted(buried, key=rank)[:count]:
            job.returns += 1
            self.happen(job, "kicked", "ready")
        self.settle()
        return min(count, len(buried))

    # Sessions

    def connect(self, token: bytes) -> ModelConnection:
        self.sessions[token] = ModelSession(token)
        return ModelConnection(self.sessions[token])

    def identify(self, connection: ModelConnection, token: bytes, now: int) -> None:
        self.advance(now)
        session = self.sessions.get(token)
        if session is None:
            raise Refused("NOSESSION")
        if session is not connection.session:
            session.connections += 1
            session.due = NEVER
            left, connection.session = connection.session, session
            self.leave(left, now)

    def disconnect(self, connection: ModelConnection, now: int) -> None:
        for wait in [wait for wait in self.waits if wait.connection is connection]:
            self.end_wait(wait, "cancelled")
        self.leave(connection.session, now)

    def leave(self, session: ModelSession, now: int) -> None:
        session.connections -= 1
        if session.connections == 0:
            session.due = now + self.grace_ms
            session.set_at = self.tick()
        self.advance(now)
