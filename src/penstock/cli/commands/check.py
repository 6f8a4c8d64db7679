"""`penstock check`: checks for monitoring systems. A check compares metrics with thresholds and prints one line.

The exit codes are those of monitoring plugins: 0 ok, 1 warning, 2 critical, 3 unknown. A threshold is a metric, a
comparison and a value: `ready>1000`, `oldest>=5m`, `waiting<1`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from penstock.cli.errors import UsageError, message_of, parsing_answer, print_usage_error
from penstock.cli.name_completion import find_tube
from penstock.cli.option_values import TubeName
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output
from penstock.cli.records import State, job_count
from penstock.cli.targets import Target, execute
from penstock.core.errors import NoJournal, PenstockError
from penstock.report.thresholds import (
    CRITICAL,
    LEVELS,
    OK,
    UNKNOWN,
    WARNING,
    BadThreshold,
    Metric,
    Threshold,
    judge,
    parse_thresholds,
)
from penstock.wire.quoting import printable


class Result(typer.Exit):
    """Raised to end a check. Its exit code is the level: 0 ok, 1 warning, 2 critical, 3 unknown."""


class Checks(TyperGroup):
    """The group of checks. An error before the measurement, such as a wrong option, exits with UNKNOWN."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _unknown():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _unknown():
            return super().invoke(ctx)


@contextmanager
def _unknown() -> Iterator[None]:
    """Exit with UNKNOWN if the block fails."""
    try:
        yield
    except UsageError as error:
        print_usage_error(error)
        raise typer.Exit(UNKNOWN) from None
    except Result:
        raise
    except typer.Exit as end:
        # OK means that the help was printed.
        raise end if end.exit_code == OK else typer.Exit(UNKNOWN) from None


app = CommandGroup(
    cls=Checks,
    help="Check a queue for monitoring. Exit codes: 0 ok, 1 warning, 2 critical, 3 unknown.",
)

_READY_TIMEOUT_S: Final = 5.0
# The text of a health page that is not ready is one line.
_PROBLEM_BYTES_MAX: Final = 1_000

# The output formats of a check.
Format = StrEnum("Format", "TEXT NAGIOS JSON PROMETHEUS")


@dataclass(frozen=True)
class Thresholds:
    """The thresholds and the output format of a check."""

    warn: Annotated[
        list[str] | None,
        typer.Option(
            "--warn", metavar="THRESHOLD", help="Exit with 1 if this is true, for example 'ready>1000'. Repeatable."
        ),
    ] = None
    crit: Annotated[
        list[str] | None,
        typer.Option(
            "--crit", metavar="THRESHOLD", help="Exit with 2 if this is true, for example 'oldest>5m'. Repeatable."
        ),
    ] = None
    format: Annotated[Format, typer.Option("--format", "-f", help="Output format.")] = Format.TEXT

    def parse(self, metrics: list[Metric]) -> list[Threshold]:
        """Parse the thresholds on these metrics. An unknown metric is an error."""
        from penstock.server.config.kinds import read_size

        try:
            return parse_thresholds(metrics, self.warn or [], self.crit or [], read_size)
        except BadThreshold as error:
            raise typer.BadParameter(str(error)) from None


def report(what: str, subject: str, metrics: list[Metric], thresholds: Thresholds, problem: str = "") -> None:
    """Print the metrics and exit with the resulting level. It is CRITICAL if `problem` is not empty."""
    asked = thresholds.parse(metrics)
    level, words = judge(metrics, asked, problem)
    print_report(what, subject, level, printable(words), metrics, thresholds.format, asked)
    raise Result(level)


