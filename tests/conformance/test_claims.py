"""Claims: numbered batches that can be read again, acked up to a number, and end whole with their lease."""

from __future__ import annotations

import asyncio
from typing import Any

from .interfaces import Interface, another, code_of, eventually, own, state_of

# Longer than a busy machine stalls, because a lease has to be renewed before it ends.
LEASE_S = 4


async def filled(queue: Any, count: int = 5, name: str = "stream", type: str | None = None, **options: Any) -> Any:
    tube = await queue.tube(name, type, **options)
    await tube.put_many(range(count))
    return tube


def bodies(jobs: list[Any]) -> list[Any]:
    return [job.body for job in jobs]


async def test_a_claim_is_identical_however_often_it_is_read(queue: Any) -> None:
    tube = await filled(queue)
    first = await tube.claim(own("reader"), 1, 2)
    assert bodies(first) == [0, 1]
    other = await another(queue)
    again = await (await other.tube("stream")).claim(own("reader"), 1, 2)
    assert [job.id for job in again] == [job.id for job in first]
    await tube.put("more", urgent=True)
    assert await tube.claim(own("reader"), 1, 50) == first
    assert [job.deliveries for job in first] == [1, 1]


async def test_claims_are_numbered_and_each_has_jobs_of_its_own(queue: Any) -> None:
    tube = await filled(queue)
    assert await code_of(tube.claim(own("reader"), 2, 2)) == "RANGE"
    claims = [bodies(await tube.claim(own("reader"), number, 2)) for number in (1, 2, 3)]
    assert claims == [[0, 1], [2, 3], [4]]
    assert await tube.claim(own("reader"), 4, 2) is None, "there is nothing to claim"
    await tube.put("late")
    assert bodies(await tube.claim(own("reader"), 4, 2)) == ["late"], "the number was still free"


async def test_consumers_have_numbers_of_their_own_and_no_job_twice(queue: Any) -> None:
    tube = await filled(queue)
    assert bodies(await tube.claim(own("one"), 1, 2)) == [0, 1]
    assert bodies(await tube.claim(own("two"), 1, 2)) == [2, 3]
    assert (await tube.take()).body == 4 and await tube.take() is None


async def test_acking_up_to_a_number_ends_all_claims_before_it(queue: Any) -> None:
    tube = await filled(queue)
    for number in (1, 2, 3):
        await tube.claim(own("reader"), number, 2)
    assert await queue.ack_claims(own("reader"), 2) == 4
    assert (await tube.stats())["taken"] == 1 and (await tube.events())["acked"] == 4
    assert (
        await code_of(tube.claim(own("reader"), 1, 2)) == await code_of(tube.claim(own("reader"), 2, 2)) == "CLAIMGONE"
    )
    assert await queue.ack_claims(own("reader"), 3) == 1


async def test_acking_twice_is_harmless_and_unclaimed_numbers_cannot_be_acked(queue: Any) -> None:
    tube = await filled(queue)
    await tube.claim(own("reader"), 1, 2)
    assert [await queue.ack_claims(own("reader"), 1) for _ in range(3)] == [2, 0, 0]
    assert await code_of(queue.ack_claims(own("reader"), 2)) == "RANGE"
    assert (await tube.stats())["ready"] == 3


async def test_a_lease_that_ends_gives_all_jobs_back_to_their_places(queue: Any) -> None:
    tube = await filled(queue, 4)
    claimed = await tube.claim(own("reader"), 1, 3, lease=0.03)
    seen = set()

    async def all_back() -> bool:
        seen.add((await tube.stats())["ready"])
        return 4 in seen

    await eventually(all_back)
    assert seen <= {1, 4}, "all come back at once"
    assert bodies(await tube.take_many(4)) == [0, 1, 2, 3]
    assert {(await queue.job(job.id)).deliveries for job in claimed} == {2}
    assert await code_of(tube.claim(own("reader"), 1, 3)) == "CLAIMGONE"
    assert (await tube.events())["claim ended"] == 3


async def test_a_lease_that_ends_serves_waiting_takes(queue: Any) -> None:
    tube = await filled(queue, 2)
    await tube.claim(own("reader"), 1, 2, lease=0.03)
    assert bodies(await tube.take_many(9, timeout=None)) == [0, 1]


