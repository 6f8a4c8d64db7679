"""Inspecting a whole queue: an overview of its tubes, and every job, page by page."""

from __future__ import annotations

import asyncio
from typing import Any

from .interfaces import Interface, another, code_of, eventually


async def test_a_tube_is_found_only_if_it_exists(queue: Any) -> None:
    await queue.tube("there", "fifo")
    assert (await queue.find_tube("there")).type == "fifo"
    assert await code_of(queue.find_tube("not there")) == "NOTUBE"
    assert await queue.tubes() == ["there"]


async def test_the_overview_of_a_tube_has_its_counts(queue: Any) -> None:
    tube = await queue.tube("glance", "utubettl")
    await tube.put("first", key="a")
    await tube.put("second", key="b", delay=60)
    await tube.pause(puts=True)
    info = await tube.info()
    assert 0 <= info.pop("oldest") < 60
    assert info == {
        **{"name": "glance", "type": "utubettl", "keys": 2, "waiting": 0},
        **{"ready": 1, "taken": 0, "delayed": 1, "buried": 0, "done": 0, "zombie": 0, "staged": 0},
        **{"paused_in": True, "paused_out": False},
    }


async def test_a_tube_with_nothing_ready_has_no_oldest_job(queue: Any) -> None:
    tube = await queue.tube("empty")
    assert (await tube.info())["oldest"] is None


async def test_the_overview_has_every_tube_in_the_order_they_were_made(queue: Any) -> None:
    for number in range(1_003):
        await queue.tube(f"tube {number}", temporary=True)
    assert [info["name"] for info in await queue.overview()] == [f"tube {number}" for number in range(1_003)]


async def test_the_sessions_have_their_held_jobs_and_waiting_takes(queue: Any, face: Interface) -> None:
    full, empty = await queue.tube("full"), await queue.tube("empty")
    await full.put_many(["1", "2", "3"])
    other = await another(queue)
    await other.identify(grace=60)
    await (await other.tube("full")).take_many(2)
    take = asyncio.ensure_future(empty.take(timeout=60))
    await eventually(lambda: face.waiting(queue) == 1)
    sessions = await queue.sessions()
    [holder] = [each for each in sessions if each["held"]]
    [waiter] = [each for each in sessions if each["waiting"]]
    assert (holder["held"], holder["holds"], holder["waiting"], holder["grace"]) == (2, {"full": 2}, {}, 60)
    assert (waiter["held"], waiter["holds"], waiter["waiting"], waiter["ends"]) == (0, {}, {"empty": 1}, None)
    assert (await (await full.jobs("taken"))[0].meta())["holder"] == holder["number"]
    await other.close()
    [left] = [each for each in await queue.sessions() if each["held"]]
    assert (left["number"], left["clients"]) == (holder["number"], []) and left["ends"] is not None
    await empty.put("x")
    await (await take).ack()


async def test_the_keys_with_the_longest_backlog_come_first(queue: Any) -> None:
    tube = await queue.tube("keyed", "utubettl", key_limit=2)
    for key, count in (("a", 2), ("b", 5), ("c", 3)):
        await tube.put_many(["x"] * count, key=key)
    await tube.put("late", key="a", delay=60)
    jobs = [await tube.take(key="b") for _ in range(2)]
    assert await tube.keys(2) == [
        {"key": "b", "ready": 3, "taken": 2, "jobs": 5},
        {"key": "c", "ready": 3, "taken": 0, "jobs": 3},
    ]
    assert [each["key"] for each in await tube.keys()] == ["b", "c", "a"]
    for job in jobs:
        await job.ack()
    assert await (await queue.tube("plain", "fifo")).keys() == []
    for wrong in (0, -1, 1_001):
        assert await code_of(tube.keys(wrong)) == "RANGE" == await code_of(tube.causes(wrong))


