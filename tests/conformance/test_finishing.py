"""Commands of the session that holds a job: finish it, release it, fail it, bury it, extend its time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import penstock

from .interfaces import Interface, another, code_of, eventually, state_of


async def taken(queue: Any, name: str = "work", type: str | None = None, **options: Any) -> tuple[Any, Any]:
    """Return a tube and a taken job of it."""
    tube = await queue.tube(name, type, **options)
    await tube.put("x")
    return tube, await tube.take()


async def test_an_acked_job_is_gone_and_cannot_be_acked_again(queue: Any) -> None:
    tube, job = await taken(queue)
    await job.ack()
    assert await state_of(job) == "gone" and not any((await tube.stats()).values())
    for call in (job.ack, job.release, job.requeue, job.nack, job.bury, job.touch, job.delete, job.dig, job.snatch):
        assert await code_of(call()) == "NOJOB", call
    for call in (job.restart, job.meta):
        assert await code_of(call()) == "NOJOB", call
    assert await code_of(job.done("late")) == await code_of(job.switch("ready")) == "NOJOB"


async def test_a_job_that_is_not_taken_cannot_be_finished(queue: Any) -> None:
    tube = await queue.tube("work")
    job = await tube.put("x")
    for call in (job.ack, job.release, job.requeue, job.nack, job.touch, job.snatch):
        assert await code_of(call()) == "NOTTAKEN", call
    assert await code_of(job.done("early")) == "NOTTAKEN"
    assert await state_of(job) == "ready" and job.nacks == 0


async def test_a_job_cannot_be_acked_after_its_ttr(queue: Any) -> None:
    tube = await queue.tube("late", "fifottl")
    await tube.put("x", ttr=0.01)
    job = await tube.take()
    assert await tube.take(timeout=None, ttr=60) == job, "it was served again"
    await job.release()
    assert await code_of(job.ack()) == "NOTTAKEN"


async def test_any_session_may_ack_any_job_in_a_disque_tube(queue: Any) -> None:
    tube = await queue.tube("disque", "disque")
    job = await tube.put("x")
    await job.ack()
    assert await state_of(job) == "gone" and (await tube.events())["acked"] == 1


async def test_acked_jobs_are_kept_where_the_tube_keeps_them(queue: Any) -> None:
    tube, job = await taken(queue, "keep", keep=True)
    await job.ack()
    assert await state_of(job) == "done" and job.body == "x"
    assert await tube.jobs("done") == [job]


async def test_acked_jobs_become_zombies_if_the_tube_says_so(queue: Any) -> None:
    _, lasting = await taken(queue, "lasting zombies", zombie=60)
    tube, job = await taken(queue, "zombies", zombie=0.02)
    for each in (lasting, job):
        await each.ack()

    async def gone() -> bool:
        return (await tube.stats())["zombie"] == 0

    await eventually(gone)
    assert (await state_of(lasting), await state_of(job)) == ("zombie", "gone")
    assert (await tube.transitions())["taken-zombie"] == 1


async def test_the_body_of_a_done_job_is_its_result(queue: Any) -> None:
    tube, job = await taken(queue)
    await job.done({"sum": 7})
    assert (await state_of(job), job.body) == ("done", {"sum": 7})
    assert (await tube.stats())["done"] == 1 and await tube.take() is None


async def served(face: Interface, queue: Any, tube: Any, **options: Any) -> Any:
    """Put a job while a take waits, so that it is taken before its time to live can end."""
    take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await tube.put("x", **options)
    return await take


async def test_a_result_is_gone_when_its_own_ttl_ends(queue: Any, face: Interface) -> None:
    tube = await queue.tube("results")
    job = await served(face, queue, tube, ttl=60, ttr=60)
    await job.done("result", ttl=0.05)

    async def gone() -> bool:
        return (await tube.stats())["done"] == 0

    await eventually(gone)


async def test_a_result_is_kept_for_a_day_or_for_its_own_ttl(queue: Any, face: Interface) -> None:
    tube = await queue.tube("results")
    for ttl, kept in (({}, 86_400), ({"ttl": 60}, 60), ({"ttl": None}, None), ({"ttl": timedelta(minutes=1)}, 60)):
        job = await served(face, queue, tube, ttl=30)
        await job.done("result", **ttl)
        meta = await job.meta()
        assert meta["expires"] is None if kept is None else meta["expires"] - meta["now"] == pytest.approx(kept, abs=5)
    kept_tube = await queue.tube("kept results", "fifo", keep=True)
    await kept_tube.put("x")
    job = await kept_tube.take()
    await job.done("result")
    assert (await job.meta())["expires"] is None


async def test_a_job_that_is_restarted_does_not_expire_with_its_result(queue: Any, face: Interface) -> None:
    tube = await queue.tube("results")
    for back in ("restart", "switch"):
        job = await served(face, queue, tube)
        await job.done("result", ttl=60)
        await (job.restart() if back == "restart" else job.switch("ready"))
        assert (await job.meta())["expires"] is None
        await job.delete()


# ---- Releasing -------------------------------------------------------------------------------------------------------


async def test_a_released_job_returns_to_its_old_place(queue: Any) -> None:
    tube = await queue.tube("place")
    await tube.put_many([1, 2, 3])
    first, second = await tube.take_many(2)
    await second.release()
    await first.release()
    assert [job.body for job in await tube.take_many(3)] == [1, 2, 3]
    meta = await first.meta()
    assert (meta["deliveries"], meta["returns"], meta["nacks"]) == (2, 1, 0)


async def test_a_release_can_have_a_delay(queue: Any) -> None:
    tube, job = await taken(queue)
    await job.release(60)
    assert await state_of(job) == "delayed"
    await job.restart()
    assert await tube.take() == job
    await job.release(delay=0.02)
    assert await tube.take(timeout=None) == job
    await job.release(delay=60)
    meta = await job.meta()
    assert meta["state"] == "delayed" and meta["wakes"] - meta["now"] == pytest.approx(60, abs=5)


async def test_a_release_can_change_ttl_priority_and_key(queue: Any) -> None:
    tube = await queue.tube("changed", "utubettl")
    await tube.put("other", priority=4, key="b")
    await tube.put("x", priority=3, key="a", ttl=500)
    job = await tube.take()
    await job.release(ttl=50, priority=5, key="c")
    meta = await job.meta()
    assert (meta["priority"], meta["key"]) == (5, "c")
    assert meta["expires"] - meta["now"] == pytest.approx(50, abs=5)
    assert (await tube.take()).body == "other"
    assert await tube.take(key="a") is None and await tube.take(key="c") == job


async def test_a_release_without_options_changes_nothing(queue: Any) -> None:
    tube = await queue.tube("same", "utubettl")
    await tube.put("x", priority=3, key="a", ttl=500)
    job = await tube.take()
    before = await job.meta()
    await job.release()
    after = await job.meta()
    assert [after[field] for field in ("priority", "key", "expires", "ttr")] == [
        before[field] for field in ("priority", "key", "expires", "ttr")
    ]


async def test_a_released_urgent_job_shows_the_priority_it_was_given_last(queue: Any) -> None:
    tube = await queue.tube("urgent")
    await tube.put("x", urgent=True, priority=1)
    job = await tube.take()
    await job.release(priority=7)
    assert (await job.meta())["priority"] == 7


async def test_a_requeued_job_goes_behind_all_others(queue: Any) -> None:
    for type in ("fifo", "fifottl", "disque", "queue15"):
        tube = await queue.tube(f"requeue {type}", type)
        await tube.put_many([1, 2, 3])
        await (await tube.take()).requeue()
        await (await tube.take()).requeue()
        assert [job.body for job in await tube.take_many(3)] == [3, 1, 2], type


async def test_a_requeued_job_goes_behind_the_worst_priority(queue: Any) -> None:
    tube = await queue.tube("requeue")
    await tube.put("best", priority=-5)
    await tube.put("worst", priority=2**53 - 1)
    await (await tube.take()).requeue()
    served = await tube.take_many(2)
    assert [job.body for job in served] == ["worst", "best"]
    assert (await served[1].meta())["priority"] == -5


@pytest.mark.parametrize("type", ["fifo", "fifottl", "disque"])
async def test_an_urgent_job_that_is_requeued_goes_behind_all_others_too(queue: Any, type: str) -> None:
    tube = await queue.tube("requeue", type)
    await tube.put("plain")
    await tube.put("urgent", urgent=True)
    await (await tube.take()).requeue()
    assert [job.body for job in await tube.take_many(2)] == ["plain", "urgent"]


# ---- Failing ---------------------------------------------------------------------------------------------------------


async def test_a_failed_job_without_a_retry_policy_goes_back_at_once(queue: Any) -> None:
    _, job = await taken(queue, type="fifottl")
    await job.nack("no luck")
    assert (await state_of(job), job.nacks) == ("ready", 1)
    assert (await job.meta())["reason"] == "no luck"


async def test_a_failed_job_is_held_back_as_its_retry_policy_says(queue: Any) -> None:
    tube, job = await taken(queue, retry="3x linear(20s..30s) then bury")
    await job.nack()
    for wait in (20, 30):
        meta = await job.meta()
        assert meta["state"] == "delayed"
        assert meta["wakes"] - meta["now"] == pytest.approx(wait, abs=5)
        await job.restart()
        assert await tube.take() == job
        await job.nack()
    assert await state_of(job) == "buried" and "3" in (await job.meta())["reason"]


async def test_jitter_only_shortens_a_wait_and_by_half_at_most(queue: Any) -> None:
    tube = await queue.tube("jitter", retry="const(100s) jitter")
    await tube.put_many(range(20))
    waits = set()
    for job in await tube.take_many(20):
        await job.nack()
        meta = await job.meta()
        assert 45 <= meta["wakes"] - meta["now"] <= 100
        waits.add(meta["wakes"])
    assert len(waits) > 1


async def test_a_job_that_failed_too_often_is_buried_with_the_last_reason(queue: Any) -> None:
    tube, job = await taken(queue, max_deliveries=2)
    await job.nack("first")
    assert await tube.take() == job
    await job.nack("second")
    assert await state_of(job) == "buried" and (await job.meta())["reason"] == "second"
    assert (await job.meta())["buries"] == 1


async def test_a_job_that_failed_too_often_moves_to_the_dead_letter_tube(queue: Any) -> None:
    tube, job = await taken(queue, max_deliveries=1, dead_letter="dead letters")
    await job.nack("why")
    assert not any((await tube.stats()).values())
    dead = await (await queue.tube("dead letters")).take()
    assert dead.id == job.id and dead.body == "x" and dead.tube == "dead letters"
    meta = await dead.meta()
    assert (meta["reason"], meta["tube"], meta["deliveries"]) == ("why", "dead letters", 2)


async def test_a_handle_follows_its_job_to_the_dead_letter_tube(queue: Any) -> None:
    _, job = await taken(queue, max_deliveries=1, dead_letter="dead letters")
    await job.nack("why")
    assert (await queue.job(job.id)).tube == "dead letters"


async def test_a_job_that_failed_too_often_is_dropped_where_the_policy_says_so(queue: Any) -> None:
    tube, job = await taken(queue, retry="1x then drop")
    await job.nack("why")
    assert await state_of(job) == "gone" and (await tube.events())["discarded"] == 1


async def test_an_expired_ttr_and_a_lost_session_count_as_failures_but_not_a_release(queue: Any) -> None:
    tube = await queue.tube("failures", retry="2x then bury")
    await tube.put("x", ttr=60)
    job = await tube.take()
    for _ in range(5):
        await job.release()
        assert await tube.take() == job
    assert await state_of(job) == "taken" and (await job.meta())["deliveries"] == 6
    await job.delete()

    late = await tube.put("late", ttr=0.02)
    assert await tube.take() == await tube.take(timeout=None) == late
    await eventually(lambda: tube.jobs("buried"))
    assert await state_of(late) == "buried"
    await late.delete()

    lost = await tube.put("lost")
    for expected in ("ready", "buried"):
        other = await another(queue)
        assert await (await other.tube("failures")).take() is not None
        await other.close()
        assert await state_of(lost) == expected


# ---- `with job` ------------------------------------------------------------------------------------------------------


async def test_a_job_is_acked_when_its_block_ends_well(queue: Any) -> None:
    tube, job = await taken(queue)
    async with job as same:
        assert same is job and await state_of(job) == "taken"
    assert await state_of(job) == "gone" and (await tube.events())["acked"] == 1


async def test_a_job_whose_block_raises_is_nacked_with_the_exception_for_a_reason(queue: Any) -> None:
    _, job = await taken(queue, retry="const(60s)")
    with pytest.raises(ZeroDivisionError):
        async with job:
            1 / 0  # noqa: B018
    assert (await state_of(job), (await job.meta())["nacks"]) == ("delayed", 1)
    assert (await job.meta())["reason"] == "ZeroDivisionError: division by zero"


async def test_a_job_whose_block_raises_obeys_the_end_of_its_retry_policy(queue: Any) -> None:
    for policy, state in [("1x then bury", "buried"), ("1x then drop", "gone"), ("1x then move dead", "ready")]:
        _, job = await taken(queue, policy, retry=policy)
        with pytest.raises(ValueError, match="mine"):
            async with job:
                raise ValueError("mine")
        assert await state_of(job) == state, policy
    dead = await (await queue.tube("dead")).take()
    assert (await dead.meta())["reason"] == "ValueError: mine"


async def test_a_job_finished_by_hand_is_left_alone_at_the_end_of_its_block(queue: Any) -> None:
    tube = await queue.tube("by hand", "fifottl")
    for finish, state in [("ack", "gone"), ("release", "ready"), ("bury", "buried"), ("nack", "ready")]:
        job = await tube.put("x")
        assert await tube.take() == job
        async with job:
            await getattr(job, finish)()
        assert await state_of(job) == state
        if state != "gone":
            await job.delete()
    job = await tube.put("x")
    assert await tube.take() == job
    with pytest.raises(ValueError, match="after"):
        async with job:
            await job.ack()
            raise ValueError("after")


async def test_any_exception_text_can_be_a_reason(queue: Any) -> None:
    _, job = await taken(queue, type="fifottl")
    with pytest.raises(FileNotFoundError):
        async with job:
            raise FileNotFoundError("a file called \udcff\n" + "🜁" * 2_000)
    assert await state_of(job) == "ready" and (await job.meta())["nacks"] == 1


async def test_an_exception_is_not_hidden_by_a_job_that_cannot_be_released(queue: Any) -> None:
    tube = await queue.tube("once", "disque")
    await tube.put("x", once=True)
    job = await tube.take()
    with pytest.raises(ValueError, match="mine"):
        async with job:
            raise ValueError("mine")


async def test_an_exception_is_not_hidden_by_a_ttr_that_passed(queue: Any) -> None:
    tube = await queue.tube("late")
    await tube.put("x", ttr=0.01)
    job = await tube.take()
    with pytest.raises(ValueError, match="mine"):
        async with job:
            await asyncio.sleep(0.03)  # No call runs the timers in the meantime.
            raise ValueError("mine")


async def test_a_block_that_ends_after_its_ttr_has_the_same_result_with_and_without_other_calls(queue: Any) -> None:
    tube = await queue.tube("late")
    endings = []
    for look in (False, True):
        job = await tube.put("x", ttr=0.01)
        assert await tube.take() == job
        try:
            async with job:
                await asyncio.sleep(0.03)
                if look:
                    await tube.stats()
            endings.append("silently")
        except penstock.CommandError as refusal:
            endings.append(refusal.code)
        await job.delete()
    assert endings[0] == endings[1]


# ---- Burying ---------------------------------------------------------------------------------------------------------


async def test_a_buried_job_is_not_delivered_until_it_is_dug_up(queue: Any) -> None:
    tube, job = await taken(queue)
    await job.bury("broken")
    meta = await job.meta()
    assert (meta["state"], meta["reason"], meta["buries"]) == ("buried", "broken", 1)
    assert await tube.take() is None
    await job.dig()
    assert await tube.take() == job
    assert await code_of(job.dig()) == "NOTBURIED"


async def test_any_session_may_bury_a_ready_or_delayed_job(queue: Any) -> None:
    tube = await queue.tube("bury")
    for delay in (0, 60):
        job = await tube.put("x", delay=delay)
        await job.bury()
        assert await state_of(job) == "buried"
        await job.bury()
        assert (await job.meta())["buries"] == 1


async def test_kick_digs_up_a_number_of_jobs_in_their_order(queue: Any) -> None:
    tube = await queue.tube("kick")
    jobs = await tube.put_many([1, 2, 3])
    for job in reversed(jobs):
        await job.bury()
    assert await tube.kick(2) == 2
    assert [await state_of(job) for job in jobs] == ["ready", "ready", "buried"]
    assert await tube.kick(5) == 1 and await tube.kick() == 0
    assert [job.body for job in await tube.take_many(3)] == [1, 2, 3]


async def test_kick_and_dig_can_have_a_delay(queue: Any) -> None:
    tube = await queue.tube("kick")
    jobs = await tube.put_many([1, 2])
    for job in jobs:
        await job.bury()
    assert await tube.kick(delay=60) == 1
    await jobs[1].dig(60)
    assert [await state_of(job) for job in jobs] == ["delayed", "delayed"]


# ---- More time -------------------------------------------------------------------------------------------------------


async def test_touch_restarts_the_ttr(queue: Any) -> None:
    tube = await queue.tube("touch")
    await tube.put("x", ttr=60)
    job = await tube.take(ttr=5)
    await job.touch()
    meta = await job.meta()
    assert meta["wakes"] - meta["now"] == pytest.approx(60, abs=5)


async def test_touch_adds_seconds_to_ttr_and_ttl(queue: Any) -> None:
    tube = await queue.tube("touch")
    await tube.put("x", ttr=60, ttl=100)
    job = await tube.take()
    before = await job.meta()
    await job.touch(30)
    after = await job.meta()
    assert after["wakes"] == pytest.approx(before["wakes"] + 30)
    assert after["expires"] == pytest.approx(before["expires"] + 30)
    assert after["ttr"] == 90


async def test_touch_needs_a_ttr(queue: Any) -> None:
    _, job = await taken(queue, "plain", "fifo")
    assert await code_of(job.touch()) == await code_of(job.touch(5)) == "UNSUPPORTED"


async def test_a_ttl_stops_while_the_job_is_taken_unless_ttl_while_taken_is_kills(queue: Any, face: Interface) -> None:
    waits, kills = await queue.tube("waits"), await queue.tube("kills", ttl_while_taken="kills")
    job = await served(face, queue, waits, ttl=0.02, ttr=60)
    # A waiting take gets the other job. Whether its client receives the job before it is killed is not determined.
    take = asyncio.ensure_future(kills.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    other = await kills.put("x", ttl=0.02, ttr=60)

    async def killed() -> bool:
        return "taken-gone" in await kills.transitions()

    await eventually(killed)
    take.cancel()
    assert (await state_of(job), await state_of(other)) == ("taken", "gone")
    await job.release()
    assert await waits.take() is None, "it expires when it comes back"


async def test_a_nack_with_a_delay_replaces_the_pause_and_not_the_number_of_attempts(queue: Any) -> None:
    tube, job = await taken(queue, retry="2x const(1ms) then bury")
    await job.nack("busy", delay=timedelta(hours=1))
    assert await state_of(job) == "delayed" and (await job.meta())["nacks"] == 1
    await job.switch("ready")
    again = await tube.take()
    await again.nack("still busy", delay=60)
    assert await state_of(again) == "buried" and (await again.meta())["reason"] == "still busy"


async def test_several_jobs_are_acked_with_one_call(queue: Any) -> None:
    tube = await queue.tube("work")
    await tube.put_many(range(5))
    jobs = await tube.take_many(5)
    await jobs[0].release()
    assert await queue.ack(jobs) == 4
    assert (await tube.stats())["ready"] == 1 and not (await tube.stats())["taken"]
    assert await queue.ack(jobs[1:2]) == 0 and await queue.ack([]) == 0
    with pytest.raises(penstock.WrongType):
        await queue.ack([1])
