"""Headers of a job: written once with `put`, readable wherever the job is, through every interface."""

from __future__ import annotations

from typing import Any

import pytest

import penstock

from .interfaces import code_of, own, settled

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tenant": "äöü"}


async def test_headers_come_back_in_order_wherever_the_job_is_shown(queue: Any) -> None:
    tube = await queue.tube("t")
    put = await tube.put("body", headers=TRACE, name="n")
    assert put.headers == TRACE and list(put.headers) == list(TRACE)
    shown = [
        await queue.job(put.id),
        await tube.job(put.id),
        await tube.named("n"),
        *await tube.jobs("ready"),
        *(await queue.scan())[0],
    ]
    assert [job.headers for job in shown] == [TRACE] * 5
    taken = await tube.take()
    assert taken.headers == TRACE and list(taken.headers) == list(TRACE) and taken.body == "body"


async def test_a_job_without_headers_has_an_empty_dict_of_its_own(queue: Any) -> None:
    tube = await queue.tube("t")
    await tube.put("plain")
    await tube.put("empty", headers={})
    for job in [await tube.take(), await tube.take(timeout=1)]:
        job.headers["changed"] = "here"
        assert job.headers == {}


async def test_every_form_of_take_returns_headers(queue: Any) -> None:
    tube, other = await queue.tube("t"), await queue.tube("other")
    await tube.put_many(["1", "2", "3", "4"], headers=TRACE)
    jobs = [await tube.take(), await tube.take(timeout=1), *await tube.take_many(1), *await queue.take([other, tube])]
    assert [job.headers for job in jobs] == [TRACE] * 4


async def test_a_value_of_any_bytes_survives_as_surrogate_escapes(queue: Any) -> None:
    tube = await queue.tube("t")
    await tube.put("body", headers={"all": bytes(range(256)), "empty": "", "null": b"\0", "text": "\udc80 again"})
    job = await tube.take()
    raw = {name: value.encode("utf-8", "surrogateescape") for name, value in job.headers.items()}
    assert raw == {"all": bytes(range(256)), "empty": b"", "null": b"\0", "text": b"\x80 again"}
    # A consumer can pass headers on unchanged.
    await tube.put("next", headers=job.headers)
    assert (await tube.take()).headers == job.headers


async def test_jobs_of_a_batch_have_common_headers_and_their_own(queue: Any) -> None:
    tube = await queue.tube("t")
    jobs = await tube.put_many(
        [
            "common",
            penstock.NewJob("both", headers={"tenant": "own", "third": "3"}),
            penstock.NewJob("none of its own", delay=0),
        ],
        headers=TRACE,
    )
    expected = [TRACE, {**TRACE, "tenant": "own", "third": "3"}, TRACE]
    assert [job.headers for job in jobs] == expected
    assert [job.headers for job in await tube.take_many(3)] == expected


async def test_staged_and_claimed_jobs_have_headers(queue: Any) -> None:
    tube, consumer = await queue.tube("t"), own("reader")
    stage = await settled(queue.stage(own("stage")))
    put = await stage.put("t", "body", headers=TRACE)
    assert put.headers == TRACE
    await stage.publish()
    (claimed,) = await tube.claim(consumer, 1, 10)
    (again,) = await queue.read_claim(consumer, 1)
    assert claimed.headers == again.headers == TRACE
    await queue.ack_claims(consumer, 1)


async def test_headers_stay_with_the_job_until_its_end(queue: Any) -> None:
    tube, other, failed = await queue.tube("t"), await queue.tube("other"), await queue.tube("failed")
    await tube.alter(keep=True)
    job = await tube.put("body", headers=TRACE, retry="1x then move failed")
    await (await tube.take()).release()
    await (await tube.take()).bury("why")
    assert (await queue.job(job.id)).headers == TRACE
    assert await tube.kick() == 1
    await (await queue.job(job.id)).move(other)
    assert (await other.take()).headers == TRACE
    taken = await queue.job(job.id)
    await taken.nack("failed")
    dead = await failed.take()
    assert dead.id == job.id and dead.headers == TRACE
    await dead.move(tube)
    last = await tube.take()
    await last.done("result")
    kept = await queue.job(job.id)
    assert kept.body == "result" and kept.headers == TRACE


async def test_a_temporary_tube_keeps_headers_and_passes_them_on(queue: Any) -> None:
    temporary, tube = await queue.tube("temporary", temporary=True), await queue.tube("t")
    job = await temporary.put("body", headers=TRACE)
    assert (await queue.job(job.id)).headers == TRACE
    await (await temporary.take()).move(tube)
    assert (await tube.take()).headers == TRACE


async def test_a_repeated_put_returns_the_first_job_with_its_headers(queue: Any) -> None:
    tube = await queue.tube("t")
    first = await tube.put("first", unique="u", headers={"which": "first"})
    again = await tube.put("again", unique="u", headers={"which": "again"})
    assert again.id == first.id
    assert (await queue.job(again.id)).headers == (await tube.take()).headers == {"which": "first"}


async def test_history_has_the_headers_of_the_put(face: Any, queue: Any) -> None:
    tube = await queue.tube("t")
    job = await tube.put("body", headers={**TRACE, "raw": b"\xff"})
    await (await tube.take()).ack()
    if face._journal is False and face.is_live:
        with pytest.raises(penstock.NoJournal):
            await queue.history(job.id)
        return
    events = await queue.history(job.id)
    assert [event.headers for event in events] == [{**TRACE, "raw": "\udcff"}, None, None]
    assert events[0].as_json(False)["headers"] == {**TRACE, "raw": "\\xff"}


MANY = {f"name {number}": "" for number in range(64)}
BAD: list[tuple[Any, str]] = [
    ({**MANY, "one more": ""}, "BADHEADERS"),
    ({"n": "x" * (8 * 1024)}, "BADHEADERS"),
    ({"n" * (8 * 1024): "x"}, "BADHEADERS"),
    ({"ü" * 4096 + "n": ""}, "BADHEADERS"),
    ({"": "empty"}, "BADHEADERS"),
    ({"\ud800": "no UTF-8"}, "BADHEADERS"),
    ({"n": "\ud800"}, "BADHEADERS"),
    ({"n": 5}, "WRONGTYPE"),
    ({"n": None}, "WRONGTYPE"),
    ({5: "n"}, "WRONGTYPE"),
    ({b"n": "v"}, "WRONGTYPE"),
    ([("n", "v")], "WRONGTYPE"),
    ("n=v", "WRONGTYPE"),
]


@pytest.mark.parametrize(("headers", "code"), BAD, ids=lambda each: repr(each)[:30])
async def test_bad_headers_are_refused_and_nothing_is_stored(queue: Any, headers: Any, code: str) -> None:
    tube = await queue.tube("t")
    assert await code_of(tube.put("body", headers=headers)) == code
    assert await code_of(tube.put_many(["body"], headers=headers)) == code
    assert await code_of(tube.put_many(["good", penstock.NewJob("bad", headers=headers)], headers={"a": "b"})) == code
    assert sum((await tube.stats()).values()) == 0


async def test_the_limits_themselves_are_allowed(queue: Any) -> None:
    tube = await queue.tube("t")
    for headers in (MANY, {"n": "x" * (8 * 1024 - 1)}, {"n" * 8 * 1024: ""}):
        await tube.put("body", headers=headers)
        assert (await tube.take()).headers == headers
