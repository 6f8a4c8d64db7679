"""A client that is shared by threads, by processes after a fork, and by successive event loops; and pipelines."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.core.errors import NotOwner, UnknownTube
from tests.client.proxy import proxy_to
from tests.server.serving import Server

_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"shared {next(_names)}"


def url(server: Server) -> str:
    return f"penstock://127.0.0.1:{server.port}"


def test_threads_share_a_queue_and_its_session(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name)
        done: list[int] = []

        def work() -> None:
            while (job := tube.take(timeout=20)) is not None and job.body is not None:
                job.ack()
                done.append(job.body)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for number in range(200):
            tube.put(number)
        tube.put_many([None] * len(threads))
        for thread in threads:
            thread.join(20)
        assert sorted(done) == list(range(200))
        assert tube.stats()["taken"] == len(threads), "one session has them all"
        assert len(queue._session._idle) <= 8


def test_a_job_taken_in_one_thread_may_be_acked_in_another(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name)
        tube.put("x")
        job = tube.take()
        assert job is not None
        thread = threading.Thread(target=job.ack)
        thread.start()
        thread.join(20)
        assert job.state == "gone"


def test_closing_wakes_waiting_calls(server: Server, name: str) -> None:
    queue = penstock.connect(url(server))
    tube = queue.tube(name)
    told: list[Any] = []

    def wait() -> None:
        try:
            tube.take(timeout=None)
        except penstock.CommandError as error:
            told.append(error.code)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(queue._session._busy) < 3:
        threading.Event().wait(0.001)
    queue.close()
    for thread in threads:
        thread.join(20)
    assert told == ["CLOSED"] * 3


def test_a_child_after_a_fork_has_a_session_of_its_own(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name)
        tube.put_many(["parent's", "child's"])
        job = tube.take()
        assert job is not None
        token = queue.token
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                own = tube.take()
                assert own is not None and own.body == "child's" and queue.token not in ("", token)
                with pytest.raises(NotOwner):
                    job.ack()
                own.ack()
                queue.close()
                code = 0
            finally:
                os.write(writing, b"x")
                os._exit(code)
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queue.token == token and tube.events()["acked"] == 1
        job.ack()


def test_a_queue_for_asyncio_may_be_used_in_one_loop_after_the_other(server: Server, name: str) -> None:
    queue = penstock.connect_async(url(server))

    async def use(number: int) -> int:
        tube = await queue.tube(name)
        await tube.put(number)
        job = await tube.take()
        assert job is not None
        await job.ack()
        # The connections of an event loop end with it.
        await asyncio.gather(*(connection.finish() for connection in list(queue._session._all)))
        return int(job.body)

    assert [asyncio.run(use(number)) for number in range(3)] == [0, 1, 2]


async def test_commands_of_one_turn_of_the_loop_go_out_in_one_write(server: Server, name: str) -> None:
    async with penstock.connect_async(url(server)) as queue:
        tube = await queue.tube(name)
        shared = queue._session._shared
        assert shared is not None
        written: list[int] = []
        write = shared.transport.write

        class Counting:
            def write(self, data: bytes) -> None:
                written.append(len(data))
                write(data)

            def __getattr__(self, attribute: str) -> Any:
                return getattr(shared.transport, attribute)

        transport, shared.transport = shared.transport, Counting()  # type: ignore[assignment]
        jobs = await asyncio.gather(*(tube.put(number) for number in range(100)))
        shared.transport = transport
        assert len(written) == 1 and len({job.id for job in jobs}) == 100
        assert [job.body for job in await tube.take_many(100)] == list(range(100))


# ---- Pipelines -------------------------------------------------------------------------------------------------------


def test_a_pipeline_sends_many_commands_and_answers_each(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name, "fifottl")
        with queue.pipeline() as pipe:
            answers = [pipe.put(tube, {"n": number}, priority=-number) for number in range(2_500)]
            assert len(pipe) == 2_500
            with pytest.raises(penstock.PenstockError, match="not sent yet"):
                answers[0].value  # noqa: B018
        assert len({answer.value for answer in answers}) == 2_500 == tube.stats()["ready"]
        jobs = tube.take_many(2_400)
        assert len(jobs) == 2_400, "more than a server gives at once"
        with queue.pipeline() as pipe:
            for job in jobs[:2_000]:
                pipe.ack(job)
            pipe.touch(jobs[2_000], 5)
            pipe.release(jobs[2_001], 60)
            pipe.nack(jobs[2_002], "no")
            pipe.bury(jobs[2_003], "no")
            pipe.delete(jobs[2_004])
            kicked = pipe.kick(tube)
        assert kicked.value == 1
        counts = tube.stats()
        assert (counts["delayed"], counts["buried"], counts["taken"], counts["ready"]) == (1, 0, 396, 102)
        assert tube.events()["acked"] == 2_000


def test_a_pipeline_raises_the_first_refusal_and_executes_the_rest(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube, gone = queue.tube(name), queue.tube(f"{name} gone")
        gone.drop()
        with pytest.raises(UnknownTube), queue.pipeline() as pipe:
            pipe.put(gone, "x")
            put = pipe.put(tube, "y")
        assert tube.job(put.value).body == "y"
        with pytest.raises(ValueError, match="mine"), queue.pipeline() as pipe:
            pipe.put(tube, "z")
            raise ValueError("mine")
        assert tube.stats()["ready"] == 1


def test_large_bodies_in_a_pipeline_do_not_block_each_other(server: Server, name: str) -> None:
    with penstock.connect(url(server), timeout=20) as queue:
        tube = queue.tube(name)
        with queue.pipeline() as pipe:
            for _ in range(40):
                pipe.put(tube, bytes(1 << 20))
        assert [len(job.body) for job in tube.take_many(40)] == [1 << 20] * 40


def test_put_many_is_refused_if_it_does_not_fit_into_one_command(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name)
        with pytest.raises(penstock.CommandError, match="put them in several"):
            tube.put_many([b""] * 100_001)
        assert tube.stats()["ready"] == 0
        assert len(tube.put_many([b""] * 2_500)) == 2_500
        assert len(tube.take_many(2_500)) == 2_500


def test_jobs_that_are_never_finished_are_removed_from_the_record(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name, ttr=0.001)
        queue._session.held_jobs._ask_at = 50
        tube.put_many(range(200))
        for _ in range(300):
            tube.take()
        assert len(queue._session.held_jobs._ids) < 200


def test_a_body_that_is_too_long_does_not_fail_the_rest_of_a_pipeline(server: Server, name: str) -> None:
    with penstock.connect(url(server)) as queue:
        tube = queue.tube(name)
        pipe = queue.pipeline()
        before, large, after = pipe.put(tube, "before"), pipe.put(tube, bytes(70 << 20)), pipe.put(tube, "after")
        pipe.send()
        assert tube.job(before.value).body == "before" and tube.job(after.value).body == "after"
        with pytest.raises(penstock.CommandError, match="body"):
            large.value  # noqa: B018
        assert tube.stats()["ready"] == 2


def test_a_pipeline_returns_the_results_before_the_server_was_lost(start: Callable[..., Server]) -> None:
    server = start("--dir", ".")
    with proxy_to(server.port) as proxy:
        queue = penstock.connect(f"penstock://127.0.0.1:{proxy.port}", retry_for=0.5)
        tube = queue.tube("work", "fifo")
        tube.put_many(range(1_500))
        jobs = tube.take_many(1_500)
        pipe = queue.pipeline()
        acked = [pipe.ack(job) for job in jobs[:1_000]]
        late = [pipe.ack(job) for job in jobs[1_000:]]
        put = pipe.put(tube, "x")

        def go() -> None:
            server.kill()
            proxy.close()

        proxy.to_client, proxy.meanwhile = len(b":1\r\n") * 1_200, go
        began = time.monotonic()
        pipe.send()
        assert time.monotonic() - began < 10, "the server is not looked for once for each of them"
        assert [answer.value for answer in acked] == [None] * 1_000
        for answer in (*late, put):
            with pytest.raises(ConnectionError):
                answer.value  # noqa: B018
        queue.close()