async def test_reading_a_claim_again_renews_its_lease_and_so_does_renewing_it(queue: Any) -> None:
    tube = await filled(queue, 4)
    read = await tube.claim(own("reads"), 1, 1, lease=LEASE_S)
    renewed = await tube.claim(own("renews"), 1, 2, lease=LEASE_S)
    assert await tube.claim(own("reads"), 1, 1, lease=60) == read
    assert await queue.renew_claims(own("renews"), lease=60) == 1
    # The unused lease has the same length. When it ends, the others would have ended before if they were not renewed.
    [left] = await tube.claim(own("does neither"), 1, 1, lease=LEASE_S)
    assert await tube.take(timeout=None) == left
    assert [await state_of(job) for job in (*read, *renewed)] == ["taken"] * 3
    assert await queue.read_claim(own("renews"), 1) == renewed


async def test_a_greater_token_fences_the_smaller(queue: Any) -> None:
    tube = await filled(queue)
    first = await tube.claim(own("reader"), 1, 2, token=1)
    assert await tube.claim(own("reader"), 1, 2, token=2) == first
    assert await code_of(tube.claim(own("reader"), 1, 2, token=1)) == "FENCED"
    assert await code_of(tube.claim(own("reader"), 2, 2)) == "FENCED"
    assert await code_of(queue.ack_claims(own("reader"), 1, token=1)) == "FENCED"
    assert await queue.ack_claims(own("reader"), 1, token=2) == 2


async def test_a_refused_claim_does_not_fence_others(queue: Any) -> None:
    tube = await filled(queue)
    first = await tube.claim(own("reader"), 1, 2, token=1)
    assert await code_of(tube.claim(own("reader"), 77, 2, token=9)) == "RANGE"
    assert await code_of(queue.ack_claims(own("reader"), 77, token=9)) == "RANGE"
    assert await tube.claim(own("reader"), 1, 2, token=1) == first


async def test_only_its_consumer_can_finish_a_claimed_job(queue: Any) -> None:
    tube = await filled(queue, 2, ttr=0.01)
    job, doomed = await tube.claim(own("reader"), 1, 2)
    for call in (job.ack, job.release, job.requeue, job.nack, job.bury, job.touch, job.snatch):
        assert await code_of(call()) == "NOTOWNER", call
    assert await tube.release_all() == 0
    assert await tube.take(timeout=0.05) is None, "within a claim there is no ttr"
    await doomed.delete()
    assert [await state_of(each) for each in await tube.claim(own("reader"), 1, 2)] == ["taken", "taken"]


async def test_a_job_deleted_in_a_claim_goes_when_the_claim_ends(queue: Any) -> None:
    tube = await filled(queue, 2)
    doomed, job = await tube.claim(own("reader"), 1, 2, lease=0.03)
    await doomed.delete()
    assert await tube.take(timeout=None) == job
    assert await state_of(doomed) == "gone"


async def test_a_claim_survives_the_session_that_made_it(queue: Any) -> None:
    other = await another(queue)
    await filled(queue, 2)
    claimed = await (await other.tube("stream")).claim(own("reader"), 1, 2)
    await other.close()
    tube = await queue.tube("stream")
    assert bodies(await tube.claim(own("reader"), 1, 2)) == [0, 1]
    assert (await tube.stats())["taken"] == 2 == len(claimed)


async def test_a_claim_gets_only_ready_jobs_and_obeys_a_pause(queue: Any) -> None:
    tube = await filled(queue)
    held = await tube.take_many(2)
    await tube.pause(takes=True)
    assert await tube.claim(own("reader"), 1, 2) is None
    await tube.pause()
    assert bodies(await tube.claim(own("reader"), 1, 9)) == [2, 3, 4]
    await held[0].ack()


async def test_a_claim_counts_for_its_keys(queue: Any) -> None:
    tube = await queue.tube("keys", "utube")
    for body, key in [(1, "a"), (2, "a"), (3, "b")]:
        await tube.put(body, key=key)
    assert bodies(await tube.claim(own("reader"), 1, 9)) == [1, 3]
    assert await tube.take() is None
    await queue.ack_claims(own("reader"), 1)
    assert (await tube.take()).body == 2


