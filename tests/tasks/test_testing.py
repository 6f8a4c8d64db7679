"""`app.testing()` runs tasks without a server: drained on a clock of its own, or inline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

import penstock
from penstock.tasks.testing import NotDrained, TestQueue

pytest_plugins = ["penstock.tasks.pytest_plugin"]


def test_drain_runs_what_is_due_and_advancing_the_clock_runs_the_rest() -> None:
    app = penstock.App("penstock://127.0.0.1:1")  # There is no server.
    sent: list[str] = []

    @app.task
    def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    with app.testing() as tasks:
        handle = send.put("ann")
        send.after(timedelta(days=2)).put("bob")
        assert tasks.jobs(send) == [{"to": "ann"}, {"to": "bob"}]
        assert tasks.drain() == 1 and sent == ["ann"]
        assert handle.result(0) == "sent to ann"
        begin = tasks.now
        assert tasks.drain(timedelta(days=1)) == 0
        assert tasks.now - begin == timedelta(days=1)
        assert tasks.drain(timedelta(days=1)) == 1 and sent == ["ann", "bob"]


def test_retries_over_three_days_take_less_than_two_seconds() -> None:
    app = penstock.App("penstock://127.0.0.1:1")

    @app.task(retry="10x exp(1h..12h) jitter then bury", result_ttl=None)
    async def flaky(ctx: penstock.Context, number: int) -> int:
        if ctx.attempt < 5:
            raise ValueError("not yet")
        return number

    with app.testing() as tasks:
        handles = flaky.put_many(flaky.call(number) for number in range(1_000))
        begin = time.process_time()
        assert tasks.drain(timedelta(days=3)) == 5_000
        assert time.process_time() - begin < 20  # Less than 2 s on a machine that does nothing else.
        assert handles[999].result(0) == 999


def test_inline_tasks_run_at_once_also_those_that_they_put() -> None:
    app = penstock.App("penstock://127.0.0.1:1")
    seen: list[str] = []

    @app.task
    def first(ctx: penstock.Context) -> None:
        seen.append("first")
        second.put()
        ctx.put(third.call())

    @app.task(tube="others")
    async def second() -> None:
        seen.append("second")

    @app.task(tube="others")
    def third() -> None:
        seen.append("third")

    with app.testing(inline=True):
        assert first.put().wait(0)
    assert sorted(seen) == ["first", "second", "third"]

    async def scenario() -> None:
        with app.testing(inline=True):
            assert await (await second.aput()).wait(0)

    asyncio.run(scenario())


def test_reports_and_failures_are_as_in_a_worker(penstock_tasks: Callable[..., TestQueue]) -> None:
    app = penstock.App("penstock://127.0.0.1:1")
    tasks = penstock_tasks(app)

    @app.task(retry="1x then bury")
    def work(ctx: penstock.Context) -> None:
        ctx.progress(1, 2)
        ctx.progress(2, 2)
        raise ValueError("in the end")

    handle = work.put()
    tasks.drain()
    assert [report.done for report in handle.stream(0)] == [1, 2]
    with pytest.raises(penstock.TaskFailed, match="in the end"):
        handle.result(0)


def test_a_task_that_puts_itself_does_not_drain_for_ever() -> None:
    app = penstock.App("penstock://127.0.0.1:1")

    @app.task
    def again() -> None:
        again.put()

    with app.testing() as tasks:
        again.put()
        with pytest.raises(NotDrained, match="more than 50 attempts"):
            tasks.drain(limit=50)


def test_after_a_test_the_app_has_its_own_queue_again() -> None:
    app = penstock.App(":memory:")

    @app.task
    def work() -> None: ...

    before = app.queue
    with app.testing() as tasks:
        work.put()
        assert app.queue is tasks.queue is not before
    assert app.queue is before and before.stats() == {}
    app.close()
