"""The lower half of the model: transitions, deadlines and waits. See queue_model.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.retry import THEN_BURY, THEN_DROP, RetryPolicy, parse_retry

from .model_parts import (
    ModelClaim,
    ModelConsumer,
    ModelEndWait,
    ModelJob,
    ModelPutWait,
    ModelSession,
    ModelTube,
    ModelWait,
    ModelWaiting,
    Refused,
    rank,
    retry_wait,
    swap_out,
    swap_taken_out,
    swap_to_doomed,
    ttl_of,
    ttr_of,
)
from .model_puts import has_room, twin


class ModelMoves:
    """All tubes of one node and their transitions."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.grace_ms = 0
        self.body_bytes_max = limits.BODY_BYTES_MAX
        self.tubes: dict[bytes, ModelTube] = {}
        self.sessions: dict[bytes, ModelSession] = {}
        self.jobs: list[ModelJob] = []  # All jobs that are not gone, oldest first.
        self.waits: list[ModelWaiting] = []  # Pending waits in order of arrival.
        self.ended: list[ModelWaiting] = []  # Waits that were served or timed out since the last comparison.
        self.counts: Counter[tuple[ModelTube, str, str]] = Counter()  # By (tube, event, previous state).
        self.consumers: dict[bytes, ModelConsumer] = {}
        # Transitions since the last comparison: job, event, when the previous state began, session that held the job.
        self.happened: list[tuple[int, str, int, bytes | None]] = []
        self.made = 0  # Numbers used: one per put, and one for each job that was placed behind all others.
        self.ticks = 0
        self.woken: list[ModelTube] = []  # Tubes whose waits have to be served, first woken first.

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    # Transitions

    def happen(self, job: ModelJob, event: str, to: str) -> None:
        came_from, job.state = job.state, to
        self.counts[job.tube, event, came_from] += 1
        held_by = job.holder.token if job.holder is not None and to != came_from == "taken" else None
        # A job that arrives has been in no state before.
        self.happened.append((job.number, event, self.now if came_from == "gone" else job.since, held_by))
        if to != came_from:
            job.since = self.now
        job.set_at = self.tick()
        if to == came_from:
            return
        self.index(job, came_from)
        if to in ("done", "zombie", "gone"):
            job.unique = b""
        if came_from == "taken":
            self.let_go(job)
        if to in ("done", "zombie", "gone", "buried") and event != "moved out":
            ends = {"expired": "expired", "discarded": "dropped"}
            end = "acked" if event == "acked" or to in ("done", "zombie") else to
            self.job_ended(job, ends.get(event, "deleted") if end == "gone" else end)
        if to == "gone":
            self.leave_tube(job)
            if event != "moved out":
                self.jobs.remove(job)
        if to in ("ready", "buried", "done"):
            job.wake = NEVER
        if to == "ready":
            self.wake_takers(job)
        self.turn_keys(job.tube, job.key if to == "taken" else None)

    def job_ended(self, job: ModelJob, end: str, waits: list[ModelEndWait] | None = None) -> None:
        """End all waits for the end of a job, or only these."""
        if waits is None:
            waits = [wait for wait in self.waits if isinstance(wait, ModelEndWait) and wait.job is job]
        for wait in waits:
            if wait.failures or end not in ("buried", "dead-lettered"):
                wait.end = end
                wait.reason = b"" if end == "acked" else job.reason
                self.end_wait(wait, "served")

    def index(self, job: ModelJob, came_from: str) -> None:
        """Update the lists whose order is not promised: see swap_out."""
        alike = job.tube.policy.unique_bodies
        if alike and came_from in ("ready", "delayed"):
            swap_out(job.tube.alike[came_from, job.body], job)
        if alike and job.state in ("ready", "delayed"):
            job.tube.alike.setdefault((job.state, job.body), []).append(job)
        if came_from == "taken":
            swap_taken_out(job.tube.taken, job)
        if job.state == "taken":
            job.tube.taken.append(job)

    def let_go(self, job: ModelJob) -> None:
        if job.holder is not None:
            swap_out(job.holder.held, job)
            job.holder = None
        job.claim = job.verdict = None
        if job.tube.policy.keys != p.KEYS_NONE:
            self.wake_takers(job)

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
        """In a fair tube, give the last turn to each key that became servable or was served."""
        if tube.policy.key_order != p.FAIR:
            tube.turns = {}
            return
        can = {job.key for job in self.servable(tube)}
        tube.turns = {key: turn for key, turn in tube.turns.items() if key in can}
        for key in [key for key in tube.keys if key in can]:
            if key == served or key not in tube.turns:
                tube.turns[key] = self.tick()

    def wake(self, tube: ModelTube, keys: Iterable[bytes] = ()) -> None:
        """Serve the waits of this tube when the command ends, and those for these keys in this order."""
        tube.woken_keys += keys
        if tube not in self.woken:
            self.woken.append(tube)

    def wake_takers(self, job: ModelJob) -> None:
        """Serve the takes that wait in the tube of a job, because this job, or another one of its key, can be taken."""
        if self.take_waits(job.tube):
            self.wake(job.tube, [job.key] if job.tube.key_lines else [])

    def fail(self, job: ModelJob, cause: str, delay_ms: int = UNSET) -> None:
        """End a failed delivery: give the job back, or apply its retry policy or that of its tube.

        A delay that is given replaces that of the policy.
        """
        retry = job.retry
        if retry is None and job.tube.policy.retry:
            retry = parse_retry(job.tube.policy.retry)
        self.happen(job, cause, "ready")
        if retry is not None and retry.tries > 0 and job.deliveries >= retry.tries:
            self.give_up(job, retry)
            return
        wait = 0 if retry is None else retry_wait(retry, job.deliveries)
        if delay_ms != UNSET:
            wait = delay_ms
        if wait > 0:
            job.wake = self.now + wait
            self.happen(job, "held back", "delayed")

    def give_up(self, job: ModelJob, retry: RetryPolicy) -> None:
        job.reason = job.reason or b"given up after %d deliveries" % job.deliveries
        if retry.then == THEN_DROP:
            self.happen(job, "discarded", "gone")
            return
        if retry.then == THEN_BURY or retry.target == job.tube.name:
            job.buries += 1
            self.happen(job, "exhausted", "buried")
        else:
            target = self.tubes.setdefault(retry.target, ModelTube(retry.target, p.FIFO))
            self.transfer(job, target, "moved in", "ready")
            self.job_ended(job, "dead-lettered")

    def transfer(self, job: ModelJob, target: ModelTube, event: str, to: str) -> None:
        """Move a job to the end of another tube."""
        self.happen(job, "moved out", "gone")
        self.go_behind(job, target)
        job.name = b""
        if job.given != PRIORITY_UNSET:
            job.priority, job.given = job.given, PRIORITY_UNSET
        if target.policy.order != p.BY_PRIORITY:
            job.priority = target.policy.default_priority
        self.enter_tube(job, target)
        self.happen(job, event, to)

    def go_behind(self, job: ModelJob, tube: ModelTube) -> None:
        job.order = self.tick()
        if tube.policy.order != p.BY_CREATION:
            self.made += 1

    def doom(self, job: ModelJob) -> None:
        if not job.doomed:
            swap_to_doomed(job.tube.taken, job)
            job.doomed = True
            self.happen(job, "doomed", "taken")

    # Time

    def advance(self, now: int) -> None:
        """Fire all due deadlines by time, equal ones in the order in which they were set. Then serve the waits."""
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
            # The job or room may have come in time although this turn is late, so serve it first.
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
        elif self.is_held_back(item):
            item.wake = self.now + item.ttr
            self.happen(item, "touched" if item.state == "taken" else "switched to delayed", item.state)
        elif item.state == "taken" and (item.expiry > self.now or item.tube.policy.ttl_while_taken == p.WAITS):
            item.returns += 1
            self.fail(item, "ttr passed")
        elif item.state == "zombie":
            self.happen(item, "zombie passed", "gone")
        elif item.expiry <= self.now:
            self.happen(item, "expired", "gone")
        else:
            self.happen(item, "delay passed", "ready")

    def is_held_back(self, job: ModelJob) -> bool:
        """Return whether a job waits for another ttr instead of becoming ready, because its tube is paused for puts."""
        if not job.tube.paused_in or not job.tube.policy.pause_holds:
            return False
        return job.state in ("taken", "delayed") and job.expiry > self.now and job.ttr != NEVER

    def end_claim(self, claim: ModelClaim) -> None:
        """Give back the jobs of a claim. Remove those that were deleted in the meantime."""
        for consumer in self.consumers.values():
            if consumer.claims.get(claim.number) is claim:
                del consumer.claims[claim.number]
        for job in reversed(claim.jobs):
            if job.doomed:
                self.happen(job, "deleted", "gone")
            else:
                job.returns += 1
                self.happen(job, "claim ended", "ready")

    # Puts and takes

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

    def hand_out(self, session: ModelSession, tube: ModelTube, key: bytes | None, ttr: int) -> ModelJob | None:
        job = None if tube.paused_out else self.first(tube, key)
        if job is not None:
            job.deliveries += 1
            length = job.ttr if ttr == UNSET or job.once else ttr
            job.wake = NEVER if length == NEVER else self.now + length
            if tube.policy.owner == p.SESSION and not job.once:
                job.holder = session
                session.held.append(job)
            self.happen(job, "taken", "taken")
        return job

    def first(self, tube: ModelTube, key: bytes | None) -> ModelJob | None:
        """Return the job that is served next, by turn and rank. Expired jobs in front of it are removed."""
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
        """Return the ready jobs whose keys are below their limit."""
        ready = [job for job in self.jobs if job.tube is tube and job.state == "ready"]
        if tube.policy.keys == p.KEYS_LIMITED:
            busy = Counter(job.key for job in tube.taken)
            ready = [job for job in ready if busy[job.key] < tube.policy.key_limit]
        return ready

    # Waits

    def take_waits(self, tube: ModelTube) -> list[ModelWait]:
        return [wait for wait in self.waits if isinstance(wait, ModelWait) and tube in wait.tubes]

    def put_waits(self, tube: ModelTube) -> list[ModelPutWait]:
        return [wait for wait in self.waits if isinstance(wait, ModelPutWait) and wait.tube is tube]

    def end_wait(self, wait: ModelWaiting, outcome: str) -> None:
        wait.outcome = outcome
        self.waits.remove(wait)
        if isinstance(wait, ModelWait):
            for tube in wait.tubes:
                lines = [other.line(tube) for other in self.take_waits(tube)]
                tube.key_lines = [key for key in tube.key_lines if key in lines]
        if outcome != "cancelled":
            self.ended.append(wait)
        if outcome != "served" and isinstance(wait, ModelPutWait) and self.put_waits(wait.tube):
            # A put behind it may need less room.
            self.wake(wait.tube)

    def settle(self) -> None:
        """Serve the waits of each tube that woke: puts first, then takes."""
        while self.woken:
            tube = self.woken.pop(0)
            self.serve_puts(tube)
            keys, tube.woken_keys = tube.woken_keys, []
            if not tube.paused_out:
                self.serve_takes(tube, keys)

    def serve_takes(self, tube: ModelTube, woken_keys: list[bytes]) -> None:
        """Deliver jobs to waiting takes, first come, first served.

        The engine promises which take gets which jobs. `first_come` computes that independently, and the result is
        compared. The engine does not promise the order of the deliveries within one turn: it serves the takes of any
        job first, each after the earlier takes of the keys it meets, and then the takes of the woken keys. This order
        decides which of two equal deadlines fires first and which fair key gets the next turn, so the model delivers in
        the same order. In fair tubes each delivery changes which job is next, so `first_come` does not apply.
        """
        expected = None if tube.policy.key_order == p.FAIR else self.first_come(tube)
        waits = self.take_waits(tube)
        self.serve_line(tube, None, waits)
        for key in woken_keys:
            self.serve_line(tube, key, waits)
        assert expected in (None, [(wait, wait.jobs) for wait in waits if wait.jobs])

    def serve_line(self, tube: ModelTube, line: bytes | None, waits: list[ModelWait]) -> None:
        """Serve those of the waits that wait for this key, or for any job if it is None."""
        for i, wait in enumerate(waits):
            if wait.outcome != "waiting" or wait.line(tube) != line:
                continue
            while len(wait.jobs) < wait.want:
                if line is None:
                    self.serve_earlier(tube, waits[:i])
                job = self.hand_out(wait.connection.session, tube, line, wait.ttr)
                if job is None:
                    break
                wait.jobs.append(job)
            if wait.jobs:
                self.end_wait(wait, "served")

    def serve_earlier(self, tube: ModelTube, earlier: list[ModelWait]) -> None:
        """Serve the earlier takes of the next job's key, until the next job has none."""
        while True:
            job = self.first(tube, None)
            if job is None or all(wait.outcome != "waiting" or wait.line(tube) != job.key for wait in earlier):
                return
            self.serve_line(tube, job.key, earlier)

    def first_come(self, tube: ModelTube) -> list[tuple[ModelWait, list[ModelJob]]]:
        """Return which waits are served with which jobs, if each in order of arrival gets as many as it wants."""
        left = sorted((job for job in self.jobs if job.tube is tube and job.state == "ready"), key=rank)
        left = [job for job in left if job.expiry > self.now]
        busy = Counter(job.key for job in tube.taken)
        limit = tube.policy.key_limit if tube.policy.keys == p.KEYS_LIMITED else len(self.jobs)
        served = []
        for wait in self.take_waits(tube):
            line = wait.line(tube)
            jobs: list[ModelJob] = []
            for job in list(left):
                if len(jobs) < wait.want and line in (None, job.key) and busy[job.key] < limit:
                    jobs.append(job)
                    left.remove(job)
                    busy[job.key] += 1
            served += [(wait, jobs)] if jobs else []
        return served

    def serve_puts(self, tube: ModelTube) -> None:
        """Serve waiting puts in order of arrival. A put that has no room blocks those behind it."""
        for wait in self.put_waits(tube):
            if tube.paused_in or not has_room(self.jobs, tube, 1, len(wait.draft.body)):
                return
            try:
                wait.job = twin(self.jobs, tube, wait.draft, self.now) or self.admit(tube, wait.draft)
            except Refused as refusal:
                wait.refusal = refusal.code
            self.end_wait(wait, "timed out" if wait.refusal else "served")
