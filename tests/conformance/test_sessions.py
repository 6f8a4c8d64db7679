"""Sessions: which session holds a taken job, and the fate of the job when the session ends."""

from __future__ import annotations

import asyncio
from typing import Any

from .interfaces import Interface, another, code_of, eventually, state_of


async def test_a_taken_job_belongs_to_the_session_that_took_it(queue: Any) -> None:
    tube, other = await queue.tube("own"), await another(queue)
    await tube.put("x")
    mine = await tube.take()
    theirs = await other.job(mine.id)
    for call in (theirs.ack, theirs.release, theirs.requeue, theirs.nack, theirs.touch):
        assert await code_of(call()) == "NOTOWNER", call
    assert await code_of(theirs.done("x")) == "NOTOWNER"
    await mine.ack()


async def test_any_session_may_bury_in_a_plain_tube_but_only_the_holder_in_a_queue15_tube(queue: Any) -> None:
    other = await another(queue)
    for type, code in [("fifottl", None), ("queue15", "NOTOWNER")]:
        tube = await queue.tube(type, type)
        await tube.put("x")
        theirs = await other.job((await tube.take()).id)
        if code is None:
            await theirs.bury()
        else:
            assert await code_of(theirs.bury()) == code
        await theirs.delete()


async def test_sessions_share_everything_except_their_taken_jobs(queue: Any) -> None:
    other = await another(queue)
    await (await queue.tube("shared")).put("x")
    job = await (await other.tube("shared")).take()
    assert job.body == "x" and await (await queue.tube("shared")).take() is None
    holder = (await job.meta())["holder"]
    await (await queue.tube("shared")).put("y")
    assert (await (await (await queue.tube("shared")).take()).meta())["holder"] != holder


async def test_a_session_that_closes_releases_its_jobs(queue: Any) -> None:
    tube, other = await queue.tube("back", "fifottl"), await another(queue)
    await tube.put_many([1, 2, 3])
    await (await other.tube("back")).take_many(2)
    await other.close()
    assert [job.body for job in await tube.take_many(3)] == [1, 2, 3]
    assert (await tube.events())["disconnected"] == 2


async def test_a_session_that_closes_serves_waiting_takes(queue: Any, face: Interface) -> None:
    tube, other = await queue.tube("back", "fifottl"), await another(queue)
    await tube.put("x")
    await (await other.tube("back")).take()
    take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await other.close()
    assert (await take).deliveries == 2


async def test_a_disconnect_does_not_release_from_a_tube_that_is_owned_by_anyone(queue: Any) -> None:
    tube, other = await queue.tube("disque", "disque"), await another(queue)
    await tube.put("x")
    job = await (await other.tube("disque")).take()
    await other.close()
    assert await state_of(await queue.job(job.id)) == "taken"
    await (await queue.job(job.id)).ack()


async def test_closing_one_session_leaves_the_others_open_and_closing_twice_is_harmless(queue: Any) -> None:
    first, second = await another(queue), await another(queue)
    for _ in range(3):
        await first.close()
    await (await second.tube("open")).put("x")
    await second.close()
    assert (await (await queue.tube("open")).take()).body == "x"
    assert (await (await another(queue)).tubes()) == ["open"]


async def test_a_session_closes_at_the_end_of_its_block(queue: Any) -> None:
    tube = await queue.tube("block", "fifottl")
    await tube.put("x")
    async with await another(queue) as other:
        job = await (await other.tube("block")).take()
        assert await state_of(job) == "taken"
    assert await state_of(await queue.job(job.id)) == "ready" and await code_of(other.tubes()) == "CLOSED"


