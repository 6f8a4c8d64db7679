"""The options of a put, and that a body is returned as it was put."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

import penstock
from penstock.core.policy import PRESETS, TubePolicy

from .interfaces import code_of, eventually, own, settled, state_of


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff raw",
        "",
        "text: grüße, 🜁, \x00",
        None,
        True,
        False,
        0,
        -7,
        1 << 70,
        2.5,
        [],
        [1, "two", None, [3.0]],
        {},
        {"a": {"b": [1, 2]}, "ü": None, "\ud800": "\udfff"},
    ],
    ids=repr,
)
async def test_a_body_comes_back_as_it_was_put(queue: Any, body: Any) -> None:
    tube = await queue.tube("bodies")
    await tube.put(body)
    job = await tube.take()
    assert job.body == body and type(job.body) is type(body)


@pytest.mark.parametrize("buffer", [bytearray(b"abc"), memoryview(b"xabcx")[1:4], memoryview(b"axbxcx")[::2]])
async def test_a_buffer_comes_back_as_bytes(queue: Any, buffer: Any) -> None:
    job = await (await queue.tube("buffers")).put(buffer)
    assert job.body == b"abc" and type(job.body) is bytes


async def test_a_body_is_a_copy_that_later_changes_do_not_reach(queue: Any) -> None:
    tube = await queue.tube("copies")
    buffer, items = bytearray(b"abc"), [1]
    first, second = await tube.put(buffer), await tube.put(items)
    buffer[0] = 0
    items.append(2)
    second.body.append(3)
    assert (first.body, second.body) == (b"abc", [1])


@pytest.mark.parametrize("body", [iter, {1, 2}, math.nan, math.inf, [b"bytes inside"], 1j, {(1, 2): 3}], ids=repr)
async def test_a_body_that_json_cannot_hold_is_refused(queue: Any, body: Any) -> None:
    tube = await queue.tube("odd")
    assert await code_of(tube.put(body)) == "WRONGTYPE"
    assert await code_of(tube.put_many(["fine", body])) == "WRONGTYPE"
    assert not any((await tube.stats()).values())


async def test_a_new_job_is_ready_and_was_never_delivered(queue: Any) -> None:
    job = await (await queue.tube("new")).put("x")
    assert (await state_of(job), job.deliveries, job.nacks, job.tube) == ("ready", 0, 0, "new")


async def test_jobs_are_served_in_the_order_of_arrival(queue: Any) -> None:
    tube = await queue.tube("order", "fifo")
    for number in range(5):
        await tube.put(number)
    assert [(await tube.take()).body for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_the_lower_priority_is_served_first(queue: Any) -> None:
    tube = await queue.tube("priorities", priority=5)
    for body, options in [
        ("default", {}),
        ("low", {"priority": 6}),
        ("high", {"priority": -1}),
        ("same", {"priority": 5}),
    ]:
        await tube.put(body, **options)
    assert [job.body for job in await tube.take_many(10)] == ["high", "default", "same", "low"]


async def test_an_urgent_job_goes_before_all_and_a_later_one_before_it(queue: Any) -> None:
    for type in ("fifo", "fifottl", "utube", "disque"):
        tube = await queue.tube(f"urgent {type}", type)
        await tube.put("plain")
        for body in ("urgent", "more urgent"):
            await tube.put(body, urgent=True)
        served = []
        for _ in range(3):
            async with await tube.take() as job:
                served.append(job.body)
        assert served == ["more urgent", "urgent", "plain"], type


async def test_an_urgent_job_goes_before_the_best_priority_and_shows_its_own(queue: Any) -> None:
    tube = await queue.tube("urgent")
    await tube.put("best", priority=-(2**53) + 1)
    urgent = await tube.put("urgent", urgent=True, priority=9)
    assert (await urgent.meta())["priority"] == 9
    assert (await tube.take()).body == "urgent"


async def test_a_delayed_job_is_not_served_before_its_time(queue: Any) -> None:
    tube = await queue.tube("later")
    # A long delay, which does not end during the test, and a short one, whose end the test waits for.
    late, job = await tube.put("late", delay=60.05), await tube.put("x", delay=0.05)
    meta = await late.meta()
    assert meta["state"] == "delayed" and meta["wakes"] == pytest.approx(meta["created"] + 60.05)
    assert (await tube.take(timeout=None)) == job
    meta = await job.meta()
    assert meta["now"] >= meta["created"] + 0.05
    assert await state_of(late) == "delayed" and await tube.take() is None


async def test_a_job_is_gone_when_its_ttl_is_over(queue: Any) -> None:
    tube = await queue.tube("short")
    # The short one may have ended before its state is read.
    long = await tube.put("x", ttl=60.02)
    assert (await long.meta())["ttl"] == pytest.approx(60.02)
    await long.delete()
    job = await tube.put("x", ttl=0.02)

    async def empty() -> bool:
        return (await tube.stats())["ready"] == 0

    await eventually(empty)
    assert await state_of(job) == "gone" and await tube.take() is None
    assert (await tube.events())["expired"] == 1


async def test_the_delay_does_not_count_against_the_ttl(queue: Any) -> None:
    job = await (await queue.tube("both")).put("x", delay=80, ttl=60.1)
    assert (await job.meta())["ttl"] == pytest.approx(140.1)


async def test_a_job_comes_back_when_its_ttr_is_over(queue: Any) -> None:
    tube = await queue.tube("slow", "fifottl")
    await tube.put("x", ttr=0.02)
    first = await tube.take()
    assert (await first.meta())["ttr"] == pytest.approx(0.02)
    again = await tube.take(timeout=None)
    assert again == first and again.deliveries == 2


async def test_none_means_unlimited_and_overrides_the_default_of_the_tube(queue: Any) -> None:
    tube = await queue.tube("defaults", ttl=60, ttr=5, priority=3)
    plain = await (await tube.put("x")).meta()
    assert (plain["ttl"], plain["ttr"], plain["priority"]) == (60, 5, 3)
    endless = await (await tube.put("x", ttl=None, ttr=None)).meta()
    assert (endless["ttl"], endless["ttr"], endless["expires"]) == (None, None, None)
    assert (await (await tube.put("x", ttl=math.inf)).meta())["ttl"] is None


async def test_the_default_ttr_is_the_ttl(queue: Any) -> None:
    assert (await (await (await queue.tube("ttr", "fifottl")).put("x", ttl=60)).meta())["ttr"] == 60


async def test_an_at_most_once_job_never_goes_back_to_the_queue(queue: Any) -> None:
    tube = await queue.tube("once", "disque")
    await tube.put("x", once=True, ttr=0.01)
    job = await tube.take()
    assert await code_of(job.release()) == await code_of(job.nack()) == "ONLYONCE"
    assert await tube.take(timeout=0.05) is None
    await job.ack()
    assert await state_of(job) == "gone"


async def test_a_job_has_a_retry_policy_of_its_own(queue: Any) -> None:
    tube = await queue.tube("retries", retry="9x then bury")
    await tube.put("x", retry="1x then drop")
    job = await tube.take()
    assert (await job.meta())["retry"] == "1x then drop"
    await job.nack()
    assert await state_of(job) == "gone"


async def test_options_of_a_put_that_its_tube_does_not_have_are_refused(queue: Any) -> None:
    fifo, ttl = await queue.tube("plain", "fifo"), await queue.tube("ttl")
    for option in ({"ttl": 1}, {"ttr": 1}, {"delay": 1}, {"priority": 1}, {"key": "k"}, {"once": True}):
        assert await code_of(fifo.put("x", **option)) == "UNSUPPORTED", option
    for option in ({"key": "k"}, {"once": True}):
        assert await code_of(ttl.put("x", **option)) == "UNSUPPORTED", option
    assert not any((await fifo.stats()).values()) and not any((await ttl.stats()).values())


# ---- Batches ---------------------------------------------------------------------------------------------------------


async def test_put_many_puts_all_in_order_with_the_same_options(queue: Any) -> None:
    tube = await queue.tube("many")
    jobs = await tube.put_many((f"body {number}" for number in range(3)), priority=4, delay=9)
    assert [job.body for job in jobs] == ["body 0", "body 1", "body 2"]
    assert [(await job.meta())["priority"] for job in jobs] == [4, 4, 4]
    assert [await state_of(job) for job in jobs] == ["delayed"] * 3
    assert await tube.put_many([]) == []


async def test_put_many_puts_all_or_nothing(queue: Any) -> None:
    tube = await queue.tube("many", capacity=3)
    await tube.put("there")
    assert await code_of(tube.put_many(["a", "b", "c"])) == "FULL"
    assert await code_of(tube.put_many(["a", "b"], key="no keys here")) == "UNSUPPORTED"
    assert await code_of(tube.put_many(["a", "b"], name="one name for two")) == "RANGE"
    await tube.put("named", name="taken")
    assert await code_of(tube.put_many(["a"], name="taken")) == "NAMETAKEN"
    assert (await tube.stats())["ready"] == 2
    await tube.put_many(["fits"])
    assert (await tube.stats())["ready"] == 3


async def test_put_many_serves_all_waiting_takes(queue: Any, face: Any) -> None:
    tube = await queue.tube("many")
    takers = [asyncio.ensure_future(tube.take(timeout=None)) for _ in range(3)]
    await eventually(lambda: face.waiting(queue) == 3)
    await tube.put_many([1, 2, 3])
    assert sorted(job.body for job in await asyncio.gather(*takers)) == [1, 2, 3]


# ---- Names, unique values and deduplication --------------------------------------------------------------------------


async def test_a_name_finds_its_job_and_can_be_used_once(queue: Any) -> None:
    tube, other = await queue.tube("names"), await queue.tube("others")
    job = await tube.put("x", name="invoice-7")
    assert await tube.named("invoice-7") == await tube.named(b"invoice-7") == job
    assert (await job.meta())["name"] == "invoice-7"
    assert await code_of(tube.put("y", name="invoice-7")) == "NAMETAKEN"
    assert await code_of(other.named("invoice-7")) == "NOJOB"
    await other.put("a tube has names of its own", name="invoice-7")
    await (await tube.take()).ack()
    assert await code_of(tube.named("invoice-7")) == "NOJOB"
    assert (await tube.put("free again", name="invoice-7")).body == "free again"


# ---- Import from another queue ---------------------------------------------------------------------------------------


def numbered(type: str = "fifo", first: int = 1_000) -> TubePolicy:
    """Return the policy of a tube that counts from a number on, so that imported jobs can have the numbers below it."""
    return dataclasses.replace(PRESETS[type], first_integer=first)


async def test_an_imported_job_keeps_its_number_and_the_tube_counts_from_its_first_number(queue: Any) -> None:
    tube = await queue.tube("moved", numbered())
    jobs = [await tube.put(number, number=number) for number in (7, 300, 301, 999, 12)]
    jobs.append(await tube.put("new"))
    assert [(await job.meta())["number"] for job in jobs] == [7, 300, 301, 999, 12, 1_000]
    assert (await tube.job("moved#300")).body == 300
    assert [(await tube.take()).body for _ in jobs] == [7, 300, 301, 999, 12, "new"]
    await (await tube.job("moved#7")).ack()
    assert await code_of(tube.job("moved#7")) == "NOJOB"


async def test_a_number_that_is_used_or_reserved_for_new_jobs_is_refused(queue: Any) -> None:
    tube = await queue.tube("moved", numbered(first=10))
    first = await tube.put("first", number=3, dedup="a")
    assert await code_of(tube.put("second", number=3)) == "NUMBERTAKEN"
    assert await code_of(tube.put_many(["a"], number=3)) == "NUMBERTAKEN"
    assert await code_of(tube.put_many(["a", "b"], number=4)) == "RANGE"
    for number in (10, 11, 1 << 53, 1 << 70, -1):
        assert await code_of(tube.put("beyond", number=number)) == "RANGE"
    assert await code_of(tube.put("no number", number="3")) == "WRONGTYPE"
    other = await queue.tube("long ids", "disque")
    assert await code_of(other.put("x", number=1)) == "UNSUPPORTED"
    assert await tube.put("repeated", number=3, dedup="a") == first
    assert (await tube.stats())["ready"] == 1


async def test_a_job_arrives_buried_or_done(queue: Any) -> None:
    tube = await queue.tube("moved", keep=True)
    buried, done = await tube.put("b", state="buried", ttl=90), await tube.put("d", state="done")
    assert (buried.state, done.state) == ("buried", "done") == (await state_of(buried), await state_of(done))
    assert await tube.take() is None
    assert await tube.kick() == 1 and (await tube.take()).body == "b"
    assert await code_of(tube.put("x", state="taken")) == "RANGE"
    assert await code_of(tube.put("x", state="buried", delay=1)) == "UNSUPPORTED"
    assert await code_of(tube.put("x", state="buried", urgent=True)) == "UNSUPPORTED"
    assert await code_of((await queue.tube("gone")).put("x", state="done")) == "UNSUPPORTED"
    assert sum((await tube.stats()).values()) == 2


async def test_a_put_with_new_is_refused_if_an_existing_job_would_be_returned(queue: Any) -> None:
    tube = await queue.tube("moved")
    await tube.put("first", dedup="d", unique="u", new=True)
    assert await code_of(tube.put("second", dedup="d", new=True)) == "JOBEXISTS"
    assert await code_of(tube.put("second", unique="u", new=True)) == "JOBEXISTS"
    await (await tube.take()).ack()
    assert await code_of(tube.put("second", dedup="d", new=True)) == "JOBEXISTS"
    assert (await tube.put("third", unique="u", new=True)).body == "third"


async def test_a_unique_put_returns_the_job_that_is_there(queue: Any) -> None:
    tube = await queue.tube("unique")
    first = await tube.put("first", unique="v")
    assert await tube.put("second", unique=b"v") == first
    assert await tube.put("third", unique="other") != first
    job = await tube.take()
    assert await tube.put("while taken", unique="v") == job
    await job.bury("no")
    assert await tube.put("while buried", unique="v") == job
    assert (await tube.stats())["ready"] == 1
    await job.delete()
    again = await tube.put("again", unique="v")
    assert again.body == "again" and again.id != first.id


async def test_a_dedup_id_returns_the_job_that_was_put(queue: Any) -> None:
    tube = await queue.tube("dedup")
    first = await tube.put("first", dedup="d")
    assert await tube.put("second", dedup=b"d") == first
    assert await tube.put("third", dedup="e") != first
    assert (await tube.stats())["ready"] == 2


async def test_a_dedup_id_is_remembered_when_its_job_is_gone(queue: Any) -> None:
    tube = await queue.tube("dedup")
    first = await tube.put("first", dedup="d")
    await (await tube.take()).ack()
    again = await tube.put("second", dedup="d")
    assert await state_of(again) == "gone" and (await tube.stats())["ready"] == 0
    assert again.id == first.id, "the id of a job is the same for ever"


async def test_a_dedup_id_is_checked_before_a_name_so_that_a_put_can_be_repeated(queue: Any) -> None:
    tube = await queue.tube("dedup")
    first = await tube.put("x", name="n", dedup="d")
    assert await tube.put("x", name="n", dedup="d") == first


async def test_a_dedup_id_is_forgotten_after_its_window(queue: Any) -> None:
    tube = await queue.tube("window", dedup_window=0.02)
    first = await tube.put("first", dedup="d")

    async def forgotten() -> bool:
        return (await tube.put("again", dedup="d")) != first

    await eventually(forgotten)
    assert (await tube.stats())["ready"] == 2


async def test_the_number_of_remembered_dedup_ids_is_limited(queue: Any) -> None:
    tube = await queue.tube("count", dedup_count=2)
    first = await tube.put(1, dedup="a")
    await tube.put(2, dedup="b")
    assert await tube.put(1, dedup="a") == first
    await tube.put(3, dedup="c")
    assert await tube.put(1, dedup="a") != first


async def test_unique_and_dedup_hold_for_every_put_of_a_batch(queue: Any) -> None:
    tube = await queue.tube("batch")
    jobs = await tube.put_many([1, 2, 3], unique="v")
    assert jobs[0] == jobs[1] == jobs[2]
    jobs = await tube.put_many([1, 2, 3], dedup="d")
    assert jobs[0] == jobs[1] == jobs[2]
    assert (await tube.stats())["ready"] == 2


async def test_a_body_larger_than_the_queue_allows_is_refused(queue: Any) -> None:
    tube = await queue.tube("big")
    assert await code_of(tube.put(b"\0" * (64 * 1024 * 1024 + 1))) == "TOOBIG"


@pytest.mark.parametrize("priority", [1 << 53, -(1 << 53), 1 << 60, -(1 << 60), 1 << 70])
async def test_every_priority_beyond_53_bits_is_refused(queue: Any, priority: int) -> None:
    tube = await queue.tube("levels")
    assert await code_of(tube.put("body", priority=priority)) == "RANGE"
    await tube.put("body")
    job = await tube.take()
    assert await code_of(job.release(priority=priority)) == "RANGE"
    await job.bury()
    assert await code_of(job.dig(priority=priority)) == "RANGE"


async def test_an_imported_job_continues_its_count_of_failures(queue: Any) -> None:
    tube = await queue.tube("moved here", "fifottl")
    await tube.put("body", nacks=3)
    job = await tube.take()
    assert job.nacks == 3
    await job.nack()
    assert (await tube.take()).nacks == 4


@pytest.mark.parametrize(
    ("nacks", "code"), [(-1, "RANGE"), (1 << 40, "RANGE"), (1.5, "WRONGTYPE"), (True, "WRONGTYPE")]
)
async def test_an_invalid_count_of_failures_is_refused(queue: Any, nacks: Any, code: str) -> None:
    tube = await queue.tube("moved here")
    assert await code_of(tube.put("body", nacks=nacks)) == code


# ---- Python values ---------------------------------------------------------------------------------------------------


async def test_a_delay_may_be_a_timedelta(queue: Any) -> None:
    tube = await queue.tube("later")
    meta = await (
        await tube.put("x", delay=timedelta(minutes=1), ttl=timedelta(hours=1), ttr=timedelta(seconds=2))
    ).meta()
    assert meta["wakes"] - meta["created"] == pytest.approx(60)
    assert (meta["ttl"], meta["ttr"]) == (3_660, 2)
    assert await code_of(tube.put("x", delay=timedelta(seconds=-1))) == "RANGE"


async def test_a_job_waits_for_a_moment(queue: Any) -> None:
    tube = await queue.tube("at")
    moment = datetime.now(UTC) + timedelta(minutes=10)
    for at in (moment, moment.astimezone(timezone(timedelta(hours=5))), moment.astimezone().replace(tzinfo=None)):
        job = await tube.put("x", at=at)
        assert await state_of(job) == "delayed"
        assert (await job.meta())["wakes"] == pytest.approx(moment.timestamp(), abs=0.002)
    [many] = await tube.put_many(["x"], at=moment)
    assert (await many.meta())["wakes"] == pytest.approx(moment.timestamp(), abs=0.002)


async def test_a_moment_that_has_passed_means_now(queue: Any) -> None:
    tube = await queue.tube("at")
    for at in (datetime.now(UTC) - timedelta(seconds=1), datetime(1970, 1, 1, tzinfo=UTC), datetime(1900, 1, 1)):
        assert await state_of(await tube.put("x", at=at)) == "ready"


async def test_an_invalid_moment_is_refused(queue: Any) -> None:
    tube, plain = await queue.tube("at"), await queue.tube("plain", "fifo")
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert await code_of(tube.put("x", at=soon, delay=1)) == "UNSUPPORTED"
    assert await code_of(tube.put("x", at=soon.timestamp())) == "WRONGTYPE"
    assert await code_of(tube.put("x", at=datetime(9999, 1, 1, tzinfo=UTC))) == "RANGE"
    assert await code_of(plain.put("x", at=soon)) == "UNSUPPORTED"
    stage = await settled(queue.stage(own("at")))
    assert await code_of(stage.put(tube, "x", at=soon)) == "UNSUPPORTED"
    assert not any((await tube.stats()).values())


async def test_each_job_of_a_put_of_many_may_have_options_of_its_own(queue: Any) -> None:
    tube = await queue.tube("pages", "utubettl")
    new = [penstock.NewJob("a", key="site 1"), penstock.NewJob({"b": 1}, key="site 2", priority=1, delay=60), "c"]
    jobs = await tube.put_many(new, key="others", priority=5)
    told = [await job.meta() for job in jobs]
    assert [(meta["key"], meta["priority"], meta["state"]) for meta in told] == [
        ("site 1", 5, "ready"),
        ("site 2", 1, "delayed"),
        ("others", 5, "ready"),
    ]
    assert [job.body for job in jobs] == ["a", {"b": 1}, "c"]
    stage = await settled(queue.stage(own("keys")))
    [staged] = await stage.put_many(tube, [penstock.NewJob("d", key="site 3")], key="others")
    assert (await staged.meta())["key"] == "site 3"
    assert await code_of(tube.put_many([penstock.NewJob("e", key=1)])) == "WRONGTYPE"
    assert await code_of(tube.put_many(penstock.NewJob("e"))) == "WRONGTYPE"


async def test_moments_uuids_and_decimals_come_back_as_text(queue: Any) -> None:
    tube = await queue.tube("bodies")
    id, at = uuid.uuid4(), datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
    await tube.put({"id": id, "at": at, "day": at.date(), "sum": Decimal("1.10"), "all": [id]})
    assert (await tube.take()).body == {
        "id": str(id),
        "at": "2026-11-18T09:30:00+00:00",
        "day": "2026-11-18",
        "sum": "1.10",
        "all": [str(id)],
    }
    await tube.put(id)
    assert (await tube.take()).body == str(id)
    assert await code_of(tube.put({"a set": {1}})) == "WRONGTYPE"


async def test_a_misspelt_keyword_names_the_method_and_the_closest_keyword(queue: Any) -> None:
    tube = await queue.tube("keywords")
    stage = await settled(queue.stage(own("keywords")))
    for call, text in (
        (lambda: tube.put("x", dely=1), r"^put\(\) got an unexpected keyword argument 'dely'; did you mean 'delay'\?$"),
        (lambda: tube.put("x", timout=1), r"^put\(\) .* did you mean 'timeout'\?$"),
        (lambda: tube.put_many(["x"], prioritty=1), r"^put_many\(\) .*'prioritty'; did you mean 'priority'\?$"),
        (lambda: stage.put(tube, "x", kee="k"), r"^put\(\) .*'kee'; did you mean 'key'\?$"),
        (lambda: queue.tube("new", tpye="fifo"), r"^tube\(\) .*'tpye'; did you mean 'type'\?$"),
        (lambda: queue.tube("new", retrey="5x"), r"^tube\(\) .*'retrey'; did you mean 'retry'\?$"),
        (lambda: tube.alter(tttl=5), r"^alter\(\) .*'tttl'; did you mean 'ttl'\?$"),
    ):
        with pytest.raises(TypeError, match=text):
            await settled(call())
    with pytest.raises(TypeError, match=r"^NewJob\(\) .*'kee'; did you mean 'key'\?$"):
        penstock.NewJob("x", kee="k")  # type: ignore[call-arg]
    assert await queue.tubes() == ["keywords"]