async def test_a_job_that_may_be_delivered_once_cannot_be_claimed(queue: Any) -> None:
    tube = await queue.tube("once", "disque")
    job = await tube.put("x", once=True)
    assert await code_of(tube.claim(own("reader"), 1, 2)) == "ONLYONCE"
    assert await state_of(job) == "ready" and job.deliveries == 0


async def test_an_acked_claim_keeps_its_jobs_where_the_tube_keeps_them(queue: Any) -> None:
    tube = await filled(queue, 2, keep=True)
    claimed = await tube.claim(own("reader"), 1, 2)
    wait = asyncio.ensure_future(claimed[0].wait())
    assert await queue.ack_claims(own("reader"), 1) == 2
    assert await wait and [await state_of(job) for job in claimed] == ["done", "done"]


async def test_the_jobs_of_a_claim_say_which_tube_they_are_in(queue: Any) -> None:
    tube, other = await filled(queue, 1), await queue.tube("other")
    await tube.claim(own("reader"), 1, 1)
    [job] = await other.claim(own("reader"), 1, 1)
    assert job.tube == "stream"


async def test_a_put_that_waits_gets_in_when_a_claim_is_acked(queue: Any, face: Interface) -> None:
    tube = await filled(queue, 2, capacity=2)
    await tube.claim(own("reader"), 1, 1)
    put = asyncio.ensure_future(tube.put("next", timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await queue.ack_claims(own("reader"), 1)
    assert (await put).body == "next"


async def test_shards_of_a_claim_are_the_same_on_every_read_and_together_all_of_it(queue: Any) -> None:
    tube = await filled(queue, 7)
    claimed = await tube.claim(own("reader"), 1, 7)
    shards = [await queue.read_claim(own("reader"), 1, (index, 3)) for index in range(3)]
    assert [bodies(shard) for shard in shards] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [await queue.read_claim(own("reader"), 1, (index, 3)) for index in range(3)] == shards
    assert await queue.read_claim(own("reader"), 1) == claimed
    assert await queue.read_claim(own("reader"), 1, (9, 10)) == []
    for wrong in ((3, 3), (-1, 3), (0, 0)):
        assert await code_of(queue.read_claim(own("reader"), 1, wrong)) == "RANGE"
    assert await code_of(queue.read_claim(own("reader"), 1, 3)) == "WRONGTYPE"
    await queue.ack_claims(own("reader"), 1)
    assert await code_of(queue.read_claim(own("reader"), 1)) == "CLAIMGONE"


async def test_claims_are_renewed_released_and_described(queue: Any) -> None:
    tube = await filled(queue, 4)
    assert await queue.claim_info(own("reader")) == (0, 0, 0, [])
    await tube.claim(own("reader"), 1, 1, token=3)
    await tube.claim(own("reader"), 2, 2, token=3)
    assert await queue.claim_info(own("reader")) == (0, 2, 3, [1, 2])
    assert await queue.renew_claims(own("reader"), lease=60, token=3) == 2
    assert await code_of(queue.renew_claims(own("reader"), token=2)) == "FENCED"
    assert bodies(await queue.read_claim(own("reader"), 2)) == [1, 2]
    assert await queue.ack_claims(own("reader"), 1, token=3) == 1
    assert await queue.release_claims(own("reader"), token=3) == 1
    assert await queue.claim_info(own("reader")) == (1, 2, 3, [])
    assert bodies(await tube.take_many(4)) == [1, 2, 3]


async def test_truncating_removes_taken_jobs_and_those_of_a_large_claim_when_it_ends(queue: Any) -> None:
    tube = await filled(queue, 1_600)
    assert len(await tube.take_many(100)) == 100
    await tube.claim(own("reader"), 1, 1_500)
    assert await tube.truncate() == 1_600 and await tube.truncate() == 0
    assert (await tube.stats())["taken"] == 1_500
    await queue.release_claims(own("reader"))
    assert (await tube.events())["deleted"] == 1_500 and sum((await tube.stats()).values()) == 0


async def test_a_large_claim_is_acked_whole(queue: Any) -> None:
    tube = await filled(queue, 2_500)
    await tube.claim(own("reader"), 1, 2_500)
    assert await queue.ack_claims(own("reader"), 1) == 2_500
    assert (await tube.events())["acked"] == 2_500 and sum((await tube.stats()).values()) == 0
