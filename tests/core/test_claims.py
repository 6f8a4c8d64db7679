"""Claims respect the limits of disk and memory: a consumer counts as memory, and acks can use their reserve."""

from __future__ import annotations

from penstock.core import claims
from penstock.core.limits import CONSUMER_MEMORY_BYTES, NEVER
from penstock.core.policy import FIFO

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
