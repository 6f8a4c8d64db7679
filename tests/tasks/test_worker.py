"""A worker: failures, leases, cancels, limits and jobs of unknown tasks, on a queue in memory."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.tasks.workers import leases
from penstock.tasks.workers.worker import Worker
from penstock.testing.clocked_queue import ClockedQueue
from tests.tasks.running import run_with_worker, until


def memory_app(**options: Any) -> penstock.App:
    return penstock.App(":memory:", **options)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (penstock.Bury("bad address"), "buried", "bad address"),
        (penstock.Discard(), "deleted", ""),
        (penstock.Retry(reason="busy"), "buried", "busy"),
        (penstock.Retry(timedelta(milliseconds=1), "later"), "buried", "later"),
    ],
)
def test_a_task_decides_how_its_job_ends(error: Exception, outcome: str, reason: str) -> None:
    app = memory_app()
    attempts: list[int] = []

    @app.task(retry="2x const(1ms) then bury")
    def task(ctx: penstock.Context) -> None:
        attempts.append(ctx.attempt)
        raise error

    async def scenario(_: Worker) -> None:
        ended = await (await task.aput()).wait()
        assert (ended.outcome, ended.reason) == (outcome, reason)

    run_with_worker(app, scenario)
    assert attempts == ([1, 2] if isinstance(error, penstock.Retry) else [1])


def test_the_log_of_a_worker_says_in_one_line_why_a_task_failed(caplog: pytest.LogCaptureFixture) -> None:
    app = memory_app()

    @app.task(retry="1x then bury")
    def send(to: str) -> None:
        raise ValueError(f"{to!r} is not an address")

    async def scenario(_: Worker) -> None:
        await (await send.aput("ann")).wait()

    run_with_worker(app, scenario)
    failed = [record.getMessage() for record in caplog.records if "task failed" in record.msg]
    assert len(failed) == 1 and "\n" not in failed[0]
    assert failed[0].startswith("task failed: task=send job=D-") and "attempt=1" in failed[0]
    assert "ValueError: 'ann' is not an address" in failed[0] and "test_worker.py" in failed[0]


def test_a_body_of_another_client_runs_the_only_task_of_its_tube_or_is_buried_with_a_reason() -> None:
    app = memory_app()

    @app.task(tube="sums")
    def add(x: int, y: int) -> int:
        return x + y

    async def scenario(_: Worker) -> None:
        tube = await app.async_queue.find_tube("sums")
        good = await tube.put({"x": 1, "y": 2})
        assert (await good.wait()) and (await app.async_queue.job(good.id)).body == 3
        for body, reason in [("hello", "needs a map"), ({"x": 1}, "misses y"), ({"x": 1, "y": "2"}, "y must be int")]:
            ended = await (await tube.put(body)).wait()
            assert (
                ended.outcome == "buried" and ended.reason.startswith("bad arguments: add") and reason in ended.reason
            )

    run_with_worker(app, scenario)


def test_a_result_that_cannot_be_stored_buries_the_job() -> None:
    app = memory_app()

    @app.task
    def make() -> object:
        return threading.Lock()

    async def scenario(_: Worker) -> None:
        ended = await (await make.aput()).wait()
        assert ended.outcome == "buried" and "its result cannot be stored: a value of type" in ended.reason

    run_with_worker(app, scenario)


def test_progress_and_logs_arrive_in_order_before_the_result() -> None:
    app = memory_app()

    @app.task
    def count(ctx: penstock.Context, to: int) -> str:
        for number in range(1, to + 1):
            ctx.progress(number, to)
        ctx.log("almost")
        return "done"

    async def scenario(_: Worker) -> None:
        handle = await count.aput(50)
        reports = [report async for report in handle.stream(timeout=10)]
        assert [report.done for report in reports[:-1]] == list(range(1, 51))
        assert reports[24].fraction == 0.5 and reports[-1].message == "almost"
        assert await handle.result() == "done"

    run_with_worker(app, scenario)


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> ClockedQueue:
    """A queue whose time a test advances. The heartbeats of tasks use its clock, too."""
    queue = ClockedQueue()
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: queue.clock.ms / 1_000))
    return queue


async def turns() -> None:
    """Let the other tasks of the event loop run."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_ten_minute_task_that_sends_heartbeats_is_delivered_once(clocked: ClockedQueue) -> None:
    app = memory_app()
    app._async_queue = clocked.async_queue
    attempts: list[int] = []

    @app.task(ttr=30)
    async def work(ctx: penstock.Context) -> None:
        attempts.append(ctx.attempt)
        for _ in range(60):
            clocked.advance_to(clocked.clock.ms + 10_000)
            ctx.heartbeat()
            await turns()

    async def scenario(_: Worker) -> None:
        assert await (await work.aput()).wait()

    run_with_worker(app, scenario)
    assert attempts == [1]


