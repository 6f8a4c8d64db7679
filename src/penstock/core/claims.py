"""Claims: numbered batches of jobs for a consumer that must be able to read the same batch again.

A stream reader plans a batch, reads it in several processes, may fail and read it again, and learns later that it was
finished. Therefore a consumer requests claim number n and always gets the same jobs, until it acks the claim or the
claim's lease ends. While a claim holds a job, the job's ttr does not apply and its ttl does not end. Other clients
cannot ack, release or bury the job, and a delete takes effect when the claim ends.

A consumer can give a *verdict* on a job of an open claim: nack, bury or move. The verdict is stored with the job and
executed when the claim is acked, so that the claim still returns the same jobs until then. Jobs without a verdict are
acked. If the claim ends without an ack, its verdicts have no effect.

A consumer is fenced by its token: a client with a greater token takes over, and later requests with the smaller token
are refused.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.batches import Claim, Consumer
from penstock.core.engine import Engine
from penstock.core.errors import ClaimGone, Fenced, NotTaken, OnlyOnce, OutOfRange
from penstock.core.job import HELD_BY_CLAIM, NO_KEY, VERDICT_BURY, VERDICT_MOVE, Job, Verdict
from penstock.core.limits import (
    CLAIMS_OPEN_MAX,
    CONSUMER_MEMORY_BYTES,
    FIRED_PER_TURN_MAX,
    NEVER,
    PRIORITY_UNSET,
    REASON_BYTES_MAX,
    UNSET,
    check_count,
    check_finite,
    check_name,
)
from penstock.core.tube import Tube


def last_lease(engine: Engine, name: bytes) -> int:
    """Return the duration of a consumer's last lease in ms, or 0 if there is none. Requests without a lease use it."""
    consumer = engine.consumers.get(name)
    return 0 if consumer is None else consumer.lease_ms


def claim(
    engine: Engine, name: bytes, token: int, number: int, tube: Tube, count: int, lease_ms: int, now: i64
) -> Claim | None:
    """Return claim `number`: the same jobs if it exists already, otherwise up to `count` of the next jobs.

    In both cases the lease restarts. Return None if there is no job to claim. The number can then be used again.
    """
    engine.advance(now)
    check_count(count, "count")
    check_finite(lease_ms, "lease")
    _check_number(number)
    if number == 0:
        raise OutOfRange("claims are numbered from 1")
    if tube.driven:
        raise tube.lacks("claims: its driver decides which jobs it serves")
    consumer = _consumer(engine, name, token)
    engine._check_moves()
    if name not in engine.consumers:
        engine.check_room(0, 0, CONSUMER_MEMORY_BYTES + len(name))
    there = consumer.claims.get(number)
    if there is None:
        there = _new_claim(engine, consumer, number, tube, count, now)
    if name not in engine.consumers:
        # Store the consumer even if there was no job, because its token is valid from now on.
        engine.add_consumer(consumer)
        engine.outbox.consumer_changed(consumer, now)
    _admit(engine, consumer, token)
    if there is not None:
        consumer.lease_ms = lease_ms
        engine.deadlines.set(there, now + i64(lease_ms))
        engine.outbox.consumer_changed(consumer, now)
    return there


def read_claim(engine: Engine, name: bytes, number: int, now: i64) -> Claim:
    """Return an open claim. Raise ClaimGone if it has ended."""
    engine.advance(now)
    consumer = engine.consumers.get(name)
    found = None if consumer is None else consumer.claims.get(number)
    if found is None:
        raise ClaimGone()
    return found


def renew_claims(engine: Engine, name: bytes, token: int, lease_ms: int, now: i64) -> int:
    """Restart the leases of all claims of a consumer. Return how many there are."""
    engine.advance(now)
    check_finite(lease_ms, "lease")
    consumer = _consumer(engine, name, token)
    _admit(engine, consumer, token)
    for held in consumer.claims.values():
        engine.deadlines.set(held, now + i64(lease_ms))
    return len(consumer.claims)


