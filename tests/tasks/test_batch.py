"""Batches of task calls, cron schedules of an app, and what follows when they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock.tasks.failures import BadTask
from penstock.tasks.workers.worker import Worker
from tests.tasks.running import run_with_worker, until


def test_the_callback_runs_once_when_all_calls_of_a_batch_have_ended() -> None:
    app = penstock.App(":memory:")
    fetched: list[int] = []
    reports: list[str] = []

    @app.task(tube="fetch", retry="1x then bury")
    async def fetch(page: int) -> None:
        if page == 3:
            raise penstock.Bury("broken")
        fetched.append(page)

    @app.task(tube="reports")
    def report(name: str) -> None:
        reports.append(name)

    async def scenario(_: Worker) -> None:
        async with app.batch("crawl", then=[report.call("crawl")]) as batch:
            await batch.aput_many(fetch.call(page) for page in range(50))
            await batch.aput(fetch.call(page=50))
            assert not reports
        await until(lambda: bool(reports))
        assert sorted(fetched) == [page for page in range(51) if page != 3]
        assert await batch.ainfo() == ("ended", 51, 0, 1, 1)

    run_with_worker(app, scenario)
    assert reports == ["crawl"]


def test_a_task_fans_out_into_its_own_batch_and_the_results_are_joined() -> None:
    """Fan-out: a member puts further members with its ack. Fan-in: the callback."""
    app = penstock.App(":memory:")
    sums: list[int] = []
    parts: list[int] = []

    @app.task
    def split(ctx: penstock.Context, count: int) -> None:
        for number in range(count):
            ctx.put(square.call(number).with_options(batch="squares"))

    @app.task
    def square(number: int) -> None:
        parts.append(number * number)

    @app.task
    def join() -> None:
        sums.append(sum(parts))

    async def scenario(_: Worker) -> None:
        async with app.batch("squares", then=[join.call()]) as batch:
            await batch.aput(split.call(10))
        await until(lambda: bool(sums))

    run_with_worker(app, scenario)
    assert sums == [sum(number * number for number in range(10))]


def test_a_batch_whose_block_fails_stays_open() -> None:
    app = penstock.App(":memory:")

    @app.task
    def task() -> None: ...

    with pytest.raises(ZeroDivisionError), app.batch("broken", then=[task.call()]) as batch:
        batch.put(task.call())
        raise ZeroDivisionError
    assert batch.info().state == "open"
    app.close()


def test_a_worker_stores_the_schedules_of_its_app_and_puts_their_ticks() -> None:
    app = penstock.App(":memory:")
    ran: list[Any] = []

    @app.cron("* * * * *", arguments={"kind": "daily"})
    @app.task
    async def clean(ctx: penstock.Context, kind: str) -> None:
        ran.append((kind, ctx.job.headers["cron"]))

    async def scenario(_: Worker) -> None:
        # The queue's clock is set forward, so that the next tick is due.
        host: Any = app.async_queue.sync._host  # type: ignore[attr-defined]
        while "penstock.cron" not in await app.async_queue.tubes():
            await asyncio.sleep(0.002)
        now = host.now
        host.now = lambda: now() + 60_000
        tube = await app.async_queue.find_tube("penstock.cron")
        while not await tube.jobs("delayed"):
            await asyncio.sleep(0.002)
        await until(lambda: bool(ran))

    run_with_worker(app, scenario)
    assert ran == [("daily", "clean")]


def test_a_wrong_schedule_is_refused_where_it_is_declared() -> None:
    app = penstock.App(":memory:")
    with pytest.raises(penstock.OutOfRange, match="not a cron expression"):

        @app.cron("every monday")
        @app.task
        def task() -> None: ...

    with pytest.raises(BadTask, match=r"above @app\.task"):

        @app.cron("* * * * *")
        def plain() -> None: ...
