"""`penstock worker` with a real server: it starts, stops, survives dead processes and restarts, and reports its health.

One server and, where possible, one worker serve all tests, because processes are expensive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.tasks.workers import worker_process
from tests.server.serving import Server, wait_for

from .worker_program import WORKBENCH, WorkerProgram

ANSWER_S = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with Server(home, "--dir", "data") as server:
        yield server


@pytest.fixture(scope="module")
def app(server: Server) -> Iterator[penstock.App]:
    """The app of the worker, as a producer sees it."""
    app = penstock.App(f"penstock://127.0.0.1:{server.port}")
    namespace: dict[str, object] = {}
    code = (WORKBENCH / "workbench.py").read_text().replace('penstock.App(os.environ.get("TASKS_URL"))', "APP")
    namespace["APP"] = app
    exec(compile(code, "workbench.py", "exec"), namespace)
    yield app
    app.close()


@pytest.fixture(scope="module")
def worker(server: Server, home: Path) -> Iterator[WorkerProgram]:
    with WorkerProgram(f"penstock://127.0.0.1:{server.port}", home, "--drain", "10") as worker:
        yield worker.wait_until_ready()


def begun(home: Path) -> int:
    """Return how many tasks of the tube `slow` have begun."""
    marks = home / "slow"
    return marks.read_text().count("begin") if marks.exists() else 0


def test_tasks_run_in_another_process(app: penstock.App, worker: WorkerProgram) -> None:
    assert app.tasks["add"].put(2, 3).result(ANSWER_S) == 5
    assert worker.health("livez") == 200 and worker.health("nothing") == 404


def test_a_forked_process_puts_with_a_connection_of_its_own(app: penstock.App, worker: WorkerProgram) -> None:
    assert app.tasks["add"].put(1, 2).result(ANSWER_S) == 3
    child = os.fork()
    if child == 0:
        os._exit(0 if app.tasks["add"].put(2, 2).result(ANSWER_S) == 4 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert app.tasks["add"].put(3, 3).result(ANSWER_S) == 6


def test_a_task_that_kills_its_process_is_buried_and_the_other_jobs_go_on(
    app: penstock.App, worker: WorkerProgram, home: Path
) -> None:
    slow = app.tasks["slow"].put(0.1)
    outcome = app.tasks["kill_worker"].put().wait(ANSWER_S)
    assert (outcome.outcome, outcome.reason) == ("buried", "worker died: SIGKILL")
    assert len((home / "deadly").read_text().split()) == 2, "it had two attempts"
    assert slow.result(ANSWER_S) == "slept"
    assert "session resumed" in worker.log()
    assert app.tasks["add"].put(1, 1).result(ANSWER_S) == 2


def test_a_worker_continues_when_the_server_was_killed(
    app: penstock.App, worker: WorkerProgram, server: Server, home: Path
) -> None:
    before = begun(home)
    running = app.tasks["slow"].put(1.0)
    wait_for(lambda: begun(home) > before)
    server.kill()
    server.start_again()
    assert running.result(ANSWER_S) == "slept"
    assert app.tasks["add"].put(4, 4).result(ANSWER_S) == 8


def test_reports_stay_in_order_when_the_server_restarts(
    app: penstock.App, worker: WorkerProgram, server: Server
) -> None:
    handle = app.tasks["count"].put(40, 0.05)
    seen: list[float | None] = []
    for report in handle.stream(ANSWER_S):
        seen.append(report.done)
        if len(seen) == 5:
            server.kill()
            server.start_again()
    # Reports that nobody had read before the restart are lost.
    assert seen == sorted(set(seen), key=lambda done: done or 0) and seen[-1] == 40
    assert handle.result(ANSWER_S) == 40


def test_a_loop_that_hangs_is_not_live(app: penstock.App, worker: WorkerProgram) -> None:
    hanging = app.tasks["hang_loop"].put(6.0)
    wait_for(lambda: worker.health("livez") == 503)
    assert hanging.wait(ANSWER_S)
    wait_for(lambda: worker.health("livez") == 200)


def test_ctrl_c_in_a_terminal_stops_a_worker_once(app: penstock.App, server: Server, home: Path) -> None:
    with WorkerProgram(f"penstock://127.0.0.1:{server.port}", home, "--tubes", "keyed") as worker:
        worker.wait_until_ready()
        children = worker.children()
        os.killpg(os.getpgid(worker.process.pid), signal.SIGINT)
        assert worker.process.wait(ANSWER_S) == 0 and len(children) == 1
        assert "worker stopped" in worker.log() and "worker died" not in worker.log()


def test_a_worker_whose_supervisor_was_killed_stops(server: Server, home: Path) -> None:
    with WorkerProgram(f"penstock://127.0.0.1:{server.port}", home, "--tubes", "keyed") as worker:
        (child,) = worker.wait_until_ready().children()
        worker.process.kill()
        wait_for(lambda: not Path(f"/proc/{child}").exists() and "worker stopped" in worker.log())


def test_a_worker_that_is_stopped_lets_its_tasks_end(app: penstock.App, worker: WorkerProgram, home: Path) -> None:
    before = begun(home)
    running = app.tasks["slow"].put(0.5)
    wait_for(lambda: begun(home) > before)
    assert worker.stop() == 0
    assert running.wait(0) and "worker stopped" in worker.log()
    assert subprocess.run(["pgrep", "-P", str(worker.process.pid)], check=False, capture_output=True).stdout == b""


def test_a_task_that_consumes_memory_is_buried_with_the_reason(app: penstock.App, server: Server, home: Path) -> None:
    url = f"penstock://127.0.0.1:{server.port}"
    with WorkerProgram(url, home, "--max-memory", "150mb", "--drain", "60") as worker:
        worker.wait_until_ready()
        outcome = app.tasks["eat_memory"].put(600).wait(ANSWER_S)
        assert outcome.outcome == "buried" and "--max-memory is 150 MB" in outcome.reason, outcome
        assert app.tasks["add"].put(1, 2).result(ANSWER_S) == 3


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        (":memory:", {}, "a queue in memory belongs to the process that puts its jobs"),
        ("./jobs", {"processes": 2}, "a directory belongs to one process"),
        ("./jobs", {"app": "nothing:app"}, "there is no module 'nothing'"),
        ("./jobs", {"app": "workbench:nothing"}, "module workbench has no 'nothing'"),
        ("./jobs", {"app": "workbench:add"}, "workbench:add is not a penstock.App, but Task"),
        ("./jobs", {"tubes": ["no"]}, "no task uses the tube 'no'"),
    ],
)
def test_a_worker_that_cannot_run_says_why(
    url: str,
    options: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TASKS_URL", url)
    monkeypatch.syspath_prepend(str(WORKBENCH))
    monkeypatch.delitem(sys.modules, "workbench", raising=False)
    assert worker_process.main([worker_process.Settings(**{"app": "workbench:app", **options}).to_json()]) == 2
    assert message in capsys.readouterr().err


def test_a_second_process_in_a_directory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "jobs"), WorkerProgram("./jobs", tmp_path) as worker:
        assert worker.process.wait(ANSWER_S) == 2
        assert "penstock serve --dir ./jobs" in worker.log()
        assert "worker died" not in worker.log(), "it was no accident"
        app = penstock.App(tmp_path / "jobs")
        with pytest.raises(penstock.InUse, match="penstock serve"):
            _ = app.queue
