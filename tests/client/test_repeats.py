"""Repetition after a lost reply: only commands whose effect is the same twice as once, with others in between."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock.client import commands as c
from penstock.client.commands import NO_REPEAT, REPEAT, REPEAT_AND_CHECK, Call
from penstock.core.errors import ConnectionLost, NotOwner, NotTaken, OnlyOnce
from penstock.core.job import Draft
from tests.client.proxy import Proxy, url
from tests.server.serving import Server

# ---- Each command ----------------------------------------------------------------------------------------------------

READS, SETS, NUMBERED, HOLDERS = "it reads", "it sets", "it has a number or an id", "only the holder may"
ANY_JOBS, ANYBODY, UNKNOWN = "about whichever jobs are there", "anybody may, and the job may have moved on", "who knows"

FACTS = c.JobFacts("j", b"t", b"", 0, 1, 0, False, "taken")

# Whether each command may be repeated while other clients act in between, and the reason.
DECLARED: list[tuple[Callable[..., Any], tuple[Any, ...], int, str]] = [
    (c.identify, (None, 1), REPEAT, SETS),
    (c.max_body, (), REPEAT, READS),
    (c.held, (False,), REPEAT, READS),
    (c.tube, (b"t", "fifo", {}), REPEAT, SETS),
    (c.find_tube, (b"t",), REPEAT, READS),
    (c.tubes, (), REPEAT, READS),
    (c.scan_tubes, (b"0", c.states), REPEAT, READS),
    (c.scan_policies, (b"0",), REPEAT, READS),
    (c.tube_stats, (b"t", c.states), REPEAT, READS),
    (c.alter, (b"t", {"ttr": 1}), REPEAT, SETS),
    (c.alter_to, (b"t", None, {"ttr": 1}), REPEAT, SETS),
    (c.pause, (b"t", True, True), REPEAT, SETS),
    (c.truncate, (b"t",), NO_REPEAT, ANY_JOBS),
    (c.drop, (b"t",), NO_REPEAT, ANY_JOBS),
    (c.release_all, (b"t",), NO_REPEAT, ANY_JOBS),
    (c.kick, (b"t", 1, 0, None), NO_REPEAT, ANY_JOBS),
    (c.put, (b"t", b"x", 0, {}), NO_REPEAT, UNKNOWN),
    (c.put, (b"t", "x", 0, {"unique": "u", "name": "n"}), NO_REPEAT, "both are free when the job is gone"),
    (c.put, (b"t", "x", 0, {"dedup": "d"}), REPEAT, NUMBERED),
    (c.put_many, (b"t", ["x"], {"unique": "u"}), NO_REPEAT, "it is free when the job is gone"),
    (c.put_many, (b"t", ["x"], {"dedup": "d"}), REPEAT, NUMBERED),
    (c.stage, (b"s", b"t", 1, ["x"], {"dedup": "d"}), NO_REPEAT, UNKNOWN),
    (c.close_stages, (b"PUBLISH", ["s"]), REPEAT, NUMBERED),
    (c.take_one, (b"t",), REPEAT, "what nobody was given goes back"),
    (c.take, ([b"t"], 1, 0, None, 1), REPEAT, "what nobody was given goes back"),
    (c.peek, ("j",), REPEAT, READS),
    (c.named, (b"t", "n"), REPEAT, READS),
    (c.list_jobs, (b"t", "ready", 1), REPEAT, READS),
    (c.ack, ("j",), REPEAT_AND_CHECK, HOLDERS),
    (c.ack_many, (["j"],), REPEAT, HOLDERS),
    (c.done, ("j", "x", ...), REPEAT_AND_CHECK, HOLDERS),
    (c.release, ("j",), REPEAT_AND_CHECK, HOLDERS),
    (c.requeue, ("j",), REPEAT_AND_CHECK, HOLDERS),
    (c.nack, ("j", ""), REPEAT_AND_CHECK, HOLDERS),
    (c.bury, ("j", ""), REPEAT_AND_CHECK, HOLDERS),
    (c.leave, (FACTS, None, None), REPEAT_AND_CHECK, HOLDERS),
    (c.touch, ("j", None), REPEAT, SETS),
    (c.touch, ("j", 1), NO_REPEAT, "it adds"),
    (c.cancel, ("j", ""), REPEAT_AND_CHECK, "a cancelled job is not cancelled twice"),
    (c.report, ("j", "x"), NO_REPEAT, "watchers would get the value twice"),
    (c.watch, ("j", b"t", 0, 1), REPEAT, READS),
    (c.scan_sessions, (b"0",), REPEAT, READS),
    (c.session_events, (0, 1, None), REPEAT, READS),
    (c.delete, ("j",), REPEAT_AND_CHECK, "an id never comes back"),
    (c.dig, ("j", 0, None, None), NO_REPEAT, ANYBODY),
    (c.snatch, ("j", 0), NO_REPEAT, ANYBODY),
    (c.restart, ("j", 0), NO_REPEAT, ANYBODY),
    (c.switch, ("j", "ready", 0), NO_REPEAT, ANYBODY),
    (c.set_priority, ("j", 1), NO_REPEAT, ANYBODY),
    (c.run_now, ("j",), NO_REPEAT, ANYBODY),
    (c.edit, ("j", b"x"), NO_REPEAT, ANYBODY),
    (c.move, ("j", b"t", 0), NO_REPEAT, ANYBODY),
    (c.scan, (0, None, [], 1), REPEAT, READS),
    (c.wait, ("j", b"t", 1), REPEAT, READS),
    (c.scan_sessions, (b"0",), REPEAT, READS),
    (c.then, (c.ack("j"), 1, [(b"t", Draft(b"x"))]), REPEAT, NUMBERED),
    (c.tube_keys, (b"t", 1), REPEAT, READS),
    (c.tube_causes, (b"t", 1), REPEAT, READS),
    (c.create_batch, (b"b", [], None), REPEAT, NUMBERED),
    (c.seal_batch, (b"b",), REPEAT, SETS),
    (c.batch_info, (b"b",), REPEAT, READS),
    (c.cancel, ("j", ""), REPEAT_AND_CHECK, SETS),
    (c.report, ("j", "x"), NO_REPEAT, "it adds"),
    (c.watch, ("j", b"t", 0, 1), REPEAT, READS),
    (c.session_events, (0, 1, None), REPEAT, READS),
    (c.ended_before, ("j",), REPEAT, READS),
    (c.job_meta, ("j",), REPEAT, READS),
    (c.state_of, ("j",), REPEAT, READS),
    (c.history, ("j",), REPEAT, READS),
    (c.claim, (b"t", "c", 1, 1, 1, 0), REPEAT, NUMBERED),
    (c.read_claim, ("c", 1, (0, 1)), REPEAT, READS),
    (c.renew_claims, ("c", 1, 0), REPEAT, SETS),
    (c.release_claims, ("c", 0), NO_REPEAT, ANY_JOBS),
    (c.claim_info, ("c",), REPEAT, READS),
    (c.ack_claims, ("c", 1, 0), REPEAT, NUMBERED),
    (c.journal_head, (), REPEAT, READS),
    (c.journal_events, (1, None), REPEAT, READS),
    (c.journal_digest, (1, None), REPEAT, READS),
    (c.checkpoint, (), REPEAT, "one snapshot more"),
    (c.execute, (("PING",),), NO_REPEAT, UNKNOWN),
]


def makers() -> set[str]:
    """Return the functions that return a Call."""
    return {
        made
        for made, function in inspect.getmembers(c, inspect.isfunction)
        if not made.startswith("_") and str(inspect.signature(function).return_annotation).startswith("Call[")
    }


def test_every_command_states_whether_it_may_be_repeated() -> None:
    assert inspect.signature(Call).parameters["repeat"].default is inspect.Parameter.empty
    said = set()
    for make, args, repeat, why in DECLARED:
        call = make(*args)
        assert call.repeat == repeat, (call.words, why)
        assert (repeat == REPEAT_AND_CHECK) == (call.execution_check is not None), call.words
        said.add(make.__name__)
    assert said == makers(), "say of each of these whether it may be, and why"


# ---- Other clients act before the repetition -------------------------------------------------------------------------


def test_a_truncate_removes_no_job_that_was_put_after_it(server: Server, proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube = queue.tube(name)
        tube.put("old")
        proxy.to_client, proxy.meanwhile = 0, lambda: other.tube(name).put("new")
        with pytest.raises(ConnectionLost):
            tube.truncate()
        assert [job.body for job in tube.jobs("ready")] == ["new"]


def test_release_all_releases_no_job_that_was_taken_after_it(server: Server, proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube = queue.tube(name)
        job = tube.put("x")
        assert other.tube(name).take() == job
        proxy.to_client, proxy.meanwhile = 0, lambda: other.tube(name).take()
        with pytest.raises(ConnectionLost):
            tube.release_all()
        assert job.state == "taken" and tube.events()["released"] == 1


def test_a_touch_adds_its_seconds_once(proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue:
        tube = queue.tube(name, ttr=60)
        tube.put("x")
        job = tube.take()
        assert job is not None
        before = job.meta()["wakes"]
        proxy.to_client = 0
        with pytest.raises(ConnectionLost):
            job.touch(100)
        assert job.meta()["wakes"] - before == 100


@pytest.mark.parametrize("options", [{"unique": "order 7"}, {"name": "order 7"}, {"dedup": "order 7"}])
def test_a_repeated_put_adds_no_second_job_when_the_first_is_done(
    server: Server, proxy: Proxy, name: str, options: dict[str, Any]
) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube, work = queue.tube(name), other.tube(name)
        for put in (lambda: tube.put("charge", **options), lambda: tube.put_many(["charge"], **options)):
            proxy.to_client, proxy.meanwhile = 0, lambda: [job.ack() for job in work.take_many(9)]
            try:
                put()
            except ConnectionLost:
                assert "dedup" not in options
            assert tube.stats()["ready"] == 0 and tube.events()["put"] == tube.events()["acked"]


def test_a_job_restarted_and_done_since_is_not_restarted_again(server: Server, proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube, work = queue.tube(name, keep=True), other.tube(name)
        job = tube.put("x")
        work.take().ack()
        proxy.to_client, proxy.meanwhile = 0, lambda: work.take().ack()
        with pytest.raises(ConnectionLost):
            job.restart()
        assert job.state == "done"


@pytest.mark.parametrize("how", ["release", "requeue", "nack", "bury", "pipeline"])
def test_a_job_given_back_and_taken_by_another_thread_of_the_client_stays_with_it(
    server: Server, proxy: Proxy, name: str, how: str
) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube, work = queue.tube(name, "fifottl"), other.tube(name)
        tube.put("x")
        mine = tube.take()
        assert mine is not None
        taken: list[Any] = []

        def meanwhile() -> None:
            work.kick()
            taken.append(tube.take())

        proxy.to_client, proxy.meanwhile = 0, meanwhile
        if how == "pipeline":
            with queue.pipeline() as pipe:
                pipe.release(mine)
        elif how == "bury":
            with pytest.raises(penstock.CommandError):
                mine.bury()
        else:
            getattr(mine, how)()
        assert taken[0] == mine and taken[0].state == "taken" and taken[0].deliveries == 2
        assert tube.events()["taken"] == 2, "nobody else was given it"
        # A lost take does not give it back either.
        tube.put("y")
        proxy.to_client = 20
        assert tube.take().body == "y" and proxy.cuts == 2
        taken[0].ack()


async def test_a_nacked_job_that_another_task_took_is_nacked_once(server: Server, proxy: Proxy, name: str) -> None:
    loop = asyncio.get_running_loop()
    async with penstock.connect_async(url(proxy.port)) as queue:
        tube = await queue.tube(name, "fifottl")
        await tube.put("x")
        mine = await tube.take()
        taken: list[Any] = []

        def meanwhile() -> None:
            taken.append(asyncio.run_coroutine_threadsafe(tube.take(timeout=20), loop).result(20))

        proxy.to_client, proxy.meanwhile = 0, meanwhile
        await mine.nack()
        assert taken[0] == mine and (await taken[0].meta())["state"] == "taken"
        assert (await tube.events())["nacked"] == 1
        await tube.put("y")
        proxy.to_client = 20
        assert (await tube.take()).body == "y" and proxy.cuts == 2
        await taken[0].ack()


def test_a_release_counts_as_executed_if_the_job_was_taken_after_the_refusal() -> None:
    again = c.JobFacts("j", b"t", b"", 0, 2, 0, False, "taken")
    for call in (c.release("j", hold=1), c.requeue("j", 1), c.nack("j", "", 1)):
        assert call.execution_check is not None
        call.execution_check.judge(NotTaken(), again)
        call.execution_check.judge(NotOwner(), again)
        with pytest.raises(OnlyOnce):
            call.execution_check.judge(OnlyOnce(), FACTS)
    for call in (c.ack("j"), c.bury("j", "", 1)):
        assert call.execution_check is not None
        with pytest.raises(NotTaken):
            call.execution_check.judge(NotTaken(), again)


# ---- Random sequences ------------------------------------------------------------------------------------------------


def test_no_job_has_two_holders_when_connections_break_again_and_again(proxy: Proxy, name: str) -> None:
    jobs_count = 300
    in_hands: set[str] = set()
    done: list[int] = []
    wrong: list[Any] = []

    def work(tube: Any, chance: random.Random) -> None:
        while len(done) < jobs_count:
            job = tube.take(timeout=0.05)
            if job is None:
                continue
            if job.id in in_hands:
                wrong.append(job)
            in_hands.add(job.id)
            if chance.random() < 0.1:
                proxy.to_client = chance.randrange(4)
            in_hands.discard(job.id)
            how = chance.choice(["ack", "release", "nack"])
            try:
                getattr(job, how)()
                done.extend([job.body] if how == "ack" else [])
            except penstock.CommandError as error:
                wrong.append(error)

    with penstock.connect(url(proxy.port), grace=60) as queue:
        tube = queue.tube(name, "fifo")
        tube.put_many(range(jobs_count))
        with ThreadPoolExecutor(8) as threads:
            for worker in [threads.submit(work, tube, random.Random(seed)) for seed in range(8)]:
                worker.result(60)
        proxy.to_client = None
        assert not wrong and sorted(done) == list(range(jobs_count))
        assert not any(tube.stats().values()) and queue._session.held_jobs.is_empty()
        assert proxy.cuts


def test_a_chain_is_neither_cut_nor_doubled_by_lost_commands_and_replies(proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port), grace=30) as queue:
        tube = queue.tube(name, "fifo")
        tube.put(0)
        for step in range(12):
            job = tube.take()
            assert job is not None and job.body == step
            if step % 3 == 1:
                proxy.to_client = 0
            elif step % 3 == 2:
                proxy.to_server = 10
            [following] = job.ack(then=[(tube, step + 1)])
            assert tube.stats()["ready"] == 1 and following.body == step + 1
    assert proxy.cuts == 8
