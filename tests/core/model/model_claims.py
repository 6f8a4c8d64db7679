"""The model of claims: numbered batches that a consumer can read again."""

from __future__ import annotations

from penstock.core import limits
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET

from .model_job_commands import ModelJobCommands
from .model_parts import (
    ModelClaim,
    ModelConsumer,
    ModelJob,
    ModelTube,
    ModelVerdict,
    check_return,
    require,
)
from .model_puts import has_room


class FullModel(ModelJobCommands):
    """The model with all commands of the engine."""

    def consumer(self, name: bytes, token: int) -> ModelConsumer:
        """Return a consumer. An older token is refused."""
        require(1 <= len(name) <= limits.NAME_BYTES_MAX, "BADNAME")
        require(0 <= token < NEVER, "RANGE")
        # A new consumer is stored by `claim` only.
        consumer = self.consumers.get(name) or ModelConsumer(name, token)
        require(token >= consumer.token, "FENCED")
        return consumer

    def accept(self, consumer: ModelConsumer, token: int) -> None:
        consumer.token = token

    def lease(self, claim: ModelClaim, lease_ms: int) -> None:
        claim.due, claim.set_at = self.now + lease_ms, self.tick()

    def claim(
        self, name: bytes, token: int, number: int, tube: ModelTube, count: int, lease_ms: int, now: int
    ) -> ModelClaim | None:
        self.advance(now)
        require(1 <= count <= limits.BATCH_JOBS_MAX, "RANGE")
        require(0 <= lease_ms <= limits.DURATION_MS_MAX, "RANGE")
        require(0 < number < NEVER, "RANGE")
        consumer = self.consumer(name, token)
        claim = consumer.claims.get(number) or self.new_claim(consumer, number, tube, count)
        self.accept(consumer, token)
        self.consumers[name] = consumer
        if claim is not None:
            self.lease(claim, lease_ms)
        return claim

    def new_claim(self, consumer: ModelConsumer, number: int, tube: ModelTube, count: int) -> ModelClaim | None:
        require(number > consumer.newest, "CLAIMGONE")
        require(number == consumer.newest + 1 and len(consumer.claims) < limits.CLAIMS_OPEN_MAX, "RANGE")
        claim = ModelClaim(number, [])
        while len(claim.jobs) < count and not tube.paused_out:
            job = self.first(tube, None)
            if job is None or (job.once and claim.jobs):
                break
            require(not job.once, "ONLYONCE")
            job.deliveries += 1
            job.wake = NEVER
            job.claim = claim
            self.happen(job, "claimed", "taken")
            claim.jobs.append(job)
        if not claim.jobs:
            return None
        consumer.newest = number
        consumer.claims[number] = claim
        return claim

    def read_claim(self, name: bytes, number: int, now: int) -> ModelClaim:
        self.advance(now)
        require(name in self.consumers and number in self.consumers[name].claims, "CLAIMGONE")
        return self.consumers[name].claims[number]

    def renew_claims(self, name: bytes, token: int, lease_ms: int, now: int) -> int:
        self.advance(now)
        require(0 <= lease_ms <= limits.DURATION_MS_MAX, "RANGE")
        consumer = self.consumer(name, token)
        self.accept(consumer, token)
        for claim in consumer.claims.values():
            self.lease(claim, lease_ms)
        return len(consumer.claims)

    def ack_claims(self, name: bytes, token: int, upto: int, now: int) -> int:
        self.advance(now)
        require(0 <= upto < NEVER, "RANGE")
        consumer = self.consumer(name, token)
        require(upto <= consumer.newest, "RANGE")
        self.accept(consumer, token)
        finished = [claim for number, claim in consumer.claims.items() if number <= upto]
        for claim in finished:
            for job in claim.jobs:
                if job.verdict is not None and not job.doomed:
                    self.execute(job, job.verdict)
                else:
                    self.end_as_acked(job)
            del consumer.claims[claim.number]
        consumer.acked = max(consumer.acked, upto)
        self.settle()
        return sum(len(claim.jobs) for claim in finished)

    def judge(
        self, name: bytes, token: int, number: int, given: list[tuple[ModelJob, ModelVerdict | None]], now: int
    ) -> int:
        self.advance(now)
        require(0 <= number < NEVER, "RANGE")
        consumer = self.consumer(name, token)
        require(number in consumer.claims, "CLAIMGONE")
        for job, verdict in given:
            require(job in consumer.claims[number].jobs, "NOTTAKEN")
            if verdict is not None:
                self.check_verdict(job, verdict)
        self.accept(consumer, token)
        for job, verdict in given:
            if job.verdict != verdict:
                job.verdict = verdict
                self.happen(job, "judged", "taken")
        self.settle()
        return len(given)

    def check_verdict(self, job: ModelJob, verdict: ModelVerdict) -> None:
        delayed_in = job.tube
        require(verdict.kind != "bury" or job.tube.policy.has_bury, "UNSUPPORTED")
        if verdict.kind == "move":
            require(verdict.tube in self.tubes, "NOTUBE")
            target = delayed_in = self.tubes[verdict.tube]
            require(target is not job.tube, "RANGE")
            require(not target.paused_in, "PAUSED")
            if target.policy.capacity or target.policy.capacity_bytes:
                fits = has_room(self.jobs, target, 1, len(job.body))
                require(fits and not self.put_waits(target), "FULL")
        if verdict.delay_ms != UNSET:
            check_return(delayed_in, verdict.delay_ms, UNSET, PRIORITY_UNSET)

    def execute(self, job: ModelJob, verdict: ModelVerdict) -> None:
        if verdict.reason or verdict.kind == "bury":
            job.reason = verdict.reason
        if verdict.kind == "nack":
            job.nacks += 1
            self.fail(job, "nacked", verdict.delay_ms)
        elif verdict.kind == "move" and verdict.tube in self.tubes:
            target = self.tubes[verdict.tube]
            if verdict.delay_ms > 0 and target.policy.has_delay:
                job.wake = self.now + verdict.delay_ms
                self.transfer(job, target, "moved in delayed", "delayed")
            else:
                self.transfer(job, target, "moved in", "ready")
        else:
            if verdict.kind == "move":
                job.reason = b"the job cannot move to the tube of its verdict, because the tube was dropped"
            job.buries += 1
            self.happen(job, "buried", "buried")

    def release_claims(self, name: bytes, token: int, now: int) -> int:
        self.advance(now)
        consumer = self.consumer(name, token)
        self.accept(consumer, token)
        claims = list(consumer.claims.values())
        for claim in claims:
            self.end_claim(claim)
        self.settle()
        return len(claims)
