"""Chains of task calls: each step is put with the ack of the step before it, and handles follow them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.tasks.failures import BadArguments, BadTask, TaskFailed
from penstock.tasks.workers.worker import Worker
from tests.server.serving import Server, wait_for
from tests.tasks.running import run_with_worker, until
from tests.tasks.worker_program import WORKBENCH, WorkerProgram

CHAINS = 60
STEPS = 4
KILLS = 2


class Shop:
    """An app whose tasks record their calls."""

    def __init__(self, codec: Any = "msgpack") -> None:
        self.app = app = penstock.App(":memory:", codec=codec)
        self.calls: list[Any] = []

        @app.task(tube="images")
        def resize(path: str) -> int:
            self.calls.append(("resize", path))
            return len(path)

        @app.task(tube="uploads", key=lambda size, bucket: f"{bucket} {size + 1}", retry="1x then bury")
        async def upload(size: int, bucket: str) -> list[int]:
            self.calls.append(("upload", size, bucket))
            if bucket == "closed":
                raise penstock.Bury("no such bucket")
            return [size]

        @app.task
        def notify(to: str) -> None:
            self.calls.append(("notify", to))

        self.resize, self.upload, self.notify = resize, upload, notify


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_the_steps_of_a_chain_run_in_order_and_pass_on_results(codec: str) -> None:
    shop = Shop(codec)
    with shop.app.testing() as tasks:
        chain = shop.resize.call("a.png").pipe(shop.upload, bucket="x").then(shop.notify.call(to="ann"))
        handle = shop.app.put(chain)
        assert tasks.jobs() == [{"path": "a.png"}]
        assert handle.wait(0).outcome == "timeout"
        tasks.drain()
        assert shop.calls == [("resize", "a.png"), ("upload", 5, "x"), ("notify", "ann")]
        assert handle.wait(0).outcome == "acked"
        assert handle.result(0) is None


def test_the_result_of_a_chain_is_that_of_its_last_step() -> None:
    shop = Shop()
    with shop.app.testing() as tasks:
        handle = shop.app.put(shop.resize.call("a.png").pipe(shop.upload, "x"))
        tasks.drain()
        assert handle.result(0) == [5]
        assert shop.app.handle(handle.id).result(0) == [5], "another process finds it by the id of the first job"


def test_the_key_of_a_later_step_is_made_of_its_arguments() -> None:
    shop = Shop()
    with shop.app.testing() as tasks:
        handle = shop.app.put(shop.resize.call("a.png").pipe(shop.upload.with_options(delay=60), "x"))
        tasks.drain()
        [job] = shop.app.queue.find_tube("uploads").jobs("delayed")
        assert job.meta()["key"] == "x 6"
        assert job.headers["step"] == "2/2" and job.headers["chain"] == job.headers["parent"] == handle.id
        assert tasks.jobs(shop.upload) == [{"size": 5, "bucket": "x"}]
        tasks.drain(60)
        assert handle.wait(0)


def test_a_buried_step_ends_the_chain_and_the_handle_says_which() -> None:
    shop = Shop()
    with shop.app.testing() as tasks:
        chain = shop.resize.call("a.png").pipe(shop.upload, bucket="closed").then(shop.notify.call("ann"))
        handle = shop.app.put(chain)
        tasks.drain()
        outcome = handle.wait(0)
        assert (outcome.outcome, outcome.reason) == ("buried", "step 2 of 3 (upload): no such bucket")
        with pytest.raises(TaskFailed, match=r"step 2 of 3 \(upload\): no such bucket"):
            handle.result(0)
        assert not [call for call in shop.calls if call[0] == "notify"]
        assert shop.app.handle(handle.id).wait(0).reason == outcome.reason

        shop.app.queue.find_tube("uploads").kick(1)
        tasks.drain()
        assert handle.wait(0).reason == outcome.reason, "a step that was kicked is followed again"


def test_a_chain_in_asyncio_runs_in_a_worker() -> None:
    shop = Shop()

    async def scenario(_: Worker) -> None:
        handle = await shop.app.aput(shop.resize.call("a.png").pipe(shop.upload, bucket="x"))
        assert await handle.result(20) == [5]
        failed = await shop.app.aput(
            shop.notify.call("bob").then(shop.resize.call("b")).pipe(shop.upload, bucket="closed")
        )
        assert (await failed.wait(20)).reason == "step 3 of 3 (upload): no such bucket"

    run_with_worker(shop.app, scenario)


def test_chains_are_members_and_callbacks_of_a_batch() -> None:
    shop = Shop()

    @shop.app.task
    def report(name: str) -> str:
        shop.calls.append(("report", name))
        return name

    async def scenario(_: Worker) -> None:
        joined = report.call("all").pipe(shop.notify)
        async with shop.app.batch("all", then=[joined]) as batch:
            await batch.aput_many(
                shop.resize.call("p" * number).pipe(shop.upload, bucket="closed" if number == 3 else "x")
                for number in range(10)
            )
        await until(lambda: ("notify", "all") in shop.calls)
        assert await batch.ainfo() == ("ended", 20, 0, 1, 1), "each step is a member"

    run_with_worker(shop.app, scenario)
    kinds = Counter(call[0] for call in shop.calls)
    assert kinds == {"resize": 10, "upload": 10, "report": 1, "notify": 1}
    assert [call[0] for call in shop.calls[-2:]] == ["report", "notify"], "the callback follows the last steps"


def test_a_task_can_put_a_chain_with_its_ack() -> None:
    shop = Shop()

    @shop.app.task
    def begin(ctx: penstock.Context) -> None:
        ctx.put(shop.resize.call("a").pipe(shop.upload, "x"))

    with shop.app.testing() as tasks:
        begin.put()
        tasks.drain()
    assert shop.calls == [("resize", "a"), ("upload", 1, "x")]


def test_a_cancel_ends_the_step_that_the_chain_has_reached() -> None:
    shop = Shop()
    with shop.app.testing() as tasks:
        later = shop.upload.with_options(at=datetime.now() + timedelta(days=400), headers={"who": "ann"})
        handle = shop.app.put(shop.resize.call("a").pipe(later, "x"))
        tasks.drain()
        [job] = shop.app.queue.find_tube("uploads").jobs("delayed")
        assert job.headers["who"] == "ann"
        handle.cancel()
        assert not tasks.jobs()
        assert handle.wait(0).outcome in ("deleted", "gone")


def test_the_reports_of_all_steps_are_streamed() -> None:
    app = penstock.App(":memory:")

    @app.task
    def count(ctx: penstock.Context, name: str) -> None:
        ctx.progress(1, 1, name)

    with app.testing() as tasks:
        handle = app.put(count.call("first").then(count.call("second")))
        tasks.drain()
        assert [report.message for report in handle.stream(0)] == ["first", "second"]


def test_a_result_that_does_not_fit_the_next_step_buries_the_job() -> None:
    shop = Shop()
    with shop.app.testing() as tasks:
        handle = shop.app.put(shop.resize.call("a").pipe(shop.notify))  # type: ignore[arg-type]
        tasks.drain()
        outcome = handle.wait(0)
    assert outcome.outcome == "buried"
    assert outcome.reason.startswith("step 1 of 2 (resize): the next step of its chain cannot be put: notify: to ")


def test_wrong_chains_are_refused_where_they_are_made() -> None:
    shop = Shop()

    @shop.app.task(unique=True)
    def single(x: int) -> None: ...

    @shop.app.task
    def named(*, x: int) -> None: ...

    first = shop.resize.call("a")
    with pytest.raises(BadTask, match="then takes a call"):
        first.then(shop.upload)  # type: ignore[arg-type]
    with pytest.raises(BadTask, match="pipe takes a task"):
        first.pipe(shop.upload.call(1, "x"))  # type: ignore[arg-type]
    with pytest.raises(BadTask, match="cannot have the option unique"):
        first.then(single.call(1))
    with pytest.raises(BadTask, match="cannot have the option dedup"):
        first.then(shop.notify.with_options(dedup="d").call("ann"))
    with pytest.raises(BadArguments, match="misses bucket"):
        first.pipe(shop.upload)  # type: ignore[call-arg]
    with pytest.raises(BadArguments, match="0 positional"):
        first.pipe(named)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="cannot be stored"):
        first.then(shop.notify.call(object()))  # type: ignore[arg-type]
    chain: Any = first
    for _ in range(99):
        chain = chain.then(shop.notify.call("ann"))
    with pytest.raises(penstock.OutOfRange, match="100 steps") as error:
        chain.then(shop.notify.call("ann"))
    assert error.value.code == "RANGE"


def test_a_chain_whose_next_task_is_unknown_waits_for_a_worker_that_knows_it() -> None:
    shop = Shop()

    async def scenario(worker: Worker) -> None:
        known = dict(shop.app.tasks)
        del shop.app.tasks["upload"]
        handle = await shop.app.aput(shop.resize.call("a").pipe(shop.upload, "x"))
        while "images.unknown.upload" not in await shop.app.async_queue.tubes():
            await asyncio.sleep(0.002)
        assert not shop.calls, "the step did not run"
        shop.app.tasks.update(known)
        assert worker.running == 0 and (await handle.wait(0)).outcome == "timeout"

    run_with_worker(shop.app, scenario)


def test_each_step_is_put_exactly_once_when_workers_and_the_server_are_killed(tmp_path: Path) -> None:
    """Each step appends a line with the id of its job. A step may run again, but as the same job, and in order."""
    chance = random.Random(7)
    with Server(tmp_path, "--dir", "data") as server:
        url = f"penstock://127.0.0.1:{server.port}?retry_for=60"
        app = penstock.App(url)
        namespace: dict[str, Any] = {"APP": app, "__name__": "workbench"}
        code = (WORKBENCH / "workbench.py").read_text().replace('penstock.App(os.environ.get("TASKS_URL"))', "APP")
        exec(compile(code, "workbench.py", "exec"), namespace)
        step = app.tasks["step"]
        with WorkerProgram(url, tmp_path, "--tubes", "steps") as worker:
            worker.wait_until_ready()
            chains = []
            for number in range(CHAINS):
                chain = step.call(0, number)
                for _ in range(STEPS - 1):
                    chain = chain.pipe(step, number)
                chains.append(chain)
            marks = tmp_path / "steps"
            handles = app.put_many(chains)
            at = sorted(chance.randrange(1, CHAINS * STEPS // 2) for _ in range(KILLS))
            for killed, lines in enumerate(at):
                wait_for(lambda least=lines: marks.exists() and len(marks.read_text().splitlines()) >= least)
                wait_for(lambda processes=killed + 1: worker.log().count("worker started") == processes)
                [child] = worker.children()
                os.kill(child, signal.SIGKILL)
            server.kill()
            server.start_again()
            results = [handle.result(60) for handle in handles]
            assert worker.log().count("worker died: process=") == KILLS
        app.close()
    assert results == [STEPS] * CHAINS
    jobs: dict[tuple[str, str], set[str]] = {}
    reached: dict[str, int] = {}
    for line in marks.read_text().splitlines():
        number, level, job = line.split()
        jobs.setdefault((number, level), set()).add(job)
        assert reached.get(number, -1) in (int(level), int(level) - 1), "a step never begins before the previous one"
        reached[number] = int(level)
    assert len(jobs) == CHAINS * STEPS, "no step is lost"
    assert all(len(ids) == 1 for ids in jobs.values()), "the job of each step was put once"
