"""Errors reach the driver as one sentence that says what to do."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j import java_gateway
from typer.testing import CliRunner

from penstock.cli.lake_options import translated_errors
from penstock.cli.main import app
from penstock.core.errors import CommandError, DamagedJournal, NotAllowed, OutOfRange
from penstock.lake.errors import PipelineError
from penstock.spark import SourceError, launch, sentence_of
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.ranges import EventsRange, NodeLogs
from penstock.spark.jobs.options import StreamOptions, WriteOptions
from penstock.spark.node import Node, parse_urls
from penstock.spark.versions import VERSION
from tests.client.proxy import Proxy
from tests.ports import free_port
from tests.server.serving import Server, wait_for

from .conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(action: Callable[[], Any]) -> str:
    """Return the sentence of the error that an action raises. It must not contain a traceback."""
    with pytest.raises(Exception) as failed:
        action()
    assert "Traceback" not in str(failed.value), failed.value
    sentence = sentence_of(failed.value)
    assert sentence is not None, failed.value
    return sentence


def test_a_command_does_not_log_what_ctrl_c_breaks_in_the_connection_to_java(caplog: pytest.LogCaptureFixture) -> None:
    # pyspark's handler of SIGINT uses the connection during another call, and py4j logs both errors with tracebacks.
    record = partial(logging.makeLogRecord, {"name": "root", "levelno": logging.ERROR, "msg": "while sending command"})
    with caplog.filtering(launch._is_not_py4j):
        for written_by in (java_gateway.__file__, __file__):
            found = record()
            found.pathname = written_by
            logging.getLogger().handle(found)
    assert [each.pathname for each in caplog.records] == [__file__]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_when_java_has_started_and_a_second_one_at_once(number: signal.Signals) -> None:
    # If Python ends while Java starts, Java prints a stack trace and does not end.
    before = signal.signal(number, signal.default_int_handler)
    try:
        started = False
        with pytest.raises(KeyboardInterrupt), launch.signals_delayed():
            signal.raise_signal(number)
            started = True
        assert started
        with pytest.raises(KeyboardInterrupt), launch.signals_delayed():
            signal.raise_signal(number)
            signal.raise_signal(number)
            pytest.fail("the second signal was ignored")
        with launch.signals_delayed():
            pass
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_a_batch_that_cannot_be_planned_fails_with_one_sentence(
    spark: SparkSession, start: Callable[..., Server], url: str
) -> None:
    locked = start("--requirepass", "secret", "--history-bytes", "0", password="secret")
    wire = locked.connect()
    wire.call("PUT", "t", "body")
    wire.call("BGREWRITEAOF")
    wait_for(lambda: wire.call("JOURNAL", "HEAD")[5] > 1)
    node = wire.call("JOURNAL", "HEAD")[1].decode()

    def events(**options: Any) -> str:
        return told(spark.read.format("penstock_events").options(**{"url": url, **options}).load().count)

    assert events(url=url_of(locked)).startswith("The server requires a password in the URL")
    assert events(url=url_of(locked, "wrong")).startswith("Wrong user or password, or an expired token; check both")
    assert events(url=f"penstock://127.0.0.1:{free_port()}").startswith("no server listens on 127.0.0.1:")
    secret = url_of(locked, "secret")
    assert "is no longer kept; the first that is kept is" in events(url=secret, startingOffsets=f'{{"{node}": 1}}')
    lossy = spark.read.format("penstock_events").options(
        url=secret, startingOffsets=f'{{"{node}": 1}}', failOnDataLoss=False
    )
    assert lossy.load().count() >= 0
    assert events(startingOffsets=f'{{"{node}": 1}}').startswith(f"node {node} is none of 127.0.0.1:")
    assert events(tube="nowhere").startswith(
        "there is no tube 'nowhere'; check its name. To read the history of a dropped"
    )
    assert events(startOffsets="earliest").endswith("has no option 'startoffsets'; did you mean startingOffsets?")


def test_a_write_or_stream_that_cannot_start_fails_with_one_sentence(
    spark: SparkSession, url: str, queue: Any, tube: str, tmp_path: Path
) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) as value")

    def write(rows: Any, **options: Any) -> str:
        return told(rows.write.format("penstock").mode("append").option("url", url).options(**options).save)

    assert write(rows, tube="nowhere").startswith("there is no tube 'nowhere'")
    assert write(rows) == 'no tube is given; use .option("tube", …) or a column tube'
    assert write(rows.withColumnRenamed("value", "boby"), tube=tube).startswith(
        "a job has no column 'boby'; its columns are"
    )
    assert "convert it to text with to_json" in write(spark.sql("select struct(1 as a) as value"), tube=tube)
    unopened = f"penstock://127.0.0.1:{free_port()}"
    assert told(rows.write.format("penstock").mode("append").options(url=unopened, tube=tube).save).startswith(
        "no server listens on 127.0.0.1:"
    )

    queue.tube(tube)
    without_mode = rows.write.format("penstock").options(url=url, tube=tube)
    assert told(without_mode.save) == 'a write adds jobs to a tube; write with .mode("append")'
    assert told(without_mode.mode("overwrite").save) == 'a tube cannot be overwritten; write with .mode("append")'

    def stream(source: str, **options: Any) -> str:
        read = spark.readStream.format(source).option("url", url).options(**options).load()
        write = read.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).format("noop")
        return told(lambda: write.start().awaitTermination(180))

    assert stream("penstock", tube="nowhere").startswith("there is no tube 'nowhere'")
    assert stream("penstock", url=unopened, tube=tube).startswith("no server listens on 127.0.0.1:")
    # Errors in options are found in another call of Spark, which would replace them by an error of its own.
    assert stream("penstock", tube=tube, leese="5m").endswith("has no option 'leese'; did you mean lease?")
    assert stream("penstock_events", endingOffsets="latest").startswith("a stream has no endingOffsets; read a batch")


def test_a_log_of_a_newer_version_is_refused(url: str, queue: Any, tube: str) -> None:
    from penstock.spark.events.columns import frames_of

    queue.tube(tube).put(b"x")
    with Node(url) as node:
        data = bytearray(node.read(1, 1, False).frames)
    assert frames_of(bytes(data), "n")
    data[8] += 1
    with pytest.raises(DamagedJournal, match=r"frame version 3 is not known.*a newer server needs a newer penstock"):
        frames_of(bytes(data), "n")


def test_a_batch_that_ends_after_the_end_of_the_log_is_refused(url: str) -> None:
    """The node was restored after the batch was planned, or after it was written to the checkpoint."""
    from penstock.spark.events.columns import batches
    from penstock.spark.events.stream import EventsStreamReader

    with Node(url) as node:
        head = node.head()
    options = EventsOptions.read({"url": url, "startingOffsets": "earliest"}, streaming=True)
    sentence = rf"the log of node {head.node} ends before position {head.end + 5}: it was restored"
    with pytest.raises(OutOfRange, match=sentence):
        list(batches(EventsRange(url, head.node, head.first, head.end + 5), options))
    strict = EventsStreamReader(options)
    with pytest.raises(SourceError, match=sentence):
        strict.partitions({head.node: head.first}, {head.node: head.end + 5})
    lossy = EventsStreamReader(EventsOptions.read({"url": url, "failOnDataLoss": "false"}, streaming=True))
    assert lossy.partitions({head.node: head.end}, {head.node: head.end + 5}) == []
    for each in (strict, lossy):
        each.stop()


def test_a_reader_reconnects_after_a_lost_connection(node: Server) -> None:
    proxy = Proxy(node.port)
    try:
        with Node(f"penstock://127.0.0.1:{proxy.port}") as there:
            head = there.head()
            proxy.cut_all()
            assert there.head().node == head.node
    finally:
        proxy.close()


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: StreamOptions.read({"tube": "t", "lease": "1ms"}), "lease must be at least 1s and finite"),
        (lambda: WriteOptions.read({"stageExpire": "forever"}), "stageExpire must be at least 1s and finite"),
        (
            lambda: WriteOptions.read({"errors": "ftp://b/refused"}),
            "errors must be a directory or a URI .*, not 'ftp://b/refused'",
        ),
        (lambda: EventsOptions.read({"maxRowsPerTrigger": "7"}, streaming=False), "a batch has no maxRowsPerTrigger"),
        (
            lambda: EventsOptions.read({"startingOffsets": "{}"}, streaming=True),
            "startingOffsets must be earliest, latest",
        ),
    ],
)
def test_invalid_options_are_refused(read: Callable[[], Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        read()


def test_a_list_of_urls_is_split_and_gets_the_user() -> None:
    assert parse_urls("penstock://a:1,b:2, penstock://c", None, None) == ("penstock://a:1,b:2", "penstock://c")
    assert parse_urls("penstock://x@a", "me", "p@ss") == ("penstock://me:p%40ss@a",)
    assert parse_urls("penstock://x:p@s/s@a?tls=1", "me", "it") == ("penstock://me:it@a?tls=1",)


def test_a_local_session_has_the_fastest_collector_unless_the_user_chooses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, fastest = "spark.driver.extraJavaOptions", "-XX:+UseParallelGC"
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert fastest in launch._java("local[2]", {})[driver]
    assert fastest not in launch._java("spark://host:7077", {})[driver]
    assert launch._java("local", {driver: "-XX:+UseZGC"})[driver].endswith("=false -XX:+UseZGC")
    assert launch._java("local", {}, brief=True)[driver].endswith("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseSerialGC")
    assert "GC" not in launch._java("local", {})[driver] + launch._java("local", {}, brief=True)[driver]


def test_errors_that_are_raised_are_not_also_logged_with_a_java_stack_trace(spark: SparkSession) -> None:
    settings = (Path(launch.__file__).parent / "log4j2.properties").read_text()
    silent = re.findall(r"logger\.(\w+)\.level = off", settings)
    other = "stream40" if VERSION > (4, 0) else "stream"  # The name of a class in other versions of Spark.
    java: Any = spark._jvm
    for each in silent:
        [name] = re.findall(rf"logger\.{each}\.name = (.+)", settings)
        if each != other:
            assert java.java.lang.Class.forName(name)  # The class has this name in the installed version.
        assert not java.org.apache.logging.log4j.LogManager.getLogger(name).isErrorEnabled()
    assert java.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.SparkContext").isErrorEnabled()


def test_the_command_line_names_its_own_options_in_errors() -> None:
    from pyspark.errors import PySparkException

    said = "penstock.spark.SourceError: node 1f is none of those; continue without it with failOnDataLoss=false"
    with (
        pytest.raises(PipelineError, match=r"^node 1f is none of those; continue without it with --allow-gaps$"),
        translated_errors(),
    ):
        raise PySparkException(f"[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] {said}\n SQLSTATE: 38000")


def test_an_infinite_interval_between_turns_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["pipeline", "run", "--lake", str(tmp_path), "--every", "forever"])
    assert refused.exit_code == 2 and "the pipeline would run only once; write a duration like 10s" in refused.output


def test_a_user_without_rights_to_all_tubes_gets_an_error_in_the_driver(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "users.toml").write_text('[users.mail]\npassword = "m"\ntubes = ["mail*"]\n')
    server = start(str(tmp_path / "users.toml"), "--requirepass", "secret", password="secret")
    url = f"penstock://mail:m@127.0.0.1:{server.port}"
    with pytest.raises(
        NotAllowed, match=r"contains all tubes, and this user may not use all of them; connect as a user"
    ):
        NodeLogs(EventsOptions.read({"url": url, "tube": "mail"}, streaming=False))