async def test_everything_is_refused_after_close(queue: Any) -> None:
    other = await another(queue)
    tube = await other.tube("closed", capacity=1)
    job = await tube.put("x")
    await other.close()
    calls = [
        *(other.tube("closed"), other.tubes(), other.stats(), other.job(job.id), other.take([tube])),
        *(other.ack_claims("c", 0), other.identify(queue.token), another(other)),
        *(tube.put("y"), tube.put("y", timeout=1), tube.put_many(["y"]), tube.take(), tube.take(timeout=1)),
        *(tube.take_many(2), tube.job(job.id), tube.named("n"), tube.jobs("ready"), tube.kick(), tube.release_all()),
        *(tube.pause(), tube.alter(ttl=1), tube.truncate(), tube.drop(), tube.stats(), tube.events()),
        *(tube.transitions(), tube.claim("c", 1, 1)),
        *(job.ack(), job.done("x"), job.release(), job.requeue(), job.nack(), job.bury(), job.touch(), job.dig()),
        *(job.delete(), job.snatch(), job.restart(), job.switch("buried"), job.wait(), job.meta(), job.move(tube)),
    ]
    assert [await code_of(call) for call in calls] == ["CLOSED"] * len(calls)
    assert await state_of(await queue.job(job.id)) == "ready"


async def test_a_session_is_taken_over_by_its_token_within_its_grace(face: Interface) -> None:
    async with face.open(grace=60) as queue:
        tube, first = await queue.tube("grace"), await another(queue)
        await tube.put("x")
        job = await (await first.tube("grace")).take()
        token = first.token
        await face.vanish(first)
        assert await state_of(await queue.job(job.id)) == "taken" and await tube.take() is None
        second = await another(queue)
        await second.identify(token)
        assert second.token == token
        await (await second.job(job.id)).ack()
        assert (await tube.stats())["taken"] == 0
        await second.close()


async def test_a_session_that_is_not_taken_over_ends_with_its_grace(face: Interface) -> None:
    async with face.open(grace=0.03) as queue:
        tube, first = await queue.tube("grace", "fifottl"), await another(queue)
        await tube.put("x")
        await (await first.tube("grace")).take()
        await face.vanish(first)
        assert (await tube.take(timeout=None)).body == "x"
        assert await code_of(queue.identify(first.token)) == "NOSESSION"


async def test_a_session_may_have_a_grace_time_of_its_own(queue: Any) -> None:
    tube, patient, hasty = await queue.tube("own grace", "fifottl"), await another(queue), await another(queue)
    await tube.put_many(["patient", "hasty"])
    await patient.identify(grace=60)
    await hasty.identify(hasty.token, grace=0)
    jobs = [await (await session.tube("own grace")).take() for session in (patient, hasty)]
    await patient.close()
    await hasty.close()

    async def ended() -> bool:
        return (await tube.stats())["ready"] == 1

    # A slow server may notice the end only after the client has stopped waiting for it.
    await eventually(ended)
    assert [await state_of(await queue.job(job.id)) for job in jobs] == ["taken", "ready"]
    await queue.identify(patient.token)
    await (await queue.job(jobs[0].id)).ack()
    for grace in (-1, float("inf"), float("nan"), "60"):
        assert await code_of(queue.identify(grace=grace)) in ("RANGE", "WRONGTYPE"), grace


async def test_two_connections_may_share_a_session(queue: Any) -> None:
    tube, first, second = await queue.tube("shared"), await another(queue), await another(queue)
    await tube.put("x")
    job = await (await first.tube("shared")).take()
    await second.identify(first.token)
    await first.close()
    assert await state_of(await queue.job(job.id)) == "taken", "the second one is still there"
    await (await second.job(job.id)).release()
    assert await state_of(await queue.job(job.id)) == "ready"


async def test_a_connection_that_joins_a_session_leaves_its_own(queue: Any) -> None:
    tube, other = await queue.tube("left", "fifottl"), await another(queue)
    await tube.put("x")
    job = await (await other.tube("left")).take()
    await other.identify(queue.token)
    assert await state_of(job) == "ready", "nobody holds the session it was taken in any more"
    await other.identify(queue.token)


async def test_tokens_are_unguessable_and_wrong_ones_are_refused(queue: Any) -> None:
    other = await another(queue)
    assert len(queue.token) == 32 and queue.token != other.token
    assert await code_of(queue.identify("0" * 32)) == "NOSESSION"
    assert await code_of(queue.identify("00")) == "NOSESSION"
    assert await code_of(queue.identify("")) == "NOSESSION"
    for token in ("not hexadecimal", "0" * 31, 5, b"00"):
        assert await code_of(queue.identify(token)) == "WRONGTYPE", token
    await (await queue.tube("works")).put("still")
