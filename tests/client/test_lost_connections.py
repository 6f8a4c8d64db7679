"""Lost connections: no job is lost and no command is executed twice, at any byte of a conversation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.async_session import AsyncSession
from penstock.client.commands import drop, held
from penstock.compat.queue15 import Queue15
from penstock.core.errors import CommandError, ConnectionLost, Full, NoServer
from tests.client.proxy import Proxy, proxy_to, url
from tests.server.serving import PATIENCE_S, Server, wait_for

# ---- At every byte ---------------------------------------------------------------------------------------------------


def conversation(queue: Any, name: str) -> None:
    """Put, take and ack a job. Each command has been executed exactly once when it returns."""
    tube = queue.tube(name)
    tube.put({"n": 1}, dedup="one")
    job = tube.take()
    assert job is not None and job.body == {"n": 1}
    job.ack()
    assert tube.take() is None


async def conversation_async(queue: Any, name: str) -> None:
    tube = await queue.tube(name)
    await tube.put({"n": 1}, dedup="one")
    job = await tube.take()
    assert job is not None and job.body == {"n": 1}
    await job.ack()
    assert await tube.take() is None


def check_once(queue: Any, name: str) -> None:
    tube = queue.tube(name)
    assert not any(tube.stats().values())
    events = tube.events()
    assert (events["put"], events["acked"]) == (1, 1), events
    # A job of a lost reply went back before it was taken again.
    assert events["taken"] == 1 + events.get("released", 0), events


def lengths(server: Server, name: str) -> tuple[int, int]:
    """Return the number of bytes in each direction of a conversation. It is the same for names of one length."""
    with proxy_to(server.port) as proxy:
        proxy.to_client = proxy.to_server = 1 << 40
        with penstock.connect(url(proxy.port)) as queue:
            conversation(queue, name)
            assert proxy.to_client is not None and proxy.to_server is not None
            return (1 << 40) - proxy.to_client, (1 << 40) - proxy.to_server


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("direction", ["to_client", "to_server"])
def test_a_connection_cut_at_any_byte_loses_and_doubles_nothing(server: Server, direction: str, face: str) -> None:
    down, up = lengths(server, f"cut {direction} {face} 9999")
    # Testing every byte takes a minute. A step of a prime number meets every command at different bytes.
    total, step = (down, 11) if direction == "to_client" else (up, 7)
    if os.environ.get("PENSTOCK_HYPOTHESIS") == "deep":
        step = 1
    with penstock.connect(url(server.port)) as watcher, proxy_to(server.port) as proxy:
        for at in range(1, total, step):
            name = f"cut {direction} {face} {at:04}"
            setattr(proxy, direction, at)
            if face == "sync":
                sync_conversation(proxy, name)
            else:
                asyncio.run(async_conversation(proxy, name))
            proxy.to_client = proxy.to_server = None
            check_once(watcher, name)
        assert proxy.cuts > 50


def sync_conversation(proxy: Proxy, name: str) -> None:
    try:
        queue = penstock.connect(url(proxy.port))
    except NoServer:
        queue = penstock.connect(url(proxy.port))  # The first connection was cut.
    with queue:
        conversation(queue, name)


async def async_conversation(proxy: Proxy, name: str) -> None:
    queue = penstock.connect_async(url(proxy.port))
    try:
        await queue._session.connect()
    except NoServer:
        pass
    async with queue:
        await conversation_async(queue, name)


# ---- Repeated commands -----------------------------------------------------------------------------------------------


def test_a_put_without_dedup_is_not_repeated(server: Server, proxy: Proxy, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue:
        tube = queue.tube(name)
        proxy.to_client = 5
        with pytest.raises(ConnectionLost, match="may have been executed"):
            tube.put("x")
        assert tube.stats()["ready"] == 1, "it had happened, and was not repeated"
        proxy.to_client = 5
        job = tube.put("y", dedup="d", name="n")
        assert job.state == "ready" and tube.named("n") == job
        assert tube.stats()["ready"] == 2


@pytest.mark.parametrize(
    ("finish", "state"),
    [
        (lambda job: job.release(), "ready"),
        (lambda job: job.release(60), "delayed"),
        (lambda job: job.nack("no"), "ready"),
        (lambda job: job.bury("no"), "buried"),
        (lambda job: job.requeue(), "ready"),
        (lambda job: job.touch(), "taken"),
        (lambda job: job.delete(), "gone"),
        (lambda job: job.ack(), "gone"),
    ],
)
def test_a_command_that_finishes_a_job_is_executed_once(
    proxy: Proxy, name: str, finish: Callable[[Any], None], state: str
) -> None:
    with penstock.connect(url(proxy.port)) as queue:
        tube = queue.tube(name, "fifottl")
        tube.put("x", ttr=60)
        job = tube.take()
        assert job is not None
        proxy.to_client = 3
        finish(job)
        assert proxy.cuts == 1 and job.state == state
        assert max(tube.events().values()) <= (2 if state == "taken" else 1)


def test_a_repeated_ack_that_is_too_late_is_refused(proxy: Proxy, server: Server, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube = queue.tube(name)
        tube.put("x")
        job = tube.take()
        assert job is not None
        other.job(job.id).snatch()
        proxy.to_client = 3
        with pytest.raises(penstock.CommandError) as refused:
            job.ack()
        assert refused.value.code == "NOTTAKEN" and job.state == "ready"


# ---- Takes -----------------------------------------------------------------------------------------------------------


def test_jobs_in_a_lost_reply_go_back_while_other_takes_wait(proxy: Proxy, server: Server, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue, penstock.connect(url(server.port)) as other:
        tube, empty = queue.tube(name, "fifo"), queue.tube(name + " empty", "fifo")
        mine = tube.put("mine")
        held_job = tube.take()
        assert held_job == mine
        waiting: list[Any] = []
        thread = threading.Thread(target=lambda: waiting.append(empty.take(timeout=20)))
        thread.start()
        wait_for(lambda: waits_on(server, name + " empty"))
        tube.put("lost")
        proxy.to_client = 30
        again = tube.take()
        assert again is not None and again.body == "lost" and again.deliveries == 2
        wait_for(lambda: waits_on(server, name + " empty"))
        other.tube(name + " empty").put("woken")
        thread.join(20)
        assert waiting[0].body == "woken", "a take that was ended on the way waits on"
        assert mine.state == "taken", "what was known stays"


def waits_on(server: Server, tube: str) -> bool:
    wire = server.connect()
    try:
        stats = wire.call("TUBE", "STATS", tube)
        return bool(dict(zip(stats[::2], stats[1::2], strict=True))[b"waiting"])
    finally:
        wire.close()


def test_jobs_delivered_by_a_function_are_kept_when_lost_jobs_go_back(proxy: Proxy, server: Server, name: str) -> None:
    with penstock.connect(url(proxy.port)) as queue:
        old = Queue15(queue)
        for number in range(3):
            old.put(0, name, 0, 0, 0, None, number)
        first = old.take(0, name, 0)
        proxy.to_client = 20  # In the reply to the next take: by a function, and then by the client's own.
        second = old.take(0, name, 5)
        assert second is not None and second[3] == 1 and proxy.cuts == 1
        proxy.to_client = 20
        job = queue.tube(name).take(timeout=5)
        assert job is not None and job.body == 2 and proxy.cuts == 2
        assert [old.ack(0, task[0])[3] for task in (first, second)] == [0, 1]
        job.ack()
        assert not any(queue.tube(name).stats().values())
        proxy.to_client = 20
        with pytest.raises(ConnectionLost):
            old.put(0, name)


def test_an_interrupted_take_gives_its_job_back(server: Server, name: str) -> None:
    with penstock.connect(url(server.port)) as queue, penstock.connect(url(server.port)) as interrupted:
        tube = interrupted.tube(name, "fifo")
        connection = interrupted._session._idle[-1]
        ask = connection.ask

        def interrupt(*args: Any) -> Any:
            ask(*args)
            raise KeyboardInterrupt

        queue.tube(name).put("x")
        connection.ask = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            tube.take()
        assert connection not in interrupted._session._idle, "nobody knows what would come on it"
        assert interrupted.tubes() and queue.tube(name).stats()["ready"] == 1
        assert tube.take() is not None


class Interruption(BaseException):
    """An exception that interrupts a thread, like KeyboardInterrupt."""


# A socket whose creation was interrupted has no owner. The garbage collector closes it.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_leave_no_lock_behind(server: Server, name: str) -> None:
    with penstock.connect(url(server.port)) as queue:
        tube = queue.tube(name, "fifo")
        tube.put_many(range(200))
        interrupt_often(tube, 1.5)
        # A job that was delivered to an interrupted caller may not be ready, but this one is.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(tube.put, "the last").result(PATIENCE_S)
            assert len(thread.submit(tube.take_many, 201).result(PATIENCE_S)) > 0
        assert not queue._session._takes
    del queue, tube
    gc.collect()


def interrupt_often(tube: Any, seconds: float) -> None:
    """Take and release jobs while being interrupted again and again."""
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise Interruption

    def work_until_interrupted() -> None:
        nonlocal interrupted
        interrupted = False
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.002))
        while not interrupted:
            # An interrupted call may have left a job that the next call releases.
            with contextlib.suppress(CommandError):
                for job in tube.take_many(10):
                    job.release()
        # The exception was raised where Python ignores it, for example during garbage collection.
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with pytest.raises(Interruption):
            work_until_interrupted()
    signal.signal(signal.SIGALRM, before)


async def test_a_cancelled_take_loses_no_job(server: Server, name: str) -> None:
    async with penstock.connect_async(url(server.port)) as queue:
        tube = await queue.tube(name, "fifo")
        seen: list[int] = []
        for number in range(60):
            take = asyncio.ensure_future(tube.take(timeout=None if number % 2 else 0))
            await asyncio.sleep(0.0002 * (number % 7))
            put = asyncio.ensure_future(tube.put(number))
            await asyncio.sleep(0.0003 * (number % 5))
            take.cancel()
            await put
            try:
                job = await take
            except asyncio.CancelledError:
                continue
            if job is not None:
                seen.append(job.body)
                await job.ack()
        while len(seen) < 60:
            job = await tube.take(timeout=10)
            assert job is not None, f"{60 - len(seen)} jobs are stuck"
            seen.append(job.body)
            await job.ack()
        assert sorted(seen) == list(range(60))
        assert await queue._session.call(held(False)) == []


async def test_a_cancelled_close_still_closes_all_connections(server: Server, name: str) -> None:
    for steps in range(1, 9):
        queue = penstock.connect_async(url(server.port), name=f"closing-{steps}")
        tube = await queue.tube(name)
        waiting = asyncio.ensure_future(tube.take(timeout=None))
        await asyncio.sleep(0.005)
        closing = asyncio.ensure_future(queue.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, waiting, return_exceptions=True)
    wire = server.connect()
    while b"name=closing-" in await asyncio.to_thread(wire.call, "CLIENT", "LIST"):
        await asyncio.sleep(0.01)


async def test_a_cancelled_call_does_not_disturb_the_replies_of_others(server: Server, name: str) -> None:
    async with penstock.connect_async(url(server.port)) as queue:
        tube = await queue.tube(name)
        calls = [asyncio.ensure_future(tube.put(number)) for number in range(50)]
        await asyncio.sleep(0)
        for call in calls[::3]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        put = [answer.body for answer in answers if not isinstance(answer, BaseException)]
        assert put == [number for number in range(50) if number % 3]


@pytest.mark.parametrize("error", [ConnectionLost, Interruption])
def test_jobs_of_the_first_of_several_replies_are_returned(
    server: Server, name: str, error: type[BaseException]
) -> None:
    with penstock.connect(url(server.port)) as queue:
        tube = queue.tube(name, "fifo")
        tube.put_many(range(1_500))
        call, calls = queue._call, itertools.count()

        def fail_the_second(asked: Any) -> Any:
            if asked.delivered and next(calls) == 1:
                raise error
            return call(asked)

        queue._call = fail_the_second
        if error is ConnectionLost:
            assert len(tube.take_many(1_500)) == 1_000
        else:
            with pytest.raises(Interruption):
                tube.take_many(1_500)
            assert [job.body for job in tube.take_many(1_500)] == list(range(1_500))


async def test_a_take_of_many_cancelled_between_two_replies_gives_its_jobs_back(server: Server, name: str) -> None:
    async with penstock.connect_async(url(server.port)) as queue:
        tube = await queue.tube(name, "fifo")
        await tube.put_many(range(1_500))
        call, calls = queue._call, itertools.count()

        async def hang_at_the_second(asked: Any) -> Any:
            if asked.delivered and next(calls) == 1:
                taking.cancel()
                await asyncio.sleep(5)
            return await call(asked)

        queue._call = hang_at_the_second
        taking = asyncio.ensure_future(tube.take_many(1_500))
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert [job.body for job in await tube.take_many(1_500)] == list(range(1_500))


WORKER = """
[users.worker]
password = "w"
commands = ["write"]
"""


def test_a_user_with_write_permission_only_survives_a_lost_connection(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "penstock.toml").write_text(WORKER)
    server = start(str(tmp_path / "penstock.toml"), "--requirepass", "all", password="all")
    with (
        proxy_to(server.port) as proxy,
        penstock.connect(f"penstock://worker:w@127.0.0.1:{proxy.port}") as queue,
    ):
        tube = queue.tube("work", "fifo", keep=True)
        tube.put("first")
        proxy.to_client = 20  # In the reply to the take.
        job = tube.take(timeout=5)
        assert job is not None and proxy.cuts == 1
        job.ack()
        other = queue.tube("other")
        other.put("second")
        second = other.take()
        assert second is not None
        proxy.to_client = 0
        second.ack()  # The job is gone, which proves that it was acked.
        assert proxy.cuts == 2


# ---- The server is restarted -----------------------------------------------------------------------------------------


def test_no_job_is_lost_when_the_server_of_a_client_with_taken_jobs_is_killed(start: Callable[..., Server]) -> None:
    server = start("--dir", ".")
    with penstock.connect(url(server.port), retry_for=30) as queue:
        tube = queue.tube("work", "fifo")
        tube.put_many(range(10))
        jobs = tube.take_many(5)
        token = queue.token
        jobs[0].ack()
        server.kill()
        started = threading.Thread(target=lambda: restart(server))
        started.start()
        jobs[1].ack()
        started.join()
        assert queue.token == token, "the session was resumed"
        for job in jobs[2:]:
            job.ack()
        assert tube.stats()["ready"] == 5 and tube.stats()["taken"] == 0
        assert tube.events()["acked"] == 5
        assert [job.body for job in tube.take_many(10)] == [5, 6, 7, 8, 9]


def restart(server: Server) -> None:
    """Start the server again on the same port."""
    server.start_again()


async def test_many_tasks_over_a_restart_ack_each_job_once(start: Callable[..., Server]) -> None:
    server = start("--dir", ".")
    async with penstock.connect_async(url(server.port), retry_for=30) as queue:
        tube = await queue.tube("work", "fifo")
        await tube.put_many(range(200))
        done: list[int] = []

        async def work() -> None:
            while (job := await tube.take()) is not None:
                await asyncio.sleep(0)
                await job.ack()
                done.append(job.body)

        workers = [asyncio.ensure_future(work()) for _ in range(20)]
        while len(done) < 50:
            await asyncio.sleep(0)
        server.kill()
        await asyncio.get_running_loop().run_in_executor(None, restart, server)
        await asyncio.gather(*workers)
        # The job of a lost take went back at once and not after its ttr, because it has none.
        while (job := await tube.take()) is not None:
            await job.ack()
            done.append(job.body)
        assert sorted(done) == list(range(200)) and not any((await tube.stats()).values())


def test_a_new_session_begins_when_the_grace_time_has_passed(proxy: Proxy, server: Server, name: str) -> None:
    with penstock.connect(url(proxy.port), grace=0) as queue, penstock.connect(url(server.port)) as other:
        tube = queue.tube(name, "fifottl")
        tube.put("x")
        job = tube.take()
        assert job is not None
        token = queue.token
        proxy.cut_all()
        wait_for(lambda: other.tube(name).stats()["ready"] == 1)
        with pytest.raises(penstock.CommandError) as refused:
            job.ack()
        assert refused.value.code == "NOTTAKEN" and queue.token != token
        again = tube.take()
        assert again == job
        again.ack()


def test_another_seed_is_tried_when_the_first_does_not_answer(server: Server, name: str) -> None:
    with penstock.connect(f"penstock://127.0.0.1:1,127.0.0.1:{server.port}") as queue:
        queue.tube(name).put("x")


async def test_subscribers_get_changes_after_a_restart_and_reconnect_with_pauses(
    start: Callable[..., Server],
) -> None:
    server = start("--dir", ".")
    heard: list[str] = []
    with penstock.connect(url(server.port), retry_for=0) as queue:
        async with penstock.connect_async(url(server.port), retry_for=0) as tasks:
            queue.subscribe(lambda change: heard.append(f"thread {change.event}"))
            await tasks.subscribe(lambda change: heard.append(f"task {change.event}"))
            server.kill()
            gc.collect()  # Not while the work is measured.
            began = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - began < 0.25
            await asyncio.to_thread(restart, server)
            queue.tube("t").put("x")
            while len(heard) < 2:
                await asyncio.sleep(0.01)
    assert sorted(heard) == ["task put", "thread put"]


def test_the_search_for_a_server_ends_after_retry_for(start: Callable[..., Server]) -> None:
    server = start("--dir", ".")
    queue = penstock.connect(url(server.port), retry_for=0.3)
    tube = queue.tube("gone")
    server.kill()
    began = time.monotonic()
    with pytest.raises(NoServer, match="no server listens"):
        tube.stats()
    assert 0.25 < time.monotonic() - began < 10
    queue.close()


def let_pass(seconds: float) -> None:
    """Advance the clock of the event loop."""
    loop: Any = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds


async def test_the_time_limit_starts_again_with_every_call(server: Server, name: str) -> None:
    async with penstock.connect_async(url(server.port), timeout=5) as queue:
        tube = await queue.tube(name, capacity=1)
        await tube.put("first")
        with pytest.raises(Full):
            await tube.put("second", timeout=0.01)
        # This reply uses the same connection and takes longer than the limit of the call before.
        waiting = asyncio.ensure_future(tube.put("third", timeout=60))
        while all(connection.is_idle() for connection in queue._session._waiting_connections):
            await asyncio.sleep(0.001)
        let_pass(6)
        for _ in range(9):
            await asyncio.sleep(0)
        job = await tube.take()
        await job.ack()
        assert (await waiting).body == "third"


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_long_body_on_a_slow_network_is_received_while_there_is_progress(proxy: Proxy, name: str, face: str) -> None:
    # The whole reply takes longer than the time limit, which is longer than a busy machine stalls.
    body, patience_s, pause_s = bytes(32 << 20), 5, 0.011

    async def put() -> None:
        async with penstock.connect_async(url(proxy.port), timeout=patience_s) as queue:
            tube = await queue.tube(name)
            proxy.pause_s = pause_s
            await tube.put(body)
            proxy.pause_s = 0

    began = time.monotonic()
    if face == "async":
        asyncio.run(put())
    else:
        with penstock.connect(url(proxy.port), timeout=patience_s) as queue:
            tube = queue.tube(name)
            proxy.pause_s = pause_s
            tube.put(body)
            proxy.pause_s = 0
    assert time.monotonic() - began > patience_s
    with penstock.connect(url(proxy.port)) as queue:
        assert queue.tube(name).stats()["ready"] == 1


async def test_a_shared_connection_without_progress_is_closed() -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"%2\r\n+server\r\n+penstock\r\n+id\r\n:1\r\n")
        writer.write(b"%2\r\n+token\r\n+" + b"0" * 32 + b"\r\n+max-body\r\n:9\r\n+OK\r\n+OK\r\n*0\r\n")
        await reader.readuntil(b"DROP")
        asked.set()
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    queue = penstock.connect_async(url(port), timeout=5)
    dropping = asyncio.ensure_future(queue._call(drop(b"x")))
    await asked.wait()
    let_pass(6)
    with pytest.raises(ConnectionLost):
        await dropping
    assert isinstance(queue._session, AsyncSession)
    listener.close()  # First, because the stalled server would otherwise notice the end and stall again.
    await queue.close()
    await listener.wait_closed()
