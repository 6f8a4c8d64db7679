"""A simple model of the queue: lists and linear scans, without indexes.

It makes the same promises as the engine, except for speed. The engine keeps indexes, the model examines every job. The
engine keeps a heap of deadlines, the model computes the deadline of every job. States and events have the names of
states.py. A refusal is represented by its code. It is raised if the engine raises it, and returned if the engine
returns it.

model_parts.py has the data classes and small rules, model_moves.py the transitions and waits, model_puts.py the checks
of puts, model_more.py further commands on jobs, and model_claims.py the claims.
"""

from __future__ import annotations

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import THEN_MOVE, parse_retry

from .model_moves import ModelMoves
from .model_parts import (
    ModelConnection,
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
)
from .model_puts import check_draft, has_room, twin


class Model(ModelMoves):
    """The most common commands."""

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
        self.wake(tube, tube.key_lines)
        self.settle()

    def alter(self, tube: ModelTube, policy: TubePolicy, now: int, first_turns: list[bytes]) -> None:
        """Change the policy of a tube.

        The order in which keys get their first turns is not promised, so it is an argument.
        """
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
        self.wake(tube, tube.key_lines)
        self.settle()

    def truncate(self, tube: ModelTube, now: int) -> int:
        self.advance(now)
        jobs = [job for job in self.jobs if job.tube is tube and job.state != "taken"]
        jobs += [job for job in reversed(tube.taken) if not job.doomed]
        for job in jobs:
            if job.claim is None:
                self.happen(job, "truncated", "gone")
            else:
                self.doom(job)
        self.settle()
        return len(jobs)

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
        """Take one job of each tube in turn, until there are enough or none is left."""
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
            line = wait.line(tube)
            if line is not None and line not in tube.key_lines:
                tube.key_lines.append(line)
            self.wake(tube, [] if line is None else [line])
        self.settle()
        return wait

    def wait_end(
        self,
        connection: ModelConnection,
        job: ModelJob,
        now: int,
        timeout_ms: int,
        failures: bool = False,
        home: ModelTube | None = None,
    ) -> ModelEndWait:
        self.check_waiting(connection, timeout_ms)
        due = NEVER if timeout_ms == NEVER else now + timeout_ms
        wait = ModelEndWait(connection=connection, job=job, due=due, set_at=self.tick(), failures=failures)
        self.waits.append(wait)
        if job.state in ("done", "zombie"):
            self.job_ended(job, "acked", [wait])
        elif job.state == "buried":
            self.job_ended(job, "buried", [wait])
        elif home is not None and home is not job.tube:
            text = home.policy.retry
            retry = job.retry or (parse_retry(text) if text else None)
            if retry is not None and retry.then == THEN_MOVE and retry.target == job.tube.name:
                self.job_ended(job, "dead-lettered", [wait])
        return wait

    def check_waiting(self, connection: ModelConnection, timeout_ms: int) -> None:
        require(is_duration(timeout_ms), "RANGE")
        mine = [wait for wait in self.waits if wait.connection is connection]
        require(len(mine) < limits.WAITS_PER_CONNECTION_MAX, "TOOMANYWAITS")

    def cancel(self, wait: ModelWaiting) -> None:
        if wait.outcome == "waiting":
            self.end_wait(wait, "cancelled")
            self.settle()

    # Finishing. The caller has found the job at the same time.

    def find(self, number: int, now: int) -> ModelJob | None:
        self.advance(now)
        job = next((job for job in self.jobs if job.number == number), None)
        # A job that was put just now may have no time left.
        while job in self.jobs and job.due <= now:
            self.fire(job)
        self.settle()
        return job if job in self.jobs else None

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
        """Remove an acked job, keep it, or keep it for the time given by its ack or its tube."""
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