async def test_buried_jobs_are_grouped_by_cause(queue: Any) -> None:
    tube = await queue.tube("failed", "fifottl")
    assert await tube.causes() == []
    oldest = await tube.put("x")
    await oldest.bury("order 1000001 not found")
    for reason in ("order 1000002 not found", "failed 3 times, at last: 503", "503", "503", ""):
        await (await tube.put("x")).bury(reason)
    found = await tube.causes()
    assert [(each["cause"], each["jobs"]) for each in found] == [
        ("503", 3),
        ("order … not found", 2),
        ("no reason given", 1),
    ]
    assert found[1]["example"] == oldest.id and found[1]["oldest"] == (await oldest.meta())["created"]
    assert len(await tube.causes(1)) == 1


async def test_a_scan_finds_every_job_page_by_page(queue: Any) -> None:
    tube, other = await queue.tube("scanned"), await queue.tube("other")
    bodies = [str(number) for number in range(25)]
    await tube.put_many(bodies)
    await other.put("elsewhere")
    assert await everything(queue, count=7) == [*bodies, "elsewhere"]
    assert await everything(queue, tube=tube) == bodies
    await (await tube.take()).bury()
    assert await everything(queue, tube=tube, states=["buried", "taken"]) == ["0"]


async def everything(queue: Any, **options: Any) -> list[str]:
    found, cursor = [], 0
    while True:
        jobs, cursor = await queue.scan(cursor, **options)
        found += [job.body for job in jobs]
        if cursor == 0:
            return found


async def test_a_scan_with_a_condition_finds_matching_jobs_page_by_page(queue: Any) -> None:
    tube, other = await queue.tube("scanned", "fifottl"), await queue.tube("other")
    await tube.put_many([{"user": n % 3, "n": n} for n in range(30)], priority=4)
    await other.put({"user": 1, "n": -1})
    found = await everything(queue, where="body.user == 1 and priority < 5", count=4)
    assert [body["n"] for body in found] == [*range(1, 30, 3), -1]
    assert len(await everything(queue, tube=tube, where="body.user == 1 or key")) == 10
    await (await tube.take()).bury("no route")
    assert await everything(queue, where='"route" in reason', states=["buried"]) == [{"user": 0, "n": 0}]
    [job], cursor = await queue.scan(where="number == 7", tube=tube)
    assert (job.body["n"], cursor) == (7, 0)
    assert await code_of(queue.scan(where="body.user = 1")) == "BADCONDITION"
    assert await code_of(queue.scan(where=7)) == "WRONGTYPE"


async def test_a_scan_refuses_invalid_arguments(queue: Any) -> None:
    assert await code_of(queue.scan(-1)) == "RANGE"
    assert await code_of(queue.scan("0")) == "WRONGTYPE"
    assert await code_of(queue.scan(states=["lost"])) == "RANGE"
    assert await code_of(queue.scan(tube="name")) == "WRONGTYPE"
    stranger = await (await another(queue)).tube("here")
    assert await queue.scan(tube=stranger) == ([], 0)


async def test_a_job_is_found_by_its_number_within_its_tube(queue: Any) -> None:
    tube = await queue.tube("with#sign")
    first, second = await tube.put("first"), await tube.put("second")
    assert await queue.job("with#sign#1") == second and await queue.job("with#sign#0") == first
    for wrong in ("with#sign#2", "elsewhere#0"):
        assert await code_of(queue.job(wrong)) == "NOJOB"
    for wrong in ("with#sign#", "with#sign#-1", "with#sign#1_0"):
        assert await code_of(queue.job(wrong)) == "BADID"


async def test_a_closed_session_with_a_grace_time_can_be_resumed_by_its_token(queue: Any) -> None:
    tube = await queue.tube("held")
    await tube.put("x")
    other = await another(queue)
    await other.identify(grace=60)
    token, job = other.token, await (await other.tube("held")).take()
    await other.close()
    assert (await tube.stats())["taken"] == 1
    later = await another(queue)
    await later.identify(token)
    await (await later.job(job.id)).ack()
    assert (await tube.stats())["taken"] == 0
