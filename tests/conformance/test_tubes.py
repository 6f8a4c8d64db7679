"""Tubes: creating, altering, pausing, emptying and dropping them, and their statistics."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

import penstock
from penstock.core.policy import PRESETS

from .interfaces import Interface, another, code_of, eventually, own, settled, state_of

NOTHING = {"ready": 0, "taken": 0, "delayed": 0, "buried": 0, "done": 0, "zombie": 0, "staged": 0}


# ---- Making ----------------------------------------------------------------------------------------------------------


async def test_a_default_tube_retries_and_finally_buries(queue: Any) -> None:
    tube = await queue.tube("plain")
    assert (tube.name, tube.type) == ("plain", "fifottl")
    retry = "5x exp(1s..10m) jitter then bury"
    assert tube.policy == dataclasses.replace(PRESETS["fifottl"], default_ttr_ms=300_000, retry=retry)
    staged = await settled(queue.stage(own("makes a tube")))
    await staged.put("made by a stage", "x")
    assert (await queue.find_tube("made by a stage")).policy == tube.policy


async def test_a_tube_with_a_type_or_options_has_no_other_defaults_than_its_type(queue: Any) -> None:
    assert (await queue.tube("typed", "fifottl")).policy == PRESETS["fifottl"]
    with_ttr = await queue.tube("with an option", ttr=30)
    assert with_ttr.policy == dataclasses.replace(PRESETS["fifottl"], default_ttr_ms=30_000)


async def test_a_tube_that_exists_with_other_options_is_refused_with_both_values_and_what_to_do(queue: Any) -> None:
    await queue.tube("emails")
    with pytest.raises(penstock.TubeExists) as refused:
        await queue.tube("emails", ttr=30, retry="3x")
    for part in ("'emails'", "ttr 5m, not 30s", "retry '5x exp(1s..10m) jitter then bury', not '3x'", "tube alter"):
        assert part in str(refused.value)
    with pytest.raises(penstock.TubeExists, match="exists as a fifottl tube, not as a utube tube"):
        await queue.tube("emails", "utube")


async def test_an_existing_tube_is_altered_with_alter(queue: Any) -> None:
    made = await queue.tube("emails", alter=True)
    altered = await queue.tube("emails", ttr=30, capacity=5, alter=True)
    assert altered.policy == dataclasses.replace(made.policy, default_ttr_ms=30_000, capacity=5)
    assert (await queue.find_tube("emails")).policy == altered.policy
    again = await queue.tube("emails", "fifottl", priority=3, alter=True)
    assert again.policy == dataclasses.replace(altered.policy, default_priority=3)
    whole = dataclasses.replace(PRESETS["fifottl"], default_ttl_ms=60_000)
    assert (await queue.tube("emails", whole, alter=True)).policy == whole
    assert (await queue.tube("emails", alter=True)).policy == whole
    keyed = await queue.tube("pages", "utube")
    limited = await queue.tube("pages", key_limit=2, alter=True)
    assert limited.policy == dataclasses.replace(keyed.policy, key_limit=2)


async def test_an_impossible_alteration_is_refused_without_effect(queue: Any) -> None:
    made = await queue.tube("emails")
    assert await code_of(queue.tube("emails", "utubettl", ttr=30, alter=True)) == "TUBEEXISTS"
    assert await code_of(queue.tube("emails", PRESETS["utube"], ttr=None, alter=True)) == "UNSUPPORTED"
    assert await code_of(queue.tube("emails", temporary=True, ttr=30, alter=True)) == "UNSUPPORTED"
    assert (await queue.find_tube("emails")).policy == made.policy


@pytest.mark.parametrize("type", PRESETS)
async def test_every_type_of_tube_serves_a_job(queue: Any, type: str) -> None:
    tube = await queue.tube("typed", type)
    assert tube.type == type
    await tube.put("x")
    async with await tube.take() as job:
        assert job.body == "x"
    assert await tube.stats() == NOTHING


async def test_a_tube_that_exists_is_found_as_it_is(queue: Any) -> None:
    made = await queue.tube("utube", "utube", key_limit=3)
    found = await queue.tube(b"utube")
    assert found.policy == made.policy and found.policy.key_limit == 3
    assert (await queue.tube("utube", "utube", key_limit=3)).policy == made.policy
    other = await another(queue)
    assert (await other.tube("utube")).policy == made.policy
    assert await queue.tubes() == await other.tubes() == ["utube"]


async def test_a_tube_that_exists_with_other_options_is_refused(queue: Any) -> None:
    await queue.tube("there", "utube")
    for type, options in [("fifo", {}), ("utube", {"key_limit": 2}), (None, {"ttl": 5})]:
        assert await code_of(queue.tube("there", type, **options)) == "TUBEEXISTS"
    assert (await queue.tube("there")).policy == PRESETS["utube"]


async def test_a_policy_of_ones_own_is_a_type(queue: Any) -> None:
    policy = penstock.TubePolicy(type="mine", keys="tagged", order="priority", has_delay=True, capacity=2)
    tube = await queue.tube("own", policy)
    assert tube.type == "mine" and tube.policy == policy
    await tube.put(1, key="a", priority=5)
    await tube.put(2, key="b", priority=4)
    assert await code_of(tube.put(3)) == "FULL"
    assert (await tube.take(key="a")).body == 1 and (await tube.take()).body == 2


async def test_options_change_the_policy_of_the_type(queue: Any) -> None:
    policy = (
        await queue.tube(
            "all options",
            "utubettl",
            ttl=60,
            ttr=5,
            priority=2,
            ttl_while_taken="kills",
            key_limit=4,
            fair=True,
            capacity=100,
            capacity_bytes=1_000,
            max_deliveries=3,
            dead_letter="dead letters",
            zombie=9,
            dedup_window=1.5,
            dedup_count=7,
            temporary=True,
        )
    ).policy
    assert (policy.default_ttl_ms, policy.default_ttr_ms, policy.default_priority) == (60_000, 5_000, 2)
    assert (policy.ttl_while_taken, policy.key_limit, policy.key_order) == ("kills", 4, "fair")
    assert (policy.capacity, policy.capacity_bytes) == (100, 1_000)
    assert policy.retry == "3x then move dead letters"
    assert (policy.after_ack, policy.zombie_ms) == ("lingers", 9_000)
    assert (policy.dedup_ms, policy.dedup_count, policy.temporary) == (1_500, 7, True)
    assert (await queue.tube("kept", keep=True)).policy.after_ack == "kept"
    assert (await queue.tube("retry", retry="5x exp(1s..10m) jitter then bury")).policy.retry.startswith("5x")


async def test_options_that_contradict_each_other_or_the_type_make_no_tube(queue: Any) -> None:
    for type, options in [
        ("fifo", {"ttl": 5}),
        ("fifo", {"ttr": 5}),
        ("fifo", {"priority": 5}),
        ("fifottl", {"key_limit": 2}),
        ("stube", {"key_limit": 2}),
        ("fifottl", {"fair": True}),
        (None, {"keep": True, "zombie": 5}),
        (None, {"retry": "5x", "max_deliveries": 5}),
        (None, {"dead_letter": "dead letters"}),
    ]:
        assert await code_of(queue.tube("odd", type, **options)) == "UNSUPPORTED", options
    assert await queue.tubes() == []


async def test_tubes_are_listed_in_the_order_they_were_made(queue: Any) -> None:
    for name in ("b", "a", "ü"):
        await queue.tube(name)
    assert await queue.tubes() == ["b", "a", "ü"]
    await (await queue.tube("b")).drop()
    await queue.tube("b")
    assert await queue.tubes() == ["a", "ü", "b"]


# ---- Changing --------------------------------------------------------------------------------------------------------


async def test_a_changed_default_holds_for_jobs_to_come(queue: Any) -> None:
    tube = await queue.tube("alter", ttl=60)
    before = await tube.put("x")
    await tube.alter(ttl=120, ttr=7, priority=3)
    after = await (await tube.put("x")).meta()
    assert (after["ttl"], after["ttr"], after["priority"]) == (120, 7, 3)
    assert (await before.meta())["ttl"] == 60
    assert (await queue.tube("alter")).policy.default_ttl_ms == 120_000
    await tube.alter(ttl=None)
    assert (await (await tube.put("x")).meta())["ttl"] is None


async def test_a_changed_retry_policy_holds_for_jobs_that_are_there(queue: Any) -> None:
    tube = await queue.tube("alter")
    await tube.put("x")
    job = await tube.take()
    await tube.alter(retry="1x then bury")
    await job.nack()
    assert await state_of(job) == "buried"
    await tube.alter(retry="")
    await job.dig()
    assert await tube.take() == job
    await job.nack()
    assert await state_of(job) == "ready"


async def test_a_changed_end_holds_for_acks_to_come(queue: Any) -> None:
    tube = await queue.tube("alter")
    await tube.put_many(range(4))
    jobs = await tube.take_many(4)
    for job, change, state in [
        (jobs[0], {"keep": True}, "done"),
        (jobs[1], {"zombie": 60}, "zombie"),
        (jobs[2], {"keep": True}, "done"),
        (jobs[3], {"keep": False}, "gone"),
    ]:
        await tube.alter(**change)
        await job.ack()
        assert await state_of(job) == state, change


async def test_a_changed_dedup_window_holds_at_once(queue: Any) -> None:
    tube = await queue.tube("alter")
    first = await tube.put("x", dedup="a")
    await tube.alter(dedup_count=1)
    await tube.put("y", dedup="b")
    assert await tube.put("x", dedup="a") != first


async def test_fairness_can_be_changed_while_running(queue: Any) -> None:
    tube = await queue.tube("alter", "utube", key_limit=9)
    for body, key in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        await tube.put(body, key=key)
    await tube.alter(fair=True)
    jobs = await tube.take_many(3)
    assert [job.body for job in jobs] == ["a1", "b1", "a2"]
    for job in jobs:
        await job.release()
    await tube.alter(fair=False)
    assert [job.body for job in await tube.take_many(3)] == ["a1", "a2", "b1"]


async def test_an_invalid_alteration_changes_nothing(queue: Any) -> None:
    tube = await queue.tube("alter", "fifo", capacity=5)
    for change, code in [
        ({"ttl": 5}, "UNSUPPORTED"),
        ({"key_limit": 2}, "UNSUPPORTED"),
        ({"capacity": 9, "fair": True}, "UNSUPPORTED"),
        ({"capacity": -1}, "RANGE"),
        ({"capacity": 9, "retry": "nonsense"}, "BADRETRY"),
        ({"keep": True, "zombie": 1}, "UNSUPPORTED"),
    ]:
        assert await code_of(tube.alter(**change)) == code, change
    assert tube.policy.capacity == 5 and tube.policy.retry == ""


# ---- Pausing ---------------------------------------------------------------------------------------------------------


async def test_a_tube_paused_for_puts_refuses_them_and_serves_takes(queue: Any) -> None:
    tube = await queue.tube("pause")
    await tube.put("x")
    await tube.pause(puts=True)
    assert await code_of(tube.put("y")) == await code_of(tube.put_many(["y"])) == "PAUSED"
    assert await code_of(tube.put("y", timeout=0.01)) == "PAUSED"
    assert (await tube.take()).body == "x"
    await tube.pause()
    await tube.put("y")


async def test_a_tube_paused_for_takes_holds_them_back_and_lets_puts_in(queue: Any, face: Interface) -> None:
    tube = await queue.tube("pause")
    take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    await tube.pause(takes=True)
    await tube.put("x")
    assert await tube.take() is None and await tube.take(timeout=0.01) is None
    assert await queue.take([tube]) == [] and not take.done()
    await tube.pause()
    assert (await take).body == "x"


async def test_taken_jobs_can_be_finished_while_a_tube_is_paused(queue: Any) -> None:
    tube = await queue.tube("pause")
    await tube.put_many([1, 2])
    first, second = await tube.take_many(2)
    await tube.pause(puts=True, takes=True)
    await first.ack()
    await second.release()
    assert (await tube.stats())["ready"] == 1


# ---- Emptying and dropping -------------------------------------------------------------------------------------------


async def in_every_state(tube: Any) -> list[Any]:
    jobs = await tube.put_many(range(5))
    await jobs[0].switch("done")
    await jobs[1].switch("zombie", 60)
    await jobs[2].bury()
    assert await tube.take() == jobs[3]
    return [*jobs, await tube.put("later", delay=60)]


async def test_a_truncated_tube_is_empty(queue: Any) -> None:
    tube = await queue.tube("truncate")
    jobs = await in_every_state(tube)
    jobs.append(await (await settled(queue.stage(own("stage")))).put(tube, "staged"))
    assert sorted((await tube.stats()).values()) == [1] * 7
    assert await tube.truncate() == 7 and await tube.truncate() == 0
    assert await tube.stats() == NOTHING and {await state_of(job) for job in jobs} == {"gone"}
    assert (await tube.put("again")).state == "ready"


async def test_a_tube_of_thousands_can_be_truncated(queue: Any) -> None:
    tube = await queue.tube("truncate")
    await tube.put_many(range(2_500))
    assert await tube.truncate() == 2_500


async def test_a_dropped_tube_is_gone_with_its_jobs(queue: Any) -> None:
    tube = await queue.tube("drop")
    job = await tube.put("x")
    await tube.put("y", delay=60)
    await tube.drop()
    assert await queue.tubes() == [] and await state_of(job) == "gone"
    for call in (tube.put("x"), tube.put_many(["x"]), tube.take(), tube.take_many(2), tube.stats(), tube.kick()):
        assert await code_of(call) == "NOTUBE"
    for call in (tube.drop(), tube.truncate(), tube.pause(), tube.alter(ttl=1), tube.jobs("ready"), tube.named("n")):
        assert await code_of(call) == "NOTUBE"
    assert await code_of(queue.take([tube])) == await code_of(tube.claim("c", 1, 1)) == "NOTUBE"
    assert await code_of(job.ack()) == "NOJOB"


async def test_a_handle_finds_a_dropped_tube_that_was_made_anew(queue: Any, face: Interface) -> None:
    tube = await queue.tube("drop")
    await tube.drop()
    anew = await queue.tube("drop", "utube")
    await tube.put("x", key="k")
    assert (await anew.take()).body == "x"
    assert not face.is_live or (tube.type, tube.policy) == ("utube", anew.policy)


async def test_a_tube_with_taken_jobs_or_clients_that_wait_is_not_dropped(queue: Any, face: Interface) -> None:
    tube = await queue.tube("drop")
    await tube.put("x")
    job = await tube.take()
    assert await code_of(tube.drop()) == "TUBETAKEN"
    take = asyncio.ensure_future(tube.take(timeout=None))
    await eventually(lambda: face.waiting(queue) == 1)
    assert await code_of(tube.drop()) == "TUBEAWAITED"
    await job.release()
    await (await take).ack()
    await tube.drop()


async def test_all_taken_jobs_of_a_tube_can_be_released_for_every_session(queue: Any) -> None:
    tube, other = await queue.tube("all"), await another(queue)
    await tube.put_many([1, 2, 3])
    await tube.take()
    await (await other.tube("all")).take()
    assert await tube.release_all() == 2 and await tube.release_all() == 0
    assert (await tube.stats())["ready"] == 3


# ---- Inspecting ------------------------------------------------------------------------------------------------------


async def test_jobs_are_listed_by_state_in_the_order_they_would_be_served(queue: Any) -> None:
    tube = await queue.tube("list")
    jobs = await in_every_state(tube)
    for state, index in [("done", 0), ("zombie", 1), ("buried", 2), ("taken", 3), ("ready", 4), ("delayed", 5)]:
        assert await tube.jobs(state) == [jobs[index]], state
    await tube.put("low", priority=9)
    await tube.put("high", priority=-9)
    assert [job.body for job in await tube.jobs("ready")] == ["high", 4, "low"]
    assert [job.body for job in await tube.jobs("ready", 2)] == ["high", 4]
    assert await tube.jobs("ready", limit=0) == []
    assert await code_of(tube.jobs("gone")) == await code_of(tube.jobs("asleep")) == "RANGE"


async def test_stats_count_the_jobs_of_each_state_now(queue: Any) -> None:
    tube, empty = await queue.tube("stats"), await queue.tube("empty")
    await in_every_state(tube)
    assert await tube.stats() == dict.fromkeys(NOTHING, 1) | {"staged": 0}
    assert await queue.stats() == {"stats": await tube.stats(), "empty": NOTHING}
    assert await empty.events() == await empty.transitions() == {}


async def test_stats_make_no_tube_of_their_own(queue: Any) -> None:
    await queue.tube(b"\xff")
    assert len(await queue.stats()) == 1 == len(await queue.tubes())


async def test_events_and_transitions_count_what_happened(queue: Any) -> None:
    tube = await queue.tube("events", "fifottl")
    await tube.put("x")
    await tube.put("u", urgent=True)
    await tube.put("y", delay=60)
    job = await tube.take()
    await job.touch()
    await job.release()
    job = await tube.take()
    await job.bury()
    await tube.kick()
    job = await tube.take()
    await job.nack()
    await (await tube.take()).ack()
    assert await tube.events() == {
        **{"put": 1, "put urgent": 1, "put delayed": 1, "taken": 4, "touched": 1, "released": 1},
        **{"buried": 1, "kicked": 1, "nacked": 1, "acked": 1},
    }
    assert await tube.transitions() == {
        **{"gone-ready": 2, "gone-delayed": 1, "ready-taken": 4, "taken-ready": 2},
        **{"taken-buried": 1, "buried-ready": 1, "taken-gone": 1},
    }


async def test_waits_and_runs_are_counted_once_per_take_and_per_ack(queue: Any) -> None:
    tube = await queue.tube("durations", "fifottl")
    assert (await tube.durations())["waits"].quantile(0.5) is None
    for _ in range(3):
        await tube.put("x")
    await (await tube.take()).ack()
    await (await tube.take()).release()
    await (await tube.take()).nack()
    durations = await tube.durations()
    assert durations["waits"].count == 3 and durations["runs"].count == 1
    runs = durations["runs"]
    assert 0 <= runs.total < 60 and 0 <= runs.quantile(1) <= 65.536
    assert list(runs.buckets)[:3] == [0.001, 0.002, 0.004] and sum(runs.buckets.values()) == 1


async def test_events_count_due_timers_even_without_other_calls(queue: Any) -> None:
    tube = await queue.tube("events")
    await tube.put("x", ttl=0.01)
    await asyncio.sleep(0.05)  # The test is about time: no call touches the queue.
    assert (await tube.events()).get("expired") == 1
