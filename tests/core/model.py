"""The queue as it should be, in the plainest words: lists, linear scans, and no cleverness.

It promises what the engine promises and nothing about speed. Where the engine keeps an index, the model looks at every
job; where the engine keeps a deadline, the model asks every job when its state ends. States and events are the names of
states.py. A refusal is its code: raised where the engine raises, returned where the engine returns it.
model_parts.py has the nouns and the small rules; model_puts.py which puts find room, or a job that stands for them;
model_more.py what else can be done to a job; model_claims.py the claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import THEN_BURY, THEN_DROP, RetryPolicy, parse_retry

from .model_parts import (
    ModelClaim,
    ModelConnection,
    ModelConsumer,
    ModelEndWait,
    ModelJob,
    ModelPutWait,
    ModelSession,
    ModelTube,
    ModelWait,
    ModelWaiting,
    Refused,
    check_return,
    check_taking,
    is_duration,
    is_spent,
    later,
    not_held,
    not_returnable,
    rank,
    require,
    retry_wait,
    swap_out,
    ttl_of,
    ttr_of,
)
from .model_puts import check_draft, has_room, twin


class Model:
    """All tubes of one node."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.grace_ms = 0
        self.body_bytes_max = limits.BODY_BYTES_MAX
        self.tubes: dict[bytes, ModelTube] = {}
        self.sessions: dict[bytes, ModelSession] = {}
        self.jobs: list[ModelJob] = []  # Those that are not gone, oldest first.
        self.waits: list[ModelWaiting] = []  # Those that wait, first come first.
        self.ended: list[ModelWaiting] = []  # Those that were served or timed out since anybody looked.
        self.counts: Counter[tuple[ModelTube, str, str]] = Counter()  # (tube, event, from which state)
        self.consumers: dict[bytes, ModelConsumer] = {}
        self.made = 0  # Numbers given out: one to each job, and one to each that went behind all others.
        self.ticks = 0
        self.woken: list[ModelTube] = []  # Tubes in which those who wait have to be looked at, first woken first.

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    # What happens to a job

    def happen(self, job: ModelJob, event: str, to: str) -> None:
        came_from, job.state = job.state, to
        self.counts[job.tube, event, came_from] += 1
        job.set_at = self.tick()
        if to == came_from:
            return
        self.index(job, came_from)
        if to in ("done", "zombie", "gone"):
            job.unique = b""
        if came_from == "taken":
            self.let_go(job)
        if to in ("done", "zombie", "gone") and event != "moved out":
            for wait in [wait for wait in self.waits if isinstance(wait, ModelEndWait) and wait.job is job]:
                wait.processed = event == "acked" or to != "gone"
                self.end_wait(wait, "served")
        if to == "gone":
            self.leave_tube(job)
            if event != "moved out":
                self.jobs.remove(job)
        if to in ("ready", "buried", "done"):
            job.wake = NEVER
        if to == "ready":
            self.wake_takers(job.tube)
        self.turn_keys(job.tube, job.key if to == "taken" else None)

    def index(self, job: ModelJob, came_from: str) -> None:
        """Keep what is in no order that anybody was promised: see swap_out."""
        if came_from in ("ready", "delayed"):
            swap_out(job.tube.alike[came_from, job.body], job)
        if job.state in ("ready", "delayed"):
            job.tube.alike.setdefault((job.state, job.body), []).append(job)
        if came_from == "taken":
            swap_out(job.tube.taken, job)
        if job.state == "taken":
            job.tube.taken.append(job)

    def let_go(self, job: ModelJob) -> None:
        if job.holder is not None:
            swap_out(job.holder.held, job)
            job.holder = None
        job.claim = None
        if job.tube.policy.keys != p.KEYS_NONE:
            self.wake_takers(job.tube)

    def enter_tube(self, job: ModelJob, tube: ModelTube) -> None:
        job.tube = tube
        job.local = tube.next_local if tube.policy.ids == p.ID_INTEGER else -1
        tube.next_local += 1
        if tube.policy.keys == p.KEYS_NONE:
            job.key = b""
        if job.key not in tube.keys:
            tube.keys.append(job.key)

    def leave_tube(self, job: ModelJob) -> None:
        others = [other for other in self.jobs if other.tube is job.tube and other.key == job.key]
        if others == [job]:
            job.tube.keys.remove(job.key)
        if self.put_waits(job.tube):
            self.wake(job.tube)

    def turn_keys(self, tube: ModelTube, served: bytes | None) -> None:
        """Where keys are served in turn: a key that can be served from now on, or was served, goes to the end."""
        if tube.policy.key_order != p.FAIR:
            tube.turns = {}
            return
        can = {job.key for job in self.servable(tube)}
        tube.turns = {key: turn for key, turn in tube.turns.items() if key in can}
        for key in [key for key in tube.keys if key in can]:
            if key == served or key not in tube.turns:
                tube.turns[key] = self.tick()

    def wake(self, tube: ModelTube) -> None:
        if tube not in self.woken:
            self.woken.append(tube)

    def wake_takers(self, tube: ModelTube) -> None:
        if self.take_waits(tube):
            self.wake(tube)

    def fail(self, job: ModelJob, cause: str) -> None:
        """A delivery came to nothing: the job goes back, or wherever its retry policy, or its tube's, sends it."""
        retry = job.retry
        if retry is None and job.tube.policy.retry:
            retry = parse_retry(job.tube.policy.retry)
        self.happen(job, cause, "ready")
        if retry is None:
            return
        if retry.tries > 0 and job.deliveries >= retry.tries:
            self.give_up(job, retry)
        elif retry_wait(retry, job.deliveries) > 0:
            job.wake = self.now + retry_wait(retry, job.deliveries)
            self.happen(job, "held back", "delayed")

    def give_up(self, job: ModelJob, retry: RetryPolicy) -> None:
        if retry.then == THEN_DROP:
            self.happen(job, "discarded", "gone")
            return
        job.reason = job.reason or b"given up after %d deliveries" % job.deliveries
        if retry.then == THEN_BURY or retry.target == job.tube.name:
            job.buries += 1
            self.happen(job, "exhausted", "buried")
        else:
            target = self.tubes.setdefault(retry.target, ModelTube(retry.target, p.FIFO))
            self.transfer(job, target, "moved in", "ready")

    def transfer(self, job: ModelJob, target: ModelTube, event: str, to: str) -> None:
        """To the end of another tube."""
        self.happen(job, "moved out", "gone")
        self.go_behind(job, target)
        job.name = b""
        if target.policy.order != p.BY_PRIORITY:
            job.priority = target.policy.default_priority
        self.enter_tube(job, target)
        self.happen(job, event, to)

    def go_behind(self, job: ModelJob, tube: ModelTube) -> None:
        job.order = self.tick()
        if tube.policy.order != p.BY_CREATION:
            self.made += 1

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

    def timed(self) -> Iterator[ModelJob | ModelWaiting | ModelSession | ModelClaim]:
        yield from self.jobs
        yield from self.waits
        yield from self.sessions.values()
        for consumer in self.consumers.values():
            yield from consumer.claims.values()

    def next_due(self) -> int:
        return min((item.due for item in self.timed()), default=NEVER)

    def fire(self, item: ModelJob | ModelWaiting | ModelSession | ModelClaim) -> None:
        if isinstance(item, ModelWaiting):
            # What it waits for may have come in time, and only the shell is late.
            self.settle()
            if item in self.waits:
                self.end_wait(item, "timed out")
        elif isinstance(item, ModelSession):
            for job in reversed(list(item.held)):
                job.returns += 1
                self.fail(job, "disconnected")
            del self.sessions[item.token]
        elif isinstance(item, ModelClaim):
            self.end_claim(item)
        elif item.state == "taken" and (item.expiry > self.now or item.tube.policy.ttl_while_taken == p.WAITS):
            item.returns += 1
            self.fail(item, "ttr passed")
        elif item.state == "zombie":
            self.happen(item, "zombie passed", "gone")
        elif item.expiry <= self.now:
            self.happen(item, "expired", "gone")
        else:
            self.happen(item, "delay passed", "ready")

    def end_claim(self, claim: ModelClaim) -> None:
        """What a claim holds goes back; what was deleted meanwhile goes."""
        for consumer in self.consumers.values():
            if consumer.claims.get(claim.number) is claim:
                del consumer.claims[claim.number]
        for job in reversed(claim.jobs):
            if job.doomed:
                self.happen(job, "deleted", "gone")
            else:
                job.returns += 1
                self.happen(job, "claim ended", "ready")

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

    def alter(self, tube: ModelTube, policy: TubePolicy, now: int, first_turns: list[bytes]) -> None:
        """Another policy. In which order keys are served when they begin to be served in turn, is not promised."""
        self.advance(now)
        if policy == tube.policy:
            return
        fair_from_now = policy.key_order == p.FAIR and tube.policy.key_order != p.FAIR
        tube.policy = policy
        if fair_from_now:
            tube.turns = {key: self.tick() for key in first_turns}
        self.turn_keys(tube, None)
        for job in tube.taken:
            job.set_at = self.tick()
        self.wake(tube)
        self.settle()

    def truncate(self, tube: ModelTube, now: int) -> int:
        self.advance(now)
        jobs = [job for job in self.jobs if job.tube is tube and job.state != "taken"]
        jobs += [job for job in reversed(tube.taken) if job.claim is None]
        for job in [job for job in tube.taken if job.claim is not None]:
            self.doom(job)
        for job in jobs:
            self.happen(job, "truncated", "gone")
        self.settle()
        return len(jobs)

    def doom(self, job: ModelJob) -> None:
        if not job.doomed:
            job.doomed = True
            self.happen(job, "doomed", "taken")

    def drop(self, tube: ModelTube, now: int) -> None:
        self.advance(now)
        if self.take_waits(tube) or self.put_waits(tube):
            raise Refused("TUBEAWAITED")
        if tube.taken:
            raise Refused("TUBETAKEN")
        self.truncate(tube, now)
        del self.tubes[tube.name]

    # Putting

    def put(self, tube: ModelTube, draft: Draft, now: int) -> ModelJob:
        return self.put_many(tube, [draft], now)[0]

    def put_many(self, tube: ModelTube, drafts: list[Draft], now: int) -> list[ModelJob]:
        self.advance(now)
        require(1 <= len(drafts) <= limits.BATCH_JOBS_MAX, "RANGE")
        new: list[Draft] = []
        for draft in drafts:
            check_draft(tube, draft, self.body_bytes_max)
            if twin(self.jobs, tube, draft, self.now) is None:
                require(draft.name is None or draft.name not in [other.name for other in new], "RANGE")
                new.append(draft)
        if new:
            fits = has_room(self.jobs, tube, len(new), sum(len(draft.body) for draft in new))
            require(fits and not self.put_waits(tube), "FULL")
        jobs = [twin(self.jobs, tube, draft, self.now) or self.admit(tube, draft) for draft in drafts]
        self.settle()
        return jobs

    def wait_put(
        self, connection: ModelConnection, tube: ModelTube, draft: Draft, now: int, timeout_ms: int
    ) -> ModelPutWait:
        self.check_waiting(connection, timeout_ms)
        self.advance(now)
        check_draft(tube, draft, self.body_bytes_max)
        due = NEVER if timeout_ms == NEVER else now + timeout_ms
        wait = ModelPutWait(connection=connection, tube=tube, draft=draft, due=due, set_at=self.tick())
        self.waits.append(wait)
        self.wake(tube)
        self.settle()
        return wait

    def admit(self, tube: ModelTube, draft: Draft) -> ModelJob:
        ttl = ttl_of(tube, draft)
        lives = ttl + (draft.delay_ms if tube.policy.delay_stretches_ttl else 0)
        job = ModelJob(
            number=self.made,
            local=-1,
            tube=tube,
            body=draft.body,
            key=draft.key or b"",
            once=draft.once,
            priority=tube.policy.default_priority if draft.priority == PRIORITY_UNSET else draft.priority,
            ttr=NEVER if draft.once else ttr_of(tube, draft),
            expiry=NEVER if ttl == NEVER else self.now + lives,
            order=self.tick(),
            retry=draft.retry,
            name=draft.name or b"",
            unique=draft.unique or b"",
        )
        self.made += 1
        self.jobs.append(job)
        self.enter_tube(job, tube)
        if draft.dedup is not None:
            tube.seen.append((draft.dedup, job, self.now))
        if draft.delay_ms:
            job.wake = self.now + draft.delay_ms
            self.happen(job, "put delayed", "delayed")
        elif draft.urgent:
            job.given, job.priority, job.order = job.priority, limits.PRIORITY_FRONT, -job.order
            self.happen(job, "put urgent", "ready")
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
        """The first of the jobs that can be had, by turn and by rank; a dead one that stands in the way expires."""
        while True:
            jobs = self.eligible(tube, key)
            job = min(jobs, key=lambda job: (tube.turns.get(job.key, 0), rank(job)), default=None)
            if job is None or job.expiry > self.now:
                return job
            self.happen(job, "expired", "gone")

    def eligible(self, tube: ModelTube, key: bytes | None) -> list[ModelJob]:
        if tube.policy.keys == p.KEYS_NAMED:
            key = key or b""
        return [job for job in self.servable(tube) if key is None or job.key == key]

    def servable(self, tube: ModelTube) -> list[ModelJob]:
        """The ready jobs of keys that have room for another taker."""
        ready = [job for job in self.jobs if job.tube is tube and job.state == "ready"]
        if tube.policy.keys == p.KEYS_LIMITED:
            busy = Counter(job.key for job in tube.taken)
            ready = [job for job in ready if busy[job.key] < tube.policy.key_limit]
        return ready

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
        self.check_waiting(connection, timeout_ms)
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        require(1 <= len(tubes) <= limits.WAIT_TUBES_MAX, "RANGE")
        check_taking(tubes, key, ttr_ms)
        self.advance(now)
        due = NEVER if timeout_ms == NEVER else now + timeout_ms
        wait = ModelWait(
            connection=connection, tubes=list(tubes), key=key, want=count, ttr=ttr_ms, due=due, set_at=self.tick()
        )
        self.waits.append(wait)
        for tube in tubes:
            self.wake(tube)
        self.settle()
        return wait

    def wait_end(self, connection: ModelConnection, job: ModelJob, now: int, timeout_ms: int) -> ModelEndWait:
        self.check_waiting(connection, timeout_ms)
        due = NEVER if timeout_ms == NEVER else now + timeout_ms
        wait = ModelEndWait(connection=connection, job=job, due=due, set_at=self.tick())
        self.waits.append(wait)
        if job.state in ("done", "zombie"):
            wait.processed = True
            self.end_wait(wait, "served")
        return wait

    def check_waiting(self, connection: ModelConnection, timeout_ms: int) -> None:
        require(is_duration(timeout_ms), "RANGE")
        mine = [wait for wait in self.waits if wait.connection is connection]
        require(len(mine) < limits.WAITS_PER_CONNECTION_MAX, "TOOMANYWAITS")

    def take_waits(self, tube: ModelTube) -> list[ModelWait]:
        return [wait for wait in self.waits if isinstance(wait, ModelWait) and tube in wait.tubes]

    def put_waits(self, tube: ModelTube) -> list[ModelPutWait]:
        return [wait for wait in self.waits if isinstance(wait, ModelPutWait) and wait.tube is tube]

    def cancel(self, wait: ModelWaiting) -> None:
        if wait.outcome == "waiting":
            self.end_wait(wait, "cancelled")

    def end_wait(self, wait: ModelWaiting, outcome: str) -> None:
        wait.outcome = outcome
        self.waits.remove(wait)
        if outcome != "cancelled":
            self.ended.append(wait)

    def settle(self) -> None:
        """In each tube that woke: who came first gets what it can have, as much as there is and it wants."""
        while self.woken:
            tube = self.woken.pop(0)
            self.serve_puts(tube)
            for wait in self.take_waits(tube):
                while len(wait.jobs) < wait.want:
                    job = self.hand_out(wait.connection.session, tube, wait.key, wait.ttr)
                    if job is None:
                        break
                    wait.jobs.append(job)
                if wait.jobs:
                    self.end_wait(wait, "served")

    def serve_puts(self, tube: ModelTube) -> None:
        """Who came first is let in first, even if somebody else would fit."""
        for wait in self.put_waits(tube):
            if tube.paused_in or not has_room(self.jobs, tube, 1, len(wait.draft.body)):
                return
            try:
                wait.job = twin(self.jobs, tube, wait.draft, self.now) or self.admit(tube, wait.draft)
            except Refused as refusal:
                wait.refusal = refusal.code
            self.end_wait(wait, "timed out" if wait.refusal else "served")

    # Finishing. The job is one that `find` found at this moment.

    def find(self, number: int, now: int) -> ModelJob | None:
        self.advance(now)
        return next((job for job in self.jobs if job.number == number), None)

    def ack(
        self, session: ModelSession, job: ModelJob, now: int, delay_ms: int = UNSET, body: bytes | None = None
    ) -> str:
        held = not_held(job, session)
        cancels = job.tube.policy.ack_cancels and job.claim is None and job.state not in ("done", "zombie")
        if held != "OK" and not cancels:
            return held
        require(body is None or len(body) <= self.body_bytes_max, "TOOBIG")
        self.end_as_acked(job, delay_ms, body)
        self.settle()
        return "OK"

    def end_as_acked(self, job: ModelJob, delay_ms: int = UNSET, body: bytes | None = None) -> None:
        """An acked job goes, or is kept, or lingers as long as its ack says, or its tube."""
        policy = job.tube.policy
        if policy.after_ack != p.LINGERS:
            require(delay_ms == UNSET, "UNSUPPORTED")
        require(delay_ms == UNSET or 0 <= delay_ms <= limits.DURATION_MS_MAX, "RANGE")
        lingers = policy.zombie_ms if delay_ms == UNSET else delay_ms
        self.set_body(job, body)
        if policy.after_ack == p.KEPT and not job.doomed:
            job.expiry = NEVER
            self.happen(job, "kept", "done")
        elif policy.after_ack == p.LINGERS and lingers > 0 and not job.doomed:
            job.wake = self.now + lingers
            self.happen(job, "lingered", "zombie")
        else:
            self.happen(job, "acked", "gone")

    def set_body(self, job: ModelJob, body: bytes | None) -> None:
        if body is not None:
            job.body = body
            if self.put_waits(job.tube):
                self.wake(job.tube)

    def release(
        self,
        session: ModelSession,
        job: ModelJob,
        now: int,
        delay_ms: int = 0,
        ttl_ms: int = UNSET,
        priority: int = PRIORITY_UNSET,
    ) -> str:
        refusal = not_returnable(job, session)
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
        self.give_back(job, events, delay_ms, ttl_ms, priority)
        self.settle()

    def give_back(self, job: ModelJob, events: tuple[str, str], delay_ms: int, ttl_ms: int, priority: int) -> None:
        job.returns += 1
        if ttl_ms != UNSET:
            job.expiry = NEVER if ttl_ms == NEVER else self.now + ttl_ms
        if priority != PRIORITY_UNSET:
            job.priority = priority
            job.given = PRIORITY_UNSET
        if delay_ms:
            policy = job.tube.policy
            if policy.delay_stretches_ttl and (ttl_ms != UNSET or policy.release_stretches_ttl):
                job.expiry = later(job.expiry, delay_ms)
            job.wake = self.now + delay_ms
            self.happen(job, events[1], "delayed")
        else:
            self.happen(job, events[0], "ready")

    def nack(self, session: ModelSession, job: ModelJob, now: int, reason: bytes = b"") -> str:
        require(len(reason) <= limits.REASON_BYTES_MAX, "RANGE")
        refusal = not_returnable(job, session)
        if refusal == "OK":
            job.reason = reason or job.reason
            job.nacks += 1
            self.fail(job, "nacked")
            self.settle()
        return refusal

    def bury(self, session: ModelSession, job: ModelJob, now: int, reason: bytes = b"") -> str:
        require(len(reason) <= limits.REASON_BYTES_MAX, "RANGE")
        owned = job.tube.policy.bury_by == p.SESSION or job.claim is not None
        if owned and not_held(job, session) != "OK":
            return not_held(job, session)
        if job.state in ("done", "zombie"):
            return "NOTTAKEN"
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
        if job.claim is not None:
            self.doom(job)
            return "OK"
        self.happen(job, "deleted", "gone")
        self.settle()
        return "OK"

    def undelivered(self, job: ModelJob, now: int) -> None:
        if job.state == "taken":
            job.deliveries -= 1
            self.happen(job, "undelivered", "ready")
            self.settle()

    def kick(self, tube: ModelTube, count: int, now: int, delay_ms: int = 0, ttl_ms: int = UNSET) -> int:
        self.advance(now)
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        check_return(tube, delay_ms, ttl_ms, PRIORITY_UNSET)
        buried = [job for job in self.jobs if job.tube is tube and job.state == "buried" and not is_spent(job)]
        for job in sorted(buried, key=rank)[:count]:
            self.give_back(job, ("kicked", "kicked delayed"), delay_ms, ttl_ms, PRIORITY_UNSET)
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
