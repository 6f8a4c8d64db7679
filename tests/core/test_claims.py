"""Claims: the limits of disk and memory, and verdicts on jobs, which are executed when the claim is acked."""

from __future__ import annotations

from dataclasses import replace

from penstock.core import claims
from penstock.core.job import VERDICT_BURY, VERDICT_MOVE, VERDICT_NACK, Job, Verdict
from penstock.core.limits import CONSUMER_MEMORY_BYTES, NEVER, UNSET
from penstock.core.policy import FIFO, FIFOTTL

from .engine_harness import EngineHarness


def test_a_consumer_that_never_claimed_is_not_stored(desk: EngineHarness) -> None:
    now = desk.clock.ms
    assert claims.renew_claims(desk.engine, b"nobody", 1, 1_000, now) == 0
    assert claims.release_claims(desk.engine, b"nobody", 1, now) == 0
    assert claims.ack_claims(desk.engine, b"nobody", 1, 0, now) == 0
    assert desk.engine.consumers == {} and desk.engine.memory_used() == 0


def test_a_consumer_that_found_no_job_to_claim_is_stored_with_its_token(desk: EngineHarness) -> None:
    """A stream that waits for its first job can be fenced by its successor."""
    tube, now = desk.tube(FIFO), desk.clock.ms
    assert claims.claim(desk.engine, b"reader", 2, 1, tube, 10, 1_000, now) is None
    with desk.refuses("FENCED"):
        claims.claim(desk.engine, b"reader", 1, 1, tube, 10, 1_000, now)


def test_consumers_count_as_memory(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFO), desk.clock.ms
    jobs = desk.puts(tube, 2)
    each = CONSUMER_MEMORY_BYTES + len(b"reader 1")
    desk.engine.memory_max = desk.engine.memory_used() + 2 * each - 1
    claims.claim(desk.engine, b"reader 1", 0, 1, tube, 1, 1_000, now)
    with desk.refuses("NOMEMORY"):
        claims.claim(desk.engine, b"reader 2", 0, 1, tube, 1, 1_000, now)
    # A known consumer can continue.
    claimed = claims.claim(desk.engine, b"reader 1", 0, 2, tube, 1, 1_000, now)
    assert claimed is not None and [job.id for job in claimed.jobs] == jobs[1:]


def test_on_a_full_disk_claims_are_refused_and_acks_accepted(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFO), desk.clock.ms
    jobs = desk.puts(tube, 3)
    desk.engine.moves_left = 2
    claimed = claims.claim(desk.engine, b"reader", 0, 1, tube, 3, 1_000, now)
    assert claimed is not None and [job.id for job in claimed.jobs] == jobs[:2]
    with desk.refuses("NOSPACE"):
        claims.claim(desk.engine, b"reader", 0, 2, tube, 3, 1_000, now)
    assert claims.ack_claims(desk.engine, b"reader", 0, 1, now) == 2
    desk.engine.moves_left = NEVER
    assert [desk.state(job) for job in jobs] == ["gone", "gone", "ready"]


# ---- Verdicts --------------------------------------------------------------------------------------------------------


def verdict(kind: int, reason: bytes = b"", delay_ms: int = UNSET, tube: bytes = b"") -> Verdict:
    return Verdict(kind, reason, delay_ms, tube)


def test_verdicts_are_executed_when_the_claim_is_acked_and_not_before(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFOTTL), desk.clock.ms
    target = desk.tube(FIFO, b"target")
    ids = desk.puts(tube, 5)
    made = claims.claim(desk.engine, b"reader", 1, 1, tube, 5, 1_000, now)
    assert made is not None
    jobs = list(made.jobs)
    given = [
        None,
        verdict(VERDICT_NACK, b"again"),
        verdict(VERDICT_NACK, delay_ms=500),
        verdict(VERDICT_BURY, b"cannot be parsed"),
        verdict(VERDICT_MOVE, b"odd", tube=b"target"),
    ]
    for _ in range(2):  # Repeating the command changes nothing.
        assert claims.judge_jobs(desk.engine, b"reader", 1, 1, jobs, given, now) == 5
    assert claims.read_claim(desk.engine, b"reader", 1, now).jobs == jobs
    assert [desk.state(job) for job in ids] == ["taken"] * 5
    assert claims.ack_claims(desk.engine, b"reader", 1, 1, now) == 5
    assert [desk.state(job) for job in ids] == ["gone", "ready", "delayed", "buried", "ready"]
    assert [(job.nacks, job.ensure_extra().reason) for job in jobs[1:]] == [
        *((1, b"again"), (1, b"")),
        *((0, b"cannot be parsed"), (0, b"odd")),
    ]
    assert jobs[4].tube == target.slot and jobs[2].wake == now + 500
    assert all(job.ensure_extra().verdict is None for job in jobs[1:])
    # The claim has ended, so a consumer that repeats its verdicts is refused.
    with desk.refuses("CLAIMGONE"):
        claims.judge_jobs(desk.engine, b"reader", 1, 1, jobs, given, now)