def ack_claims(engine: Engine, name: bytes, token: int, upto: int, now: i64) -> int:
    """Ack all claims up to number `upto`. Return how many jobs they have.

    All of them are acked at once, but each turn removes a limited number of jobs. `is_acking` returns whether some are
    left for later turns. Acking again has no effect.
    """
    engine.advance(now)
    _check_number(upto)
    consumer = _consumer(engine, name, token)
    if upto > consumer.newest:
        raise OutOfRange(f"there is no claim {upto} to ack; the newest is {consumer.newest}")
    _admit(engine, consumer, token)
    finished = [held for held in consumer.claims.values() if held.number <= upto]
    acked = 0
    for each in finished:
        engine._close_claim(each)
        each.acked = True
        each.jobs.reverse()
        consumer.acking[each.number] = each
        engine.deadlines.set(each, now)
        acked += len(each.jobs)
    if finished or upto > consumer.acked:
        consumer.acked = max(consumer.acked, upto)
        engine.outbox.consumer_changed(consumer, now)
    _end_some(engine, finished, now)
    return acked


def judge_jobs(
    engine: Engine, name: bytes, token: int, number: int, jobs: list[Job], verdicts: list[Verdict | None], now: i64
) -> int:
    """Give each of these jobs of an open claim a verdict. None stands for an ack and removes an earlier verdict.

    Either all verdicts are valid and stored, or an error is raised and none is stored. Return the number of jobs.
    """
    engine.advance(now)
    consumer, _ = open_claim(engine, name, token, number)
    engine._check_moves()
    for at in range(len(jobs)):
        job = jobs[at]
        extra = job.extra
        if job.holder != HELD_BY_CLAIM or extra is None or extra.consumer != name or extra.claim != number:
            raise NotTaken(f"job {at + 1} of the command is not in claim {number} of this consumer")
        verdict = verdicts[at]
        if verdict is not None:
            _check_verdict(engine, engine.tube_of(job), job, verdict)
    _admit(engine, consumer, token)
    for at in range(len(jobs)):
        _store_verdict(engine, jobs[at], verdicts[at], now)
    engine.settle(now)
    return len(jobs)


def clear_verdicts(engine: Engine, name: bytes, token: int, number: int, now: i64) -> int:
    """Remove all verdicts on jobs of an open claim, so that the claim can be processed again. Return how many."""
    engine.advance(now)
    consumer, held = open_claim(engine, name, token, number)
    judged = [job for job in held.jobs if job.extra is not None and job.extra.verdict is not None]
    if judged:
        engine._check_moves()
    _admit(engine, consumer, token)
    for job in judged:
        _store_verdict(engine, job, None, now)
    engine.settle(now)
    return len(judged)


def open_claim(engine: Engine, name: bytes, token: int, number: int) -> tuple[Consumer, Claim]:
    """Return a consumer and its open claim. Raise Fenced or ClaimGone if verdicts on its jobs are refused."""
    _check_number(number)
    consumer = _consumer(engine, name, token)
    found = consumer.claims.get(number)
    if found is None:
        raise ClaimGone()
    return consumer, found


def _check_verdict(engine: Engine, tube: Tube, job: Job, verdict: Verdict) -> None:
    """Raise an error if a job of this tube cannot be nacked, buried or moved in this way."""
    if len(verdict.reason) > REASON_BYTES_MAX:
        raise OutOfRange(f"a reason must have at most {REASON_BYTES_MAX} bytes")
    delayed_in = tube
    if verdict.kind == VERDICT_BURY and not tube.policy.has_bury:
        raise tube.lacks("bury")
    if verdict.kind == VERDICT_MOVE:
        delayed_in = engine.tube(verdict.tube)
        if delayed_in is tube:
            raise OutOfRange("the job is in that tube already")
        engine.check_arrival(job, delayed_in)
    if verdict.delay_ms != UNSET:
        delayed_in.check_return(int(verdict.delay_ms), UNSET, PRIORITY_UNSET)


