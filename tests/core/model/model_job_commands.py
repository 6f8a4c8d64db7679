"""Further commands of the model on jobs: requeue, done, snatch, restart, switch, move, and edits."""

from __future__ import annotations

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET

from .model_parts import (
    ModelJob,
    ModelSession,
    ModelTube,
    check_return,
    is_duration,
    is_spent,
    not_held,
    not_returnable,
    require,
    swap_out,
)
from .model_puts import has_room
from .queue_model import Model

ARRIVALS = {
    "ready": ("moved in", "ready"),
    "taken": ("moved in", "ready"),
    "delayed": ("moved in delayed", "delayed"),
    "buried": ("moved in buried", "buried"),
    "done": ("moved in done", "done"),
}


class ModelJobCommands(Model):
    """Less common commands."""

    def requeue(self, session: ModelSession, job: ModelJob, now: int) -> str:
        """Place a job behind all others.

        In a tube with priorities it is behind the lowest, otherwise it is no longer urgent.
        """
        refusal = not_returnable(job, session)
        if refusal != "OK":
            return refusal
        if job.tube.policy.order == p.BY_PRIORITY:
            job.given = job.priority if job.given == PRIORITY_UNSET else job.given
            job.priority = limits.PRIORITY_BACK
        elif job.given != PRIORITY_UNSET:
            job.priority, job.given = job.given, PRIORITY_UNSET
        self.go_behind(job, job.tube)
        job.returns += 1
        self.happen(job, "requeued", "ready")
        self.settle()
        return "OK"

    def release_all(self, tube: ModelTube, now: int) -> int:
        self.advance(now)
        jobs = [job for job in tube.taken if job.claim is None and not job.once]
        for job in jobs:
            job.returns += 1
            self.happen(job, "released", "ready")
        self.settle()
        return len(jobs)

    def done(self, session: ModelSession, job: ModelJob, body: bytes, now: int, ttl_ms: int = UNSET) -> str:
        """Keep a job with its result until the ttl of the result ends."""
        require(len(body) <= self.body_bytes_max, "TOOBIG")
        require(ttl_ms in (UNSET, limits.JOB_TTL) or is_duration(ttl_ms), "RANGE")
        refusal = not_held(job, session)
        if refusal == "OK":
            self.set_body(job, body)
            if ttl_ms == UNSET:
                ttl_ms = NEVER if job.tube.policy.after_ack == p.KEPT else limits.RESULT_TTL_MS
            if ttl_ms != limits.JOB_TTL:
                job.expiry = NEVER if ttl_ms == NEVER else self.now + ttl_ms
            self.happen(job, "kept", "done")
            self.settle()
        return refusal

    def snatch(self, job: ModelJob, now: int, delay_ms: int = 0) -> str:
        if job.state != "taken":
            return "NOTTAKEN"
        if job.claim is not None:
            return "NOTOWNER"
        if job.once:
            return "ONLYONCE"
        self.send_back(job, ("snatched", "snatched delayed"), delay_ms, UNSET, PRIORITY_UNSET)
        return "OK"

    def restart(self, job: ModelJob, now: int, delay_ms: int = 0) -> str:
        if job.state not in ("delayed", "done", "zombie"):
            return "ISTAKEN" if job.state == "taken" else "NOTKEPT"
        if is_spent(job):
            return "ONLYONCE"
        check_return(job.tube, delay_ms, UNSET, PRIORITY_UNSET)
        self.forget_result_ttl(job)
        was_coming = job.state == "delayed"
        self.send_back(job, ("restarted", "restarted delayed"), delay_ms, UNSET, PRIORITY_UNSET)
        if was_coming:
            job.returns -= 1  # A restart of a delayed job is not counted as a return.
        return "OK"

    def set_priority(self, job: ModelJob, now: int, priority: int) -> str:
        if job.state not in ("ready", "delayed", "buried"):
            return "ISTAKEN" if job.state == "taken" else "NOTWAITING"
        check_return(job.tube, 0, UNSET, priority)
        if (job.priority, job.given) != (priority, PRIORITY_UNSET):
            job.priority, job.given = priority, PRIORITY_UNSET
            self.happen(job, "prioritized", job.state)
        return "OK"

    def edit(self, job: ModelJob, now: int, body: bytes) -> str:
        if job.state not in ("ready", "delayed", "buried"):
            return "ISTAKEN" if job.state == "taken" else "NOTWAITING"
        require(len(body) <= self.body_bytes_max, "TOOBIG")
        capacity = job.tube.policy.capacity_bytes
        used = sum(len(other.body) for other in self.jobs if other.tube is job.tube)
        more = len(body) - len(job.body)
        require(more <= 0 or capacity == 0 or used + more <= capacity, "FULL")
        is_indexed = job.tube.policy.unique_bodies and job.state in ("ready", "delayed")
        if is_indexed:
            swap_out(job.tube.alike[job.state, job.body], job)
        self.set_body(job, body)
        if is_indexed:
            job.tube.alike.setdefault((job.state, body), []).append(job)
        self.happen(job, "edited", job.state)
        self.settle()
        return "OK"

    def end_delay(self, job: ModelJob, now: int) -> str:
        if job.state != "delayed":
            return "ISTAKEN" if job.state == "taken" else "NOTDELAYED"
        return self.restart(job, now)

    def switch(self, job: ModelJob, state: str, now: int, delay_ms: int) -> str:
        if job.state == "taken":
            return "ISTAKEN"
        require(state in ("ready", "delayed", "buried", "done", "zombie"), "RANGE")
        require(0 <= delay_ms <= limits.DURATION_MS_MAX, "RANGE")
        require((state in ("delayed", "zombie")) == (delay_ms > 0), "RANGE")
        if is_spent(job) and state in ("ready", "delayed"):
            return "ONLYONCE"
        if state != "done":
            self.forget_result_ttl(job)
        if delay_ms:
            job.wake = self.now + delay_ms
        elif state == "done" and job.tube.policy.after_ack == p.KEPT:
            job.expiry = NEVER
        self.happen(job, f"switched to {state}", state)
        self.settle()
        return "OK"

    def forget_result_ttl(self, job: ModelJob) -> None:
        ttl_ms = job.tube.policy.default_ttl_ms
        if job.state == "done" and job.expiry != NEVER:
            job.expiry = NEVER if ttl_ms == NEVER else self.now + ttl_ms

    def move(self, session: ModelSession, job: ModelJob, target: ModelTube, now: int, delay_ms: int = 0) -> str:
        require(job.tube is not target, "RANGE")
        require(not job.once or target.policy.owner == p.ANYONE, "UNSUPPORTED")
        require(not target.paused_in, "PAUSED")
        policy = target.policy
        if policy.capacity or policy.capacity_bytes:
            fits = has_room(self.jobs, target, 1, len(job.body))
            require(fits and not self.put_waits(target), "FULL")
        if job.state == "taken" and not_returnable(job, session) != "OK":
            return not_returnable(job, session)
        if job.state == "zombie":
            return "NOTTAKEN"
        if delay_ms:
            check_return(target, delay_ms, UNSET, PRIORITY_UNSET)
            job.wake = self.now + delay_ms
            self.transfer(job, target, "moved in delayed", "delayed")
        else:
            self.transfer(job, target, *ARRIVALS[job.state])
        self.settle()
        return "OK"
