"""Starting Spark: a session that finds Java and its own Python, stays on this machine when it can, and keeps quiet."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock._extras import not_installed
from penstock.spark.errors import SourceError
from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What every session of ours has, unless it is asked for something else.
_DEFAULTS: Final = {
    # Off in Spark: filters on a tube or a state are then looked at by the server.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# What every Java of a session is told, wherever it runs. Arrow would look at each value twice, whether it is there and
# within bounds; Spark has looked already. It is a seventh of what a row of events costs Java.
_JAVA: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

_LOOPBACK: Final = "127.0.0.1"

# Masters whose every process is on this machine.
_HERE: Final = re.compile(r"local(\[.*\]|-cluster\[.*\])?|spark://(127\.0\.0\.1|localhost)(:\d+)?")

_LOGGING: Final = Path(__file__).parent / "log4j2.properties"


def session(
    master: str | None = None, *, app: str = "penstock", quiet: bool = False, **config: str | int | bool
) -> SparkSession:
    """A Spark session: `local[*]` unless said, `spark://host:7077`, `sc://host:15002` for Connect, or another master.

    `quiet`: start Java without what only linear algebra uses, so that it does not warn of that on the terminal.
    `config`: settings of Spark, as in `session(**{"spark.executor.memory": "2g"})`.
    If there is a session already, it is that one, with these settings as far as they can still be set.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SourceError(not_installed("Spark", "spark")) from None
    settings = {name: _word(value) for name, value in config.items()}
    if master is not None and master.startswith("sc://"):
        return _connected(master, settings)
    master = master or "local[*]"
    prepare(master, quiet)
    _hush()
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**_DEFAULTS, **_java(settings), **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _connected(master: str, settings: dict[str, str]) -> SparkSession:
    """A session on a Spark Connect server; only what can be set while it runs is ours to set."""
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as missing:
        raise SourceError(f"{not_installed('a package of Spark Connect', 'spark')} ({missing})") from None


def prepare(master: str, quiet: bool = False) -> None:
    """Set what Spark reads from the environment, where nobody has: Java, Python, and the address of this machine."""
    home = java_home(quiet)
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Else the workers would be whatever python3 the PATH has, which need not be the one with Penstock in it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _HERE.fullmatch(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def _hush() -> None:
    """Keep Spark's Python side from logging, with a stack of Java, an error that it raises as well."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _java(settings: dict[str, str]) -> dict[str, str]:
    """Java's options. The driver's tell where the log's settings are: before there is a session, Spark talks freely."""
    driver, executor = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
    quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return {
        driver: f"{quiet} {_JAVA} {settings.pop(driver, '')}".strip(),
        executor: f"{_JAVA} {settings.pop(executor, '')}".strip(),
    }


def _word(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