def _store_verdict(engine: Engine, job: Job, verdict: Verdict | None, now: i64) -> None:
    extra = job.ensure_extra()
    before = extra.verdict
    if before is verdict or (before is not None and verdict is not None and before.encode() == verdict.encode()):
        return
    extra.verdict = verdict
    engine._move(job, engine.tube_of(job), s.JUDGED, now)


def is_acking(engine: Engine, name: bytes) -> bool:
    """Return whether acked claims of a consumer still have jobs, which later turns remove."""
    consumer = engine.consumers.get(name)
    return consumer is not None and len(consumer.acking) > 0


def release_claims(engine: Engine, name: bytes, token: int, now: i64) -> int:
    """End all claims of a consumer without an ack. Return how many there were.

    Each turn returns a limited number of their jobs to the tubes.
    """
    engine.advance(now)
    consumer = _consumer(engine, name, token)
    _admit(engine, consumer, token)
    held = list(consumer.claims.values())
    for each in held:
        engine._close_claim(each)
        engine.deadlines.set(each, now)
    if held:
        engine.outbox.consumer_changed(consumer, now)
    _end_some(engine, held, now)
    return len(held)


def _end_some(engine: Engine, claims: list[Claim], now: i64) -> None:
    """Return jobs of ended claims to their tubes, or remove the jobs if their claim was acked.

    One turn handles a limited number of jobs. The deadlines of the claims are due, so the next turn handles more.
    """
    ended: i64 = 0
    for each in claims:
        if ended >= FIRED_PER_TURN_MAX or engine.outbox.full():
            break
        ended += engine._end_claim(each, now)
    engine.settle(now)


def _check_number(number: int) -> None:
    if number < 0 or number >= NEVER:
        raise OutOfRange("claims are numbered from 1, and their numbers fit in 61 bits")


def _consumer(engine: Engine, name: bytes, token: int) -> Consumer:
    """Return the consumer of this name. Raise Fenced if a greater token was used before.

    If no consumer has this name, return a new one without storing it. Only `claim` stores new consumers.
    """
    check_name(name, "the name of a consumer")
    if token < 0 or token >= NEVER:
        raise OutOfRange("a consumer's token must be 0 or more, and fit in 61 bits")
    consumer = engine.consumers.get(name)
    if consumer is None:
        return Consumer(name, token)
    if token < consumer.token:
        raise Fenced()
    return consumer


def _admit(engine: Engine, consumer: Consumer, token: int) -> None:
    """Store `token` as the newest token of the consumer."""
    if token != consumer.token:
        consumer.token = token
        engine.outbox.consumer_changed(consumer, engine.now)


def _new_claim(engine: Engine, consumer: Consumer, number: int, tube: Tube, count: int, now: i64) -> Claim | None:
    if number <= consumer.newest:
        raise ClaimGone()
    if number != consumer.newest + 1:
        raise OutOfRange(f"the next claim of this consumer is number {consumer.newest + 1}, not {number}")
    if len(consumer.claims) >= CLAIMS_OPEN_MAX:
        raise OutOfRange(f"a consumer may have {CLAIMS_OPEN_MAX} claims open; ack the finished ones first")
    key = NO_KEY if tube.requires_key else None
    made = Claim(consumer, number)
    while len(made.jobs) < count and not tube.paused_out:
        if engine.moves_left <= 0 and not engine._refill_moves():
            break
        job = engine._first(tube, key, now)
        if job is None or (made.jobs and engine.outbox.full()):
            break
        if job.once:
            if not made.jobs:
                raise OnlyOnce("the next job may be delivered at most once, and a claim may be read again")
            break
        job.deliveries += 1
        job.wake = NEVER
        job.holder = HELD_BY_CLAIM
        extra = job.ensure_extra()
        extra.consumer = consumer.name
        extra.claim = number
        extra.claim_place = len(made.jobs)
        engine._move(job, tube, s.CLAIMED, now)
        made.jobs.append(job)
    if not made.jobs:
        return None
    consumer.newest = number
    consumer.claims[number] = made
    return made