def test_verdicts_have_no_effect_if_the_claim_ends_without_an_ack(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFOTTL), desk.clock.ms
    (id,) = desk.puts(tube, 1)
    for number in (1, 2):
        made = claims.claim(desk.engine, b"reader", 1, number, tube, 5, 1_000, now)
        assert made is not None
        if number == 1:
            claims.judge_jobs(desk.engine, b"reader", 1, 1, made.jobs, [verdict(VERDICT_BURY)], now)
            assert claims.release_claims(desk.engine, b"reader", 1, now) == 1
            assert desk.state(id) == "ready"
    assert claims.ack_claims(desk.engine, b"reader", 1, 2, now) == 1
    assert desk.state(id) == "gone"


def test_an_ack_or_a_clear_removes_verdicts(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFOTTL), desk.clock.ms
    ids = desk.puts(tube, 2)
    made = claims.claim(desk.engine, b"reader", 1, 1, tube, 5, 1_000, now)
    assert made is not None
    first, second = jobs = list(made.jobs)
    claims.judge_jobs(desk.engine, b"reader", 1, 1, jobs, [verdict(VERDICT_BURY), verdict(VERDICT_NACK)], now)
    claims.judge_jobs(desk.engine, b"reader", 1, 1, [first], [None], now)
    # A new driver processes the claim again.
    assert claims.clear_verdicts(desk.engine, b"reader", 2, 1, now) == 1
    with desk.refuses("FENCED"):
        claims.judge_jobs(desk.engine, b"reader", 1, 1, [second], [verdict(VERDICT_NACK)], now)
    claims.ack_claims(desk.engine, b"reader", 2, 1, now)
    assert [desk.state(job) for job in ids] == ["gone", "gone"]


def test_verdicts_are_checked_when_they_are_given(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFO), desk.clock.ms
    desk.puts(tube, 2)
    made = claims.claim(desk.engine, b"reader", 1, 1, tube, 1, 1_000, now)
    other = claims.claim(desk.engine, b"other", 1, 1, tube, 1, 1_000, now)
    assert made is not None and other is not None

    (mine,), (foreign,) = made.jobs, other.jobs

    def judge(job: Job, given: Verdict) -> None:
        claims.judge_jobs(desk.engine, b"reader", 1, 1, [mine, job], [verdict(VERDICT_NACK), given], now)

    for code, job, given in (
        ("NOTTAKEN", foreign, verdict(VERDICT_NACK)),
        ("NOTUBE", mine, verdict(VERDICT_MOVE, tube=b"nowhere")),
        ("RANGE", mine, verdict(VERDICT_MOVE, tube=tube.name)),
        ("RANGE", mine, verdict(VERDICT_NACK, b"x" * 5_000)),
        ("UNSUPPORTED", mine, verdict(VERDICT_NACK, delay_ms=5)),
    ):
        with desk.refuses(code):
            judge(job, given)
    assert mine.ensure_extra().verdict is None, "a command that is refused stores none of its verdicts"


def test_a_job_whose_target_is_dropped_before_the_ack_is_buried(desk: EngineHarness) -> None:
    tube, now = desk.tube(FIFOTTL), desk.clock.ms
    target = desk.tube(FIFO, b"target")
    (id,) = desk.puts(tube, 1)
    made = claims.claim(desk.engine, b"reader", 1, 1, tube, 1, 1_000, now)
    assert made is not None
    (job,) = made.jobs
    claims.judge_jobs(desk.engine, b"reader", 1, 1, [job], [verdict(VERDICT_MOVE, tube=b"target")], now)
    desk.engine.drop(target, now)
    claims.ack_claims(desk.engine, b"reader", 1, 1, now)
    assert desk.state(id) == "buried" and b"dropped" in job.ensure_extra().reason


def test_a_nack_with_a_delay_still_counts_for_the_retry_policy(desk: EngineHarness) -> None:
    tube, now = desk.tube(replace(FIFOTTL, retry="2x then bury")), desk.clock.ms
    (id,) = desk.puts(tube, 1)
    for number, state in ((1, "delayed"), (2, "buried")):
        made = claims.claim(desk.engine, b"reader", 1, number, tube, 1, 60_000, now)
        assert made is not None
        claims.judge_jobs(desk.engine, b"reader", 1, number, made.jobs, [verdict(VERDICT_NACK, delay_ms=9)], now)
        claims.ack_claims(desk.engine, b"reader", 1, number, now)
        assert desk.state(id) == state
        now += 9
