"""Starts Spark sessions: finds Java and Python, binds local sessions to the loopback address, and limits logging."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock._extras import not_installed
from penstock.spark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings of every session, unless the caller sets others.
_DEFAULTS: Final = {
    # Off by default in Spark. With it, the server applies filters on the tube and the state.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Options of every Java process of a session. They switch off Arrow's null and bounds checks, which repeat checks of
# Spark and take a seventh of the time that Java spends on a row of events.
_JAVA: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# The collector with the highest throughput. With the default, a turn of the pipeline uses a quarter more CPU time.
# Java refuses to start with two collectors.
_COLLECTOR: Final = "-XX:+UseParallelGC"
# For sessions of about a minute. The optimizing compiler of Java, and threads for collection, would cost more than they
# save.
_BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ANY_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")

_LOOPBACK: Final = "127.0.0.1"

# Masters whose processes all run on this machine.
_LOCAL_MASTERS: Final = re.compile(r"local(\[.*\]|-cluster\[.*\])?|spark://(127\.0\.0\.1|localhost)(:\d+)?")

_LOGGING: Final = Path(__file__).parent / "log4j2.properties"


def session(
    master: str | None = None,
    *,
    app: str = "penstock",
    quiet: bool = False,
    brief: bool = False,
    **config: str | int | bool,
) -> SparkSession:
    """Return a Spark session. If one exists, change the settings that can still be changed, and return it.

    `master`: `local[*]` by default, `spark://host:7077`, `sc://host:15002` for Spark Connect, or another master.
    `quiet`: for commands. Start Java without its module for linear algebra, so that Java prints no warning about it. Do
    not log the errors that Ctrl-C causes in the connection to Java. Let Ctrl-C and SIGTERM wait until Java has started.
    `brief`: use less CPU time in a session that does little work. A local session starts faster, and long queries take
    about twice as long.
    `config`: settings of Spark, as in `session(**{"spark.executor.memory": "2g"})`.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SourceError(not_installed("Spark", "spark")) from None
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
    if master is not None and master.startswith("sc://"):
        return _connect_session(master, texts)
    master = master or "local[*]"
    prepare(master, quiet)
    _silence_query_loggers()
    if quiet:
        logging.getLogger().addFilter(_is_not_py4j)
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**_DEFAULTS, **_java(master, texts, brief), **texts}.items():
        builder = builder.config(name, value)
    with signals_delayed() if quiet else nullcontext():
        return builder.getOrCreate()


@contextmanager
def signals_delayed() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect at the end of the block. A second one takes effect at once.

    If Python ends while Java starts, Java prints a stack trace and does not end. Spark replaces the handler of Ctrl-C
    when Java has started.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if number in received:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        received.append(number)

    before = {int(number): signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)
    for each in received:
        signal.raise_signal(each)


def _connect_session(master: str, settings: dict[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server. Our defaults only matter when Spark starts, so they are not sent."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as missing:
        raise SourceError(f"{not_installed('a package of Spark Connect', 'spark')} ({missing})") from None


def prepare(master: str, quiet: bool = False) -> None:
    """Set the environment variables that Spark needs for Java, Python and its local address, if they are not set."""
    # Not at the top: it needs Spark, and without Spark `session` reports that it is missing.
    from penstock.spark.java import java_home

    home = java_home(quiet)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # By default, workers use the first python3 of the PATH, which may not have Penstock installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _LOCAL_MASTERS.fullmatch(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def _silence_query_loggers() -> None:
    """Stop PySpark from logging errors that it also raises. The log lines would include a Java stack trace."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger was not written by py4j, which also raises the errors that it logs."""
    return Path(record.pathname).parent.name != "py4j"


def _java(master: str, settings: dict[str, str], brief: bool = False) -> dict[str, str]:
    """Return the Java options. Those of the driver also limit logging, which a session cannot do before it exists."""
    driver, executor = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
    quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    given = settings.pop(driver, "")
    return {
        driver: " ".join([quiet, _JAVA, *_tuning(master, given, brief), given]).strip(),
        executor: f"{_JAVA} {settings.pop(executor, '')}".strip(),
    }


def _tuning(master: str, options: str, brief: bool) -> list[str]:
    """Return the options of a local session, in which the driver runs all tasks. Given options take precedence."""
    variables = [os.environ.get(name, "") for name in _JAVA_VARIABLES]
    is_chosen = any(_ANY_COLLECTOR.search(each) for each in (options, *variables))
    return [_BRIEF if brief else _COLLECTOR] if master.startswith("local") and not is_chosen else []