def test_a_silent_task_is_stopped_and_delivered_again_after_its_ttr(clocked: ClockedQueue) -> None:
    app = memory_app()
    app._async_queue = clocked.async_queue
    begun: list[str] = []
    release = threading.Event()

    @app.task(tube="silent", ttr=30, retry="2x then bury")
    async def silent() -> None:
        begun.append("silent")
        await asyncio.sleep(3_600)

    @app.task(tube="blocked", ttr=30, retry="2x then bury")
    def blocked() -> None:
        begun.append("blocked")
        release.wait(60)

    async def scenario(_: Worker) -> None:
        handles = [await silent.aput(), await blocked.aput()]
        for attempt in (1, 2):
            await until(lambda attempt=attempt: len(begun) == 2 * attempt)
            clocked.advance_to(clocked.clock.ms + 29_000)
            await turns()
            assert [each.job.state for each in handles] == ["taken", "taken"]
            clocked.advance_to(clocked.clock.ms + 2_000)
        assert [(await each.wait()).outcome for each in handles] == ["buried", "buried"]

    try:
        run_with_worker(app, scenario, concurrency=2)
    finally:
        release.set()
    assert sorted(begun) == ["blocked", "blocked", "silent", "silent"]


def test_a_cancel_stops_an_async_task_and_one_that_waits() -> None:
    app = memory_app()
    begun = asyncio.Event()
    ended: list[str] = []

    @app.task
    async def sleep(number: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(f"cancelled {number}")
            raise

    async def scenario(_: Worker) -> None:
        running, waiting = await sleep.aput(1), await sleep.aput(2)
        await begun.wait()
        await waiting.cancel()
        await running.cancel("not needed")
        outcome = await running.wait()
        assert (outcome.outcome, outcome.reason) == ("deleted", "not needed")
        with pytest.raises(penstock.TaskFailed, match="not needed"):
            await running.result()

    run_with_worker(app, scenario, concurrency=1)
    assert ended == ["cancelled 1"]


def test_a_task_that_never_returns_is_ended_and_the_worker_lives() -> None:
    app = memory_app()
    stop = threading.Event()

    @app.task(timeout=0.05, retry="1x then bury")
    def spin() -> None:
        while not stop.is_set():
            pass

    @app.task(timeout=0.05, retry="1x then bury")
    async def sleep() -> None:
        await asyncio.sleep(60)

    @app.task
    def add(x: int) -> int:
        return x + 1

    async def scenario(_: Worker) -> None:
        for task in (spin, sleep):
            outcome = await (await task.aput()).wait()
            assert (outcome.outcome, outcome.reason) == ("buried", "timed out: it ran for 0.05 s")
        assert await (await add.aput(1)).result() == 2

    try:
        run_with_worker(app, scenario, concurrency=1)
    finally:
        stop.set()


def test_no_more_tasks_run_at_a_time_than_allowed() -> None:
    app = memory_app()
    lock = threading.Lock()
    running, most = 0, 0

    def change(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    @app.task
    def plain() -> None:
        change(1)
        time.sleep(0.001)
        change(-1)

    @app.task
    async def coroutine() -> None:
        change(1)
        await asyncio.sleep(0.001)
        change(-1)

    async def scenario(worker: Worker) -> None:
        await app.aput_many([(plain, coroutine)[number % 2].call() for number in range(300)])
        await until(lambda: worker.finished == 300)

    run_with_worker(app, scenario, concurrency=4)
    assert 2 <= most <= 4


def test_jobs_of_one_key_never_overlap() -> None:
    app = memory_app()
    running: set[str] = set()
    overlaps: list[str] = []

    @app.task(tube="mails", key=lambda to, **_: to.split("@")[1], limit_per_key=1)
    async def send(to: str, text: str = "") -> None:
        domain = to.split("@")[1]
        if domain in running:
            overlaps.append(domain)
        running.add(domain)
        await asyncio.sleep(0)
        running.discard(domain)

    async def scenario(worker: Worker) -> None:
        await send.aput_many(send.call(f"{number}@{number % 3}.org") for number in range(60))
        await until(lambda: worker.finished == 60)

    run_with_worker(app, scenario)
    assert overlaps == []


def test_equal_arguments_give_one_job_while_it_is_unfinished() -> None:
    app = memory_app()

    @app.task(unique=True)
    def index(page: str) -> None: ...

    @app.task(unique=lambda page, **_: page)
    def crawl(page: str, depth: int) -> None: ...

    assert index.put("a").id == index.put(page="a").id != index.put("b").id
    assert crawl.put("a", 1).id == crawl.put("a", 2).id
    app.close()


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(caplog: pytest.LogCaptureFixture) -> None:
    old, new = memory_app(), memory_app()

    @old.task(tube="images")
    def resize(name: str) -> None: ...

    @old.task(tube="images")
    def crop(name: str) -> None: ...

    @new.task(tube="images")
    def rotate(name: str) -> str:
        return f"rotated {name}"

    async def main() -> None:
        queue = new._async_queue = old.async_queue
        handle = await rotate.aput("cat")
        first = await old.worker()
        running = asyncio.create_task(first.run())
        while (await queue.stats()).get("images.unknown.rotate", {}).get("ready") != 1:
            await asyncio.sleep(0.002)
        first.stop()
        await running
        second = await new.worker()
        running = asyncio.create_task(second.run())
        assert await handle.result() == "rotated cat"
        assert "images.unknown.rotate" not in await queue.tubes()
        second.stop()
        await running
        await old.aclose()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "unknown task: task=rotate" in caplog.text


def test_a_worker_that_stops_lets_tasks_end_and_releases_the_others() -> None:
    app = memory_app()
    begun: list[int] = []

    @app.task
    async def wait(number: int, seconds: float) -> None:
        begun.append(number)
        await asyncio.sleep(seconds)

    async def main() -> None:
        worker = await app.worker(concurrency=2, drain=0.2)
        running = asyncio.create_task(worker.run())
        short, long, third = [await wait.aput(1, 0.05), await wait.aput(2, 60), await wait.aput(3, 0)]
        await until(lambda: begun == [1, 2])
        worker.stop()
        await running
        assert await short.wait()
        assert [each.job.state for each in (long, third)] == ["ready", "ready"]
        await worker.close()
        await app.aclose()

    asyncio.run(main())
    assert begun == [1, 2]


def test_a_newer_version_alters_its_tubes_and_the_same_version_warns(caplog: pytest.LogCaptureFixture) -> None:
    queue = penstock.open_async(":memory:")
    for version, ttr, warning in [
        ("1", "30s", ""),
        ("1", "60s", "declared=1m actual=30s"),
        ("1.1", "60s", ""),
        ("", "90s", "declared=90s actual=1m"),
        ("1.0.9", "90s", "declared=90s actual=1m"),
    ]:
        app = memory_app(version=version)
        app._async_queue = queue

        @app.task(tube="emails", ttr=float(ttr[:-1]))
        def send() -> None: ...

        caplog.clear()
        asyncio.run(_ensure(app, queue))
        assert warning in caplog.text and (warning or not caplog.text)


async def _ensure(app: penstock.App, queue: penstock.AsyncQueue) -> None:
    await app.ensure_tubes(["emails"], queue)


def test_middleware_runs_around_puts_runs_and_settlements() -> None:
    seen: list[str] = []

    class Recorder(penstock.Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        def before_put(self, call: Any, headers: dict[str, str | bytes]) -> None:
            headers[f"by-{self.name}"] = "yes"
            seen.append(f"before_put {self.name}")

        def after_put(self, call: Any, job_id: str) -> None:
            seen.append(f"after_put {self.name}")

        def before_run(self, context: penstock.Context) -> None:
            assert context.job.headers[f"by-{self.name}"] == "yes"
            seen.append(f"before_run {self.name}")

        def after_run(self, context: penstock.Context, error: BaseException | None) -> None:
            seen.append(f"after_run {self.name} {error}")

        def before_settle(self, attempt: Any) -> None:
            seen.append(f"before_settle {self.name}")

        def after_settle(self, attempt: Any) -> None:
            seen.append(f"after_settle {self.name}")
            raise ValueError("is only logged")

    app = memory_app(middleware=[Recorder("a"), Recorder("b")])

    @app.task(retry="1x then bury")
    async def fail() -> None:
        raise ValueError("no")

    async def scenario(worker: Worker) -> None:
        assert not await (await fail.aput()).wait()

    run_with_worker(app, scenario)
    assert (
        sorted(seen[:4]) == ["after_put a", "after_put b", "before_put a", "before_put b"] and seen[0] == "before_put a"
    )
    assert [each for each in seen if "run" in each] == [
        *("before_run a", "before_run b", "after_run b no", "after_run a no"),
    ]
    assert [each for each in seen if "settle" in each] == [
        *("before_settle a", "before_settle b", "after_settle b", "after_settle a"),
    ]


def test_jobs_that_a_task_puts_appear_with_its_ack_and_only_then() -> None:
    app = memory_app()

    @app.task(tube="parents", retry="2x const(1ms) then bury")
    def parent(ctx: penstock.Context, fails: bool) -> int:
        ctx.put(child.call(ctx.attempt))
        if fails and ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    @app.task(tube="children")
    def child(attempt: int) -> None: ...

    async def main() -> None:
        worker = await app.worker(["parents"])
        running = asyncio.create_task(worker.run())
        handle = await parent.aput(True)
        assert await handle.result() == 2
        (job,) = await (await app.async_queue.find_tube("children")).jobs("ready")
        assert job.body == {"attempt": 2}
        assert (job.headers["parent"], job.headers["attempt"]) == (handle.id, "2")
        worker.stop()
        await running
        await app.aclose()

    asyncio.run(main())


def test_a_result_that_is_too_large_buries_the_job_and_refused_jobs_fail_the_attempt() -> None:
    app = memory_app()
    app._async_queue = penstock.open_async(":memory:", max_body=1_000)

    @app.task
    def make(length: int) -> str:
        return "x" * length

    @app.task(retry="1x then bury")
    def put(ctx: penstock.Context) -> None:
        ctx.put(make.call(1).with_options(name="n" * 70_000))

    async def scenario(_: Worker) -> None:
        assert await (await make.aput(100)).result() == "x" * 100
        large = await (await make.aput(2_000)).wait()
        assert large.outcome == "buried" and large.reason.startswith("its result cannot be stored: ")
        refused = await (await put.aput()).wait()
        assert refused.outcome == "buried" and refused.reason.startswith("the jobs that it puts are refused: ")

    run_with_worker(app, scenario)
