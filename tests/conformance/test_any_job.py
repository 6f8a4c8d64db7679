"""Commands that any session may apply to a job, and waiting for the end of a job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock import JobOutcome

from .interfaces import Interface, another, code_of, eventually, state_of

ACKED, TIMEOUT = JobOutcome("acked"), JobOutcome("timeout")
STATES = ["ready", "taken", "delayed", "buried", "done", "zombie"]


async def job_that_is(state: str, tube: Any) -> Any:
    """Return a new job of a tube in this state."""
    job = await tube.put("x", delay=60 if state == "delayed" else 0)
    if state in ("taken", "done"):
        assert await tube.take() == job
    if state == "buried":
        await job.bury()
    if state == "done":
        await job.done("x")
    if state == "zombie":
        await job.switch("zombie", 60)
    assert await state_of(job) == state
    return job


# ---- Delete, snatch, restart, switch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
async def test_a_job_can_be_deleted_in_any_state_by_anyone(queue: Any, state: str) -> None:
    tube = await queue.tube("delete")
    job = await job_that_is(state, tube)
    other = await another(queue)
    await (await other.job(job.id)).delete()
    assert await state_of(job) == "gone" and not any((await tube.stats()).values())
    assert await code_of(job.delete()) == "NOJOB"


async def test_a_taken_job_can_be_snatched_from_its_holder(queue: Any) -> None:
    tube = await queue.tube("snatch")
    job = await job_that_is("taken", tube)
    other = await another(queue)
    await (await other.job(job.id)).snatch()
    assert await state_of(job) == "ready" and await code_of(job.ack()) == "NOTTAKEN"
    assert await (await other.tube("snatch")).take() is not None
    assert await code_of(job.ack()) == "NOTOWNER"
    await job.snatch(delay=60)
    assert await state_of(job) == "delayed"


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "done", "zombie"])
async def test_only_a_taken_job_can_be_snatched(queue: Any, state: str) -> None:
    job = await job_that_is(state, await queue.tube("snatch"))
    assert await code_of(job.snatch()) == "NOTTAKEN"


@pytest.mark.parametrize("state", ["delayed", "done", "zombie"])
async def test_a_delayed_or_kept_job_can_be_restarted(queue: Any, state: str) -> None:
    tube = await queue.tube("restart")
    job = await job_that_is(state, tube)
    await job.restart(60)
    assert await state_of(job) == "delayed"
    await job.restart()
    assert await state_of(job) == "ready" and await tube.take() == job


@pytest.mark.parametrize(("state", "code"), [("taken", "ISTAKEN"), ("ready", "NOTKEPT"), ("buried", "NOTKEPT")])
async def test_other_jobs_cannot_be_restarted(queue: Any, state: str, code: str) -> None:
    job = await job_that_is(state, await queue.tube("restart"))
    assert await code_of(job.restart()) == code


@pytest.mark.parametrize("target", ["ready", "delayed", "buried", "done", "zombie"])
@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "done", "zombie"])
async def test_a_job_that_is_not_taken_can_be_switched_to_any_state(queue: Any, state: str, target: str) -> None:
    job = await job_that_is(state, await queue.tube("switch"))
    delay = 60 if target in ("delayed", "zombie") else 0
    await job.switch(target, delay)
    assert await state_of(job) == target
    assert await code_of(job.switch(target, 0 if delay else 60)) == "RANGE"
    assert await state_of(job) == target


async def test_a_taken_job_cannot_be_switched_and_none_can_be_switched_to_taken(queue: Any) -> None:
    tube = await queue.tube("switch")
    assert await code_of((await job_that_is("taken", tube)).switch("ready")) == "ISTAKEN"
    assert await code_of((await job_that_is("ready", tube)).switch("taken")) == "RANGE"


# ---- Changing a job that waits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
async def test_a_waiting_job_can_get_another_priority_and_body(queue: Any, state: str) -> None:
    job = await job_that_is(state, await queue.tube("edit", "fifottl"))
    other = await another(queue)
    found = await other.job(job.id)
    await found.set_priority(-3)
    await found.edit({"to": "ann"})
    assert found.body == {"to": "ann"}
    again = await queue.job(job.id)
    assert (again.body, (await again.meta())["priority"], await state_of(again)) == ({"to": "ann"}, -3, state)


async def test_a_new_priority_decides_which_job_is_taken_first(queue: Any) -> None:
    tube = await queue.tube("edit", "fifottl")
    first, second = await tube.put("first"), await tube.put("second")
    await second.set_priority(-1)
    assert [job.body for job in await tube.take_many(2)] == ["second", "first"]
    assert await tube.events() == {"put": 2, "prioritized": 1, "taken": 2}
    assert await code_of(first.set_priority(1)) == "ISTAKEN" == await code_of(first.edit("x"))
    assert await code_of(first.set_priority(1 << 62)) == "RANGE"


async def test_a_delayed_job_can_run_now(queue: Any) -> None:
    tube = await queue.tube("edit", "fifottl")
    job = await tube.put("x", delay=60)
    await job.run_now()
    assert await tube.take() == job
    assert await code_of(job.run_now()) == "ISTAKEN"
    await job.release()
    assert await code_of(job.run_now()) == "NOTDELAYED"


@pytest.mark.parametrize(("state", "code"), [("done", "NOTWAITING"), ("zombie", "NOTWAITING"), ("taken", "ISTAKEN")])
async def test_other_jobs_cannot_be_changed(queue: Any, state: str, code: str) -> None:
    job = await job_that_is(state, await queue.tube("edit", "fifottl"))
    assert await code_of(job.set_priority(1)) == code == await code_of(job.edit("x"))


async def test_a_tube_refuses_the_changes_that_it_does_not_support(queue: Any) -> None:
    job = await (await queue.tube("edit", "fifo", capacity_bytes=4)).put("1234")
    assert await code_of(job.set_priority(1)) == "UNSUPPORTED"
    assert await code_of(job.edit("12345")) == "FULL"
    await job.edit("1")
    assert (await queue.job(job.id)).body == "1"


# ---- Moving between tubes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "done"])
async def test_a_job_moves_to_another_tube_as_it_is(queue: Any, state: str) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    job = await job_that_is(state, source)
    id, before = job.id, await job.meta()
    await job.move(target)
    after = await job.meta()
    assert (job.id, await state_of(job), job.tube, job.body) == (id, state, "to", "x")
    assert [after[field] for field in ("created", "expires", "ttr")] == [
        before[field] for field in ("created", "expires", "ttr")
    ]
    assert not any((await source.stats()).values()) and (await target.stats())[state] == 1
    assert await target.job(id) == job and await code_of(source.job(id)) == "NOJOB"


async def test_a_taken_job_is_moved_by_its_holder_only_and_is_ready_there(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    job = await job_that_is("taken", source)
    other = await another(queue)
    assert await code_of((await other.job(job.id)).move(await other.tube("to"))) == "NOTOWNER"
    await job.move(target)
    assert await state_of(job) == "ready" and await target.take() == job


async def test_a_moved_job_is_placed_behind_the_jobs_of_its_new_tube(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    early = await source.put("early")
    await target.put("there")
    await early.move(target)
    assert [job.body for job in await target.take_many(2)] == ["there", "early"]


async def test_a_moved_urgent_job_is_also_placed_behind_the_jobs_of_its_new_tube(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to", "fifo")
    await target.put("there")
    for options in ({"urgent": True}, {"priority": -5}):
        await (await source.put("moved", **options)).move(target)
    assert [job.body for job in await target.take_many(3)] == ["there", "moved", "moved"]


async def test_a_move_can_have_a_delay(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    job = await source.put("x")
    await job.move(target, delay=60)
    assert await state_of(job) == "delayed" and job.tube == "to"


async def test_a_move_gives_up_name_and_uniqueness_in_the_tube_it_leaves(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    job = await source.put("x", name="n", unique="u")
    await job.move(target)
    assert await source.put("y", name="n", unique="u") != job


async def test_a_job_cannot_move_to_the_tube_it_is_in(queue: Any) -> None:
    tube = await queue.tube("same")
    assert await code_of((await tube.put("x")).move(tube)) == "RANGE"


async def test_a_move_is_counted_in_both_tubes_and_does_not_end_the_job(queue: Any) -> None:
    source, target = await queue.tube("from"), await queue.tube("to")
    await (await source.put("x")).move(target)
    assert (await source.events()) == {"put": 1, "moved out": 1}
    assert (await target.events()) == {"moved in": 1}
    assert (await source.transitions()) == {"gone-ready": 1, "ready-elsewhere": 1}
    assert (await target.transitions()) == {"elsewhere-ready": 1}


async def test_a_job_cannot_be_moved_to_a_tube_of_another_queue(queue: Any, face: Interface) -> None:
    async with face.open() as stranger:
        foreign = await stranger.tube("foreign")
        await foreign.put("x")
        job = await (await queue.tube("here")).put("x")
        assert await code_of(job.move(foreign)) in ("NOTUBE", "WRONGTYPE", "RANGE")
        assert await code_of(queue.take([foreign, foreign])) in ("NOTUBE", "WRONGTYPE", "RANGE")
        assert (await (await queue.tube("here")).stats())["ready"] == 1
        assert (await foreign.stats())["ready"] == 1


# ---- Waiting for the end ---------------------------------------------------------------------------------------------


async def test_waiting_for_a_job_returns_that_it_was_acked(queue: Any, face: Interface) -> None:
    for options in ({}, {"keep": True}, {"zombie": 60}):
        tube = await queue.tube(f"wait {options}", **options)
        job = await tube.put("x")
        waits = [asyncio.ensure_future(job.wait(timeout)) for timeout in (None, 60)]
        await eventually(lambda: face.waiting(queue) == 2)
        await (await tube.take()).ack()
        assert await asyncio.gather(*waits) == [ACKED, ACKED]


async def test_waiting_for_a_job_returns_that_it_is_done(queue: Any, face: Interface) -> None:
    tube = await queue.tube("wait")
    job = await tube.put("x")
    wait = asyncio.ensure_future(job.wait())
    await eventually(lambda: face.waiting(queue) == 1)
    await (await tube.take()).done("result")
    assert await wait == ACKED and (await queue.job(job.id)).body == "result"


async def test_waiting_for_a_job_that_is_kept_answers_at_once(queue: Any) -> None:
    tube = await queue.tube("kept")
    for state in ("done", "zombie"):
        assert await (await job_that_is(state, tube)).wait() == ACKED


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("delete", JobOutcome("deleted")),
        ("truncate", JobOutcome("deleted")),
        ("expire", JobOutcome("expired")),
        ("bury", JobOutcome("buried", "no such address")),
        ("nack, then drop", JobOutcome("dropped", "no luck")),
        ("nack, then bury", JobOutcome("buried", "no luck")),
        ("nack, then move dead", JobOutcome("dead-lettered", "no luck")),
    ],
)
async def test_waiting_for_a_job_returns_its_outcome_and_reason_at_once(
    queue: Any, face: Interface, end: str, outcome: JobOutcome
) -> None:
    first, _, then = end.partition(", ")
    tube = await queue.tube("wait", retry=f"1x {then}" if then else "1x")
    job = await tube.put("x", ttl=0.2 if end == "expire" else None)
    wait = asyncio.ensure_future(job.wait())
    # A job that expires may do so before the wait begins.
    await eventually(lambda: face.waiting(queue) == 1 or wait.done())
    if first == "delete":
        await job.delete()
    elif first == "truncate":
        await tube.truncate()
    elif first == "bury":
        await (await tube.take()).bury("no such address")
    elif first == "nack":
        await (await tube.take()).nack("no luck")
    ended = await wait
    assert not ended
    assert ended == outcome or (end == "expire" and ended.outcome == "gone")


async def test_waiting_for_a_job_that_failed_before_answers_at_once(queue: Any) -> None:
    buried, moved = (
        await queue.tube("buries", retry="1x then bury"),
        await queue.tube("moves", retry="1x then move dead"),
    )
    for tube, outcome in ((buried, "buried"), (moved, "dead-lettered")):
        job = await tube.put("x")
        await (await tube.take()).nack("no luck")
        assert await job.wait() == JobOutcome(outcome, "no luck")
    # A client that finds the job in the dead-letter tube waits for its end there, also after it was put back.
    found = await queue.job(job.id)
    assert await found.wait(timeout=0) == TIMEOUT
    await found.move(moved)
    assert await job.wait(timeout=0) == TIMEOUT


async def test_waiting_for_a_job_that_is_gone_answers_at_once(queue: Any) -> None:
    tube = await queue.tube("gone")
    job = await tube.put("x")
    await job.delete()
    # A queue without a journal does not have the outcome any more.
    assert (await job.wait()).outcome in ("deleted", "gone") and not await job.wait()


async def test_waiting_for_an_ended_job_returns_its_outcome_from_the_journal(face: Interface) -> None:
    durable = type(face)(journal=True) if face.is_live else face
    async with durable.open() as queue:
        tube = await queue.tube("ended", "fifottl")
        acked, result, dropped, expired = await tube.put_many(
            ["a", "b", penstock.NewJob("c", retry="1x then drop"), penstock.NewJob("d", ttl=0.01)]
        )
        await (await tube.take()).ack()
        await (await tube.take()).done("result", ttl=0)
        await (await tube.take()).nack("no luck")

        async def over() -> bool:
            return not any((await tube.stats()).values())

        await eventually(over)
        ends = [await job.wait() for job in (acked, result, dropped, expired)]
        assert ends == [ACKED, ACKED, JobOutcome("dropped", "no luck"), JobOutcome("expired")]


async def test_waiting_for_a_job_ends_with_its_timeout(queue: Any, face: Interface) -> None:
    job = await (await queue.tube("wait")).put("x")
    assert await job.wait(0.02) == TIMEOUT and not await job.wait(timeout=timedelta(0))
    assert await state_of(job) == "ready" and face.waiting(queue) == 0


async def test_release_retry_and_move_do_not_end_a_wait_for_the_job(queue: Any, face: Interface) -> None:
    tube, other = await queue.tube("wait", retry="2x then bury"), await queue.tube("other")
    job = await tube.put("x")
    wait = asyncio.ensure_future(job.wait())
    await eventually(lambda: face.waiting(queue) == 1)
    await (await tube.take()).nack()
    await job.move(other)
    await (await other.take()).release()
    assert face.waiting(queue) == 1 and not wait.done()
    await (await other.take()).ack()
    assert await wait == ACKED


async def test_a_job_switched_to_done_has_the_same_outcome_for_earlier_and_later_waits(
    queue: Any, face: Interface
) -> None:
    job = await (await queue.tube("switch")).put("x")
    wait = asyncio.ensure_future(job.wait())
    await eventually(lambda: face.waiting(queue) == 1)
    await job.switch("done")
    assert await wait == await job.wait()


async def test_a_wait_for_a_job_fails_when_its_session_closes(queue: Any, face: Interface) -> None:
    other = await another(queue)
    job = await (await other.tube("wait")).put("x")
    wait = asyncio.ensure_future(job.wait())
    await eventually(lambda: face.waiting(other) == 1)
    await other.close()
    assert await code_of(wait) == "CLOSED", "False would say that the job ended without an ack"
