"""If a process is killed during its work, its successor loses and repeats nothing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.spark.events.source import EventsReader, EventsSource
from penstock.spark.jobs.options import StreamOptions
from penstock.spark.jobs.source import JobsSource
from penstock.spark.jobs.stream import JobsStreamReader
from penstock.spark.versions import adapt_stream_reader
from tests.server.serving import Server, wait_for
from tests.short_spark import SHORT_LIVED, until_done

from .conftest import url_of
from .killed_driver import JOBS as NUMBER
from .killed_driver import STREAMS, judged, processed, put
from .test_jobs_stream import there
from .withheld_replies import Mute

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader

ROOT = Path(__file__).parent.parent.parent
JAVA = re.compile(r"^java is (\d+)\n", re.MULTILINE)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a program with its output in a file. It and its descendants end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(Path(penstock.__file__).parent.parent), str(ROOT)])
        env = os.environ | {"PYTHONPATH": paths, "JDK_JAVA_OPTIONS": SHORT_LIVED}
        with (tmp_path / "said").open("w") as said:
            made = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
        started.append(made)
        return made

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait(30)


def patiently(condition: Callable[[], Any], program: subprocess.Popen[bytes], directory: Path) -> None:
    """Wait for a condition that a program fulfils, longer than Java may take to start on a busy machine."""
    for _ in range(30):
        with contextlib.suppress(AssertionError):
            if wait_for(lambda: condition() or program.poll() is not None) and condition():
                return
            break
    raise AssertionError((directory / "said").read_text()[:4_000])


def test_a_driver_that_is_killed_at_any_point_continues_from_its_checkpoint(
    spark: SparkSession,
    start: Callable[..., Server],
    program: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    server = start()
    with penstock.connect(url_of(server)) as queue, contextlib.ExitStack() as stack:
        mutes = {}
        for name, (work, words, times) in STREAMS.items():
            tube = queue.tube(name)
            if work is put:
                rows = spark.range(0, NUMBER, 1, 2).selectExpr("cast(id as string) as value")
                rows.write.parquet(str(tmp_path / name / "rows"))
            else:
                tube.put_many([b"%d" % number for number in range(NUMBER)])
            mutes[name] = Mute(server.port, *words, times=times)
            stack.callback(mutes[name].close)
        urls = [f"{name}={mute.url}" for name, mute in mutes.items()]
        driver = program(sys.executable, "-m", "tests.spark.killed_driver", str(tmp_path), *urls)
        patiently(lambda: all(mute.silent.is_set() for mute in mutes.values()), driver, tmp_path)
        # The last reply may be withheld before the driver has printed the process id of its Java.
        patiently(lambda: JAVA.search((tmp_path / "said").read_text()), driver, tmp_path)
        [java] = JAVA.findall((tmp_path / "said").read_text())
        for pid in (driver.pid, int(java)):
            os.kill(pid, signal.SIGKILL)
        driver.wait(30)
        # Its Python processes still run. They may repeat their last command before they end.
        for mute in mutes.values():
            mute.hang_up()

        for name, (work, _, _) in STREAMS.items():
            until_done(partial(work, spark, url_of(server), name, tmp_path / name, availableNow=True))
            stats = queue.tube(name).stats()
            if work is processed:
                assert there(stats) == {}, name
                assert queue.tube(name).events()["acked"] == NUMBER
                done = [int(row.body) for row in spark.read.parquet(str(tmp_path / name / "done")).collect()]
                assert sorted(done) == list(range(NUMBER)), name
            elif work is judged:
                tenth = NUMBER // 10
                assert there(stats) == {"buried": tenth, "delayed": tenth}, name
                happened = queue.tube(name).events()
                counted = [happened[event] for event in ("acked", "buried", "nacked")]
                assert counted == [8 * tenth, tenth, tenth], "each verdict takes effect once"
            elif work is put:
                assert stats["ready"] == NUMBER, name
                assert {int(job.body) for job in queue.tube(name).jobs("ready", NUMBER)} == set(range(NUMBER))
            else:
                seen = spark.read.parquet(str(tmp_path / name / "done")).select("position").collect()
                assert len(seen) == len(set(seen)) == NUMBER


def test_a_python_process_that_is_killed_during_a_read_is_replaced_and_reads_the_same_rows(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    """Both for events and for the jobs of a stream."""

    class Dying:
        """A reader whose first task dies after some rows and leaves a marker file."""

        def read(self, partition: Any) -> Iterator[RecordBatch]:
            died = tmp_path / type(self).__name__
            for batch in super().read(partition):
                yield batch.slice(0, 10)
                if not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch.slice(10)

    class DyingEventsReader(Dying, EventsReader):
        pass

    class DyingJobsReader(Dying, JobsStreamReader):
        pass

    class DyingEvents(EventsSource):
        @classmethod
        def name(cls) -> str:
            return "dying_events"

        def reader(self, schema: Any) -> EventsReader:
            return DyingEventsReader(super().reader(schema)._options)

    class DyingJobs(JobsSource):
        @classmethod
        def name(cls) -> str:
            return "dying_jobs"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return adapt_stream_reader(DyingJobsReader(StreamOptions.read(self.options)))

    mine = queue.tube(tube)
    mine.put_many([b"%d" % number for number in range(NUMBER)])
    for source in (DyingEvents, DyingJobs):
        spark.dataSource.register(source)
    read = spark.readStream.format("dying_jobs").options(url=url, tube=tube, rowsPerPartition=50).load()
    write = read.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    until_done(lambda: write.format("parquet").start(str(tmp_path / "jobs")))
    assert sorted(int(row.body) for row in spark.read.parquet(str(tmp_path / "jobs")).collect()) == [*range(NUMBER)]
    assert there(mine.stats()) == {}

    spark.read.format("dying_events").options(url=url, tube=tube).load().write.parquet(str(tmp_path / "events"))
    events = spark.read.parquet(str(tmp_path / "events")).select("position").collect()
    assert len(events) == len(set(events)) == 3 * NUMBER
    assert (tmp_path / "DyingJobsReader").exists() and (tmp_path / "DyingEventsReader").exists()
