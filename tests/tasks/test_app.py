"""Tasks are registered, put as jobs and run by a worker, on a queue in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.tasks.workers.worker import Worker
from tests.tasks.running import run_with_worker


@dataclass
class Address:
    name: str
    since: datetime


def test_a_plain_and_an_async_task_return_their_results() -> None:
    app = penstock.App(":memory:")

    @app.task
    def add(x: int, y: int = 1) -> int:
        return x + y

    @app.task(tube="other")
    async def double(ctx: penstock.Context, x: int) -> tuple[int, int]:
        return 2 * x, ctx.attempt

    async def scenario(_: Worker) -> None:
        assert await (await add.aput(2, y=3)).result() == 5
        assert await (await double.aput(4)).result() == (8, 1)

    run_with_worker(app, scenario)


def test_arguments_and_results_keep_their_types() -> None:
    app = penstock.App(":memory:")

    @app.task
    def older(address: Address, by: timedelta) -> Address:
        return Address(address.name, address.since - by)

    async def scenario(_: Worker) -> None:
        put = await older.aput(Address("ann", datetime(2026, 1, 2, tzinfo=UTC)), by=timedelta(days=1))
        assert await put.result() == Address("ann", datetime(2026, 1, 1, tzinfo=UTC))

    run_with_worker(app, scenario)


def test_a_failure_becomes_the_reason_of_the_job() -> None:
    app = penstock.App(":memory:")

    @app.task(retry="1x then bury")
    def fail() -> None:
        raise ValueError("no route")

    async def scenario(_: Worker) -> None:
        outcome = await (await fail.aput()).wait()
        assert outcome.outcome == "buried"
        assert outcome.reason.startswith("ValueError: no route\n") and "in fail" in outcome.reason

    run_with_worker(app, scenario)


def test_the_task_and_its_producer_are_in_the_headers_and_not_in_the_body() -> None:
    app = penstock.App(":memory:")

    @app.task(tags=["mail", "daily"])
    def send(to: str) -> None: ...

    job = send.put(to="ann").job
    assert job.body == {"to": "ann"}
    assert job.headers["task"] == "send" and job.headers["tags"] == "mail,daily" and "/" in job.headers["producer"]
    app.close()


@pytest.mark.parametrize(("args", "given"), [((), {}), (("a", "b"), {}), (("a",), {"to": "b"}), ((), {"too": "b"})])
def test_wrong_arguments_are_refused_by_put(args: tuple[Any, ...], given: dict[str, Any]) -> None:
    app = penstock.App(":memory:")

    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(penstock.BadArguments, match="send"):
        send.put(*args, **given)
    app.close()


def test_a_task_is_called_directly_without_a_job() -> None:
    app = penstock.App(":memory:")

    @app.task
    def add(ctx: penstock.Context, x: int) -> int:
        return x + ctx.attempt

    assert add(1) == 2
    assert app.queue.stats() == {}
    app.close()


def test_many_calls_are_put_and_run() -> None:
    app = penstock.App(":memory:")
    seen: list[int] = []

    @app.task
    def note(number: int) -> None:
        seen.append(number)

    async def scenario(_: Worker) -> None:
        handles = await note.aput_many(note.call(number) for number in range(1_000))
        assert all([await handle.wait() for handle in handles])

    run_with_worker(app, scenario)
    assert sorted(seen) == list(range(1_000))