def print_report(
    what: str, subject: str, level: int, words: str, metrics: list[Metric], format: Format, asked: list[Threshold]
) -> None:
    """Print the result of a check in the format `format`."""
    known = [metric for metric in metrics if metric.value is not None]
    if format is Format.JSON:
        fields = {"check": what, "subject": subject, "status": LEVELS[level].lower(), "code": level, "message": words}
        Output(json=True).json_line({**fields, "metrics": {metric.name: metric.value for metric in metrics}})
        return
    subject = printable(subject)
    if format is Format.PROMETHEUS:
        labels = f'{{subject="{_escaped(subject)}"}}'
        typer.echo(f"penstock_check_{what}_status{labels} {level}")
        for metric in known:
            suffix = {"s": "_seconds", "B": "_bytes"}.get(metric.unit, "")
            typer.echo(f"penstock_check_{what}_{metric.name}{suffix}{labels} {metric.figure()}")
    elif format is Format.NAGIOS:
        limits = {(each.level, each.metric.name): f"{each.limit:g}" for each in asked}
        figures = [
            f"{each.name}={each.figure()}{each.unit};{limits.get((WARNING, each.name), '')};"
            f"{limits.get((CRITICAL, each.name), '')}"
            for each in known
        ]
        typer.echo(f"PENSTOCK {LEVELS[level]} - {what} {subject}: {words} | {' '.join(figures)}".rstrip(" |"))
    else:
        typer.echo(f"{LEVELS[level]}: {what} {subject}: {words}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def report_unknown(what: str, subject: str, error: Exception, format: Format, level: int = UNKNOWN) -> None:
    """Report that the check could not measure anything, and exit."""
    print_report(what, subject, level, printable(" ".join(message_of(error).split())), [], format, [])
    raise Result(level)


@app.command()
def connection(*, thresholds: Thresholds, target: Target) -> None:
    """Check that the queue answers, and how quickly. The result is critical if there is no answer.

    Metrics: connect and answer (durations).
    """
    subject = target.address().without_password()
    thresholds.parse(
        [Metric("connect", None, "s"), Metric("answer", None, "s")]
    )  # Report a misspelt metric before measuring.
    try:
        start = time.monotonic()
        with target.open() as queue:
            connected = time.monotonic()
            queue.tubes()
            answered = time.monotonic()
    except (PenstockError, OSError) as error:
        report_unknown("connection", subject, error, thresholds.format, CRITICAL)
    metrics = [Metric("connect", connected - start, "s"), Metric("answer", answered - connected, "s")]
    report("connection", subject, metrics, thresholds)


@app.command()
def ready(
    http_url: Annotated[
        str, typer.Option("--http-url", metavar="URL", help="The HTTP port of the node (its setting http-port).")
    ] = "http://127.0.0.1:7712",
    *,
    thresholds: Thresholds,
) -> None:
    """Check that a node is ready, by its health page /readyz. It is critical if it loads its journal or is leaving.

    No password is needed, so this is the check of the container. Metric: answer (a duration).
    """
    # Imported here, because it imports ssl, which would delay `penstock --help`.
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    thresholds.parse([Metric("answer", None, "s")])
    if not http_url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{http_url!r} is not an address of a web page; write http://127.0.0.1:7712")
    page = http_url.rstrip("/") + "/readyz"
    start = time.monotonic()
    try:
        with urllib.request.urlopen(page, timeout=_READY_TIMEOUT_S) as answer:
            problem = "" if answer.status == 200 else f"status {answer.status}"
    except urllib.error.HTTPError as refusal:
        problem = refusal.read(_PROBLEM_BYTES_MAX).decode(errors="replace").strip() or f"status {refusal.code}"
    except (OSError, HTTPException) as error:
        report_unknown("ready", http_url, error, thresholds.format, CRITICAL)
    report("ready", http_url, [Metric("answer", time.monotonic() - start, "s")], thresholds, problem)


@app.command()
def tube(name: TubeName, *, thresholds: Thresholds, target: Target) -> None:
    """Check a tube: the jobs in each state, the age of the next ready job, the number of waiting consumers.

    Metrics: ready, taken, delayed, buried, done, zombie, staged, jobs, waiting, oldest (a duration).
    """
    try:
        with target.open() as queue:
            info = find_tube(queue, name).info()
    except (PenstockError, OSError) as error:
        report_unknown("tube", name, error, thresholds.format)
    metrics = [
        *(Metric(state.value, info[state]) for state in State),
        Metric("jobs", job_count(info)),
        Metric("waiting", info["waiting"]),
        Metric("oldest", info["oldest"], "s"),
    ]
    report("tube", name, metrics, thresholds)


@app.command()
def journal(
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the log, only measure its files.")] = False,
    *,
    thresholds: Thresholds,
    target: Target,
) -> None:
    """Check the log of a directory, even while it is in use, or of a server. A damaged log is critical.

    Metrics of a directory: size (of the log), free (space on its disk), segments, age (time since the last write).
    Metrics of a server: size, behind (rows that are not on disk yet), sync (duration of the last sync).
    """
    place = target.address()
    subject = place.without_password()
    try:
        metrics, problem = _server_journal(target) if place.directory is None else _journal(place.directory, quick)
    except (PenstockError, OSError) as error:
        report_unknown("journal", subject, error, thresholds.format)
    report("journal", subject, metrics, thresholds, problem)


def _server_journal(target: Target) -> tuple[list[Metric], str]:
    with parsing_answer():
        lines = execute(target, "INFO", "persistence").decode().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if fields["aof_enabled"] != "1":
            raise NoJournal("the server keeps no journal")
        problem = "" if fields["aof_last_write_status"] == "ok" else "the server cannot write its log"
        return [
            Metric("size", int(fields["aof_current_size"]), "B"),
            Metric("behind", int(fields["journal_written"]) - int(fields["journal_durable"])),
            Metric("sync", float(fields["journal_sync_ms"]) / 1000, "s"),
        ], problem


def _journal(directory: Path, quick: bool) -> tuple[list[Metric], str]:
    import shutil

    from penstock.host.boot import boot_id
    from penstock.journal.identity import identity
    from penstock.journal.real_disk import ReadOnlyDisk
    from penstock.journal.recovery.check import check_log

    disk = ReadOnlyDisk(str(directory))
    identity(disk)
    files = [path.stat() for path in directory.iterdir() if path.is_file()]
    segments = len(list(directory.glob("segment-*.log")))
    problem = ""
    if not quick:
        checked = check_log(disk, boot_id(), lambda done, total: None)
        problem = checked.refused or (checked.problems[0] if checked.problems else "")
    return [
        Metric("size", sum(file.st_blocks * 512 for file in files), "B"),
        Metric("free", shutil.disk_usage(directory).free, "B"),
        Metric("segments", segments),
        Metric("age", max(0.0, time.time() - max(file.st_mtime for file in files)), "s"),
    ], problem
