"""The data of `penstock top`: reads one view of a queue at a time, through the common interface of all queues.

A read may take long, or fail because the server is lost. The next read then opens a new connection.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.cli.commands.stats import NO_TUBES_HINT, add_rates
from penstock.cli.errors import parsing_answer
from penstock.cli.output import Column, Record, as_text, body_text
from penstock.cli.records import TUBE_COLUMNS, body_fields
from penstock.cli.top.details import age_text, job_details
from penstock.cli.top.figures import overview, read_figures
from penstock.core.errors import CommandError, NotAllowed, PenstockError, UnknownJob, UnknownTube
from penstock.core.limits import BATCH_JOBS_MAX
from penstock.host.clock import wall_ms
from penstock.report.units import duration_text

if TYPE_CHECKING:
    from penstock.api import Job, Queue
    from penstock.changes import Change

VIEWS: Final = ("tubes", "jobs", "consumers", "journal", "server")

# JOBS_SHOWN jobs of each state are listed. TAKEN_LOOKED_AT taken jobs are read to find their consumers.
JOBS_SHOWN: Final = 50
TAKEN_READ_MAX: Final = 200
CHANGES_KEPT: Final = 500

_RATES: Final = (
    Column("in/s", lambda row: row.get("in_rate")),
    Column("out/s", lambda row: row.get("out_rate")),
)


@dataclass(frozen=True, slots=True)
class ViewData:
    """The content of a view: a table of text with a key for each row, and a summary line."""

    headings: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    empty: str  # Text to show if there are no rows.
    summary: str = ""


class Backend(Protocol):
    """The part of the data that depends on the kind of the queue: a server or a directory."""

    def consumers(self, queue: Queue) -> ViewData: ...
    def facts(self, queue: Queue, jobs: list[Job]) -> list[Record]: ...
    def figures(self, queue: Queue) -> list[tuple[str, str]]: ...


class QueueReader:
    """Reads one queue and runs commands on it. Its methods can be called from any thread."""

    def __init__(
        self, open_queue: Callable[[], Queue], side: Backend, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = open_queue
        self._side = side
        self._clock = clock
        self._opening = threading.Lock()
        self._queue: Queue | None = None
        self._changes: deque[tuple[int, Change]] = deque(maxlen=CHANGES_KEPT)
        self._changes_count = 0
        self._no_changes = ""  # The reason why changes are not available, or "".
        self._counts: dict[str, tuple[int, int]] = {}
        self._counted = 0.0

    def read_view(self, view: str, tube: str) -> ViewData:
        """Read one view. Raise PenstockError or OSError if the queue does not answer."""
        try:
            return {
                "tubes": self._tubes,
                "jobs": lambda: self._jobs(tube),
                "consumers": self._consumers,
                "journal": self._journal,
                "server": self._server,
            }[view]()
        except (PenstockError, OSError):
            self.close()
            raise

    def close(self) -> None:
        """Close the queue. The next read opens it again."""
        queue, self._queue = self._queue, None
        if queue is not None:
            with suppress(PenstockError, OSError):
                queue.close()

    def _open_queue(self) -> Queue:
        with self._opening:
            if self._queue is None:
                queue = self._open()
                try:
                    queue.subscribe(self._record_change)
                    self._no_changes = ""
                except CommandError as error:
                    self._no_changes = str(error)
                self._queue = queue
            return self._queue

    def _record_change(self, change: Change) -> None:
        self._changes_count += 1
        self._changes.append((self._changes_count, change))

    # ---- Views -------------------------------------------------------------------------------------------------------

    def _tubes(self) -> ViewData:
        queue = self._open_queue()
        rows = queue.overview()
        now = self._clock()
        self._counts = add_rates(queue, rows, self._counts, now - self._counted)
        self._counted = now
        columns = (*TUBE_COLUMNS, *_RATES)
        cells = {row["name"]: tuple(as_text(each.cell(row)) for each in columns) for row in rows}
        return ViewData(tuple(each.heading for each in columns), cells, NO_TUBES_HINT, _summary(rows))

    def _jobs(self, tube: str) -> ViewData:
        if not tube:
            return ViewData((), {}, "Select a tube in the first tab.")
        try:
            return self._jobs_of(tube)
        except UnknownTube:
            return ViewData((), {}, f"The tube {tube} no longer exists.")

    def _jobs_of(self, tube: str) -> ViewData:
        place = self._open_queue().find_tube(tube)
        counts = place.stats()
        found = [
            (job, state)
            for state in counts
            for job in (place.jobs(state, JOBS_SHOWN) if counts[state] else [])  # type: ignore[arg-type]
        ]
        facts = self._side.facts(self._open_queue(), [job for job, _ in found])
        rows = {job.id: _job_row(job, state, meta) for (job, state), meta in zip(found, facts, strict=True)}
        summary = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
        headings = ("id", "state", "age", "tries", "failed", "key", "reason", "body")
        return ViewData(headings, rows, f"Tube {tube} is empty.", f"{tube}: {summary or 'no jobs'}")

    def _journal(self) -> ViewData:
        self._open_queue()
        rows = {str(number): _change_row(change) for number, change in reversed(self._changes)}
        return ViewData(
            ("time", "tube", "what happened", "became", "job"),
            rows,
            self._no_changes or "No changes since the start.",
            f"{self._changes_count:,} changes since the start",
        )

    def _consumers(self) -> ViewData:
        queue = self._open_queue()
        try:
            return self._side.consumers(queue)
        except CommandError as error:
            return ViewData((), {}, str(error))

    def _server(self) -> ViewData:
        queue = self._open_queue()
        try:
            rows = {name: (name, value) for name, value in self._side.figures(queue)}
        except CommandError as error:
            # The user may not be allowed to see it.
            return ViewData((), {}, str(error))
        return ViewData(("figure", "value"), rows, "The server reports no figures.")

    # ---- Commands ----------------------------------------------------------------------------------------------------

    def count(self, tube: str, state: str | None = None) -> int:
        counts = self._open_queue().find_tube(tube).stats()
        return counts[state] if state is not None else sum(counts.values())

    def kick(self, tube: str, number: int) -> int:
        """Kick up to `number` buried jobs of a tube. Return how many were kicked."""
        place, kicked = self._open_queue().find_tube(tube), 0
        while kicked < number and (some := place.kick(min(number - kicked, BATCH_JOBS_MAX))):
            kicked += some
        return kicked

    def delete(self, id: str) -> int:
        """Delete a job. Return 1, or 0 if it does not exist."""
        try:
            self._open_queue().job(id).delete()
        except UnknownJob:
            return 0
        return 1

    def describe_job(self, id: str) -> str:
        """Return the properties and the history of a job as text."""
        return job_details(self._open_queue(), id)

    def truncate(self, tube: str) -> int:
        """Delete every job of a tube. Return their number."""
        return self._open_queue().find_tube(tube).truncate()


def _summary(rows: list[Record]) -> str:
    summary = ", ".join(
        f"{sum(row[state] for row in rows):,} {state}" for state in ("ready", "taken", "delayed", "buried")
    )
    return f"{len(rows):,} tube{'' if len(rows) == 1 else 's'}: {summary}"


def _job_row(job: Job, state: str, meta: Record) -> tuple[str, ...]:
    return (
        *(job.id, state, age_text(meta), str(job.deliveries), str(job.nacks)),
        *(as_text(meta.get(name) or "")[:60] for name in ("key", "reason")),
        body_text(body_fields(job.body))[:200],
    )


def _change_row(change: Change) -> tuple[str, ...]:
    moment = time.strftime("%H:%M:%S", time.localtime(change.time)) + f".{int(change.time * 1_000) % 1_000:03d}"
    return moment, change.tube, change.event, "" if change.before == change.after else change.after, change.id


# ---- Directory and server --------------------------------------------------------------------------------------------


class DirectoryBackend:
    """A queue that is open in this process."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory  # None for a queue in memory.

    def consumers(self, queue: Queue) -> ViewData:
        """Return the sessions that hold jobs. At most TAKEN_READ_MAX taken jobs are read to find them."""
        held: Counter[tuple[int, str]] = Counter()
        next_due: dict[tuple[int, str], float | None] = {}
        looked_at = 0
        for name in [name for name, counts in queue.stats().items() if counts["taken"]]:
            for job in queue.find_tube(name).jobs("taken", TAKEN_READ_MAX - looked_at):
                looked_at += 1
                with suppress(UnknownJob):
                    meta = job.meta()
                    who = meta["holder"] or 0, name
                    held[who] += 1
                    due = meta["wakes"] and meta["wakes"] - meta["now"]
                    next_due[who] = min(filter(None, (due, next_due.get(who))), default=None)
        rows = {
            f"{session} {tube}": (str(session or "a claim"), tube, f"{count:,}", _left(next_due[session, tube]))
            for (session, tube), count in held.most_common()
        }
        return ViewData(("session", "tube", "jobs held", "first ttr ends in"), rows, "No session holds a job.")

    def facts(self, queue: Queue, jobs: list[Job]) -> list[Record]:
        """Return the properties of each job (`Job.meta`). They are empty for a job that has ended."""
        found: list[Record] = []
        for job in jobs:
            try:
                found.append(job.meta())
            except UnknownJob:
                found.append({})
        return found

    def figures(self, queue: Queue) -> list[tuple[str, str]]:
        if self._directory is None:
            return [("kept in", "memory")]
        files = [entry.stat().st_size for entry in os.scandir(self._directory) if entry.is_file()]
        return [
            ("kept in", str(self._directory)),
            ("files", f"{len(files):,}"),
            ("bytes", f"{sum(files):,}"),
        ]


class ServerBackend:
    """A server."""

    def consumers(self, queue: Queue) -> ViewData:
        """Return the sessions. Several connections can share a session, and its jobs belong to none of them alone."""
        now_ms = wall_ms()
        rows = {str(each["number"]): _session_row(each, now_ms) for each in queue.sessions()}
        headings = ("session", "name", "user", "addresses", "age", "idle", "jobs held", "of tubes", "waits on")
        return ViewData(headings, rows, "There are no sessions.")

    def facts(self, queue: Any, jobs: list[Job]) -> list[Record]:
        """Return the properties of each job, in one round trip. They are empty for a job that has ended."""
        with queue.pipeline() as pipeline:
            answers = [pipeline.meta(job) for job in jobs]
        found: list[Record] = []
        for answer in answers:
            try:
                found.append(answer.value)
            except CommandError:
                found.append({})
        return found

    def figures(self, queue: Queue) -> list[tuple[str, str]]:
        """Return an overview, and then all figures of INFO."""
        with parsing_answer():
            info = read_figures(_text(queue, "INFO"))
            info |= read_figures(_text(queue, "INFO", "latency"))
            cluster: dict[str, str] = {}
            with suppress(NotAllowed):
                cluster = read_figures(_text(queue, "CLUSTER", "INFO"))
            return [*overview(info, cluster), *info.items()]


def _text(queue: Any, *words: str) -> str:
    return str(queue.execute(*words), "utf-8", "backslashreplace")


def _session_row(session: Record, now_ms: int) -> tuple[str, ...]:
    clients, since = session["clients"], session["since"]
    idle = min((client["idle"] for client in clients), default=None)
    return (
        *(str(session["number"]), session["name"], session["user"]),
        ", ".join(client["address"] for client in clients) or "(disconnected)",
        "" if since is None else duration_text(max(0, now_ms - int(since * 1_000))),
        "" if idle is None else duration_text(int(idle * 1_000)),
        *(f"{session['held']:,}", ", ".join(session["holds"]), ", ".join(session["waiting"])),
    )


def _left(seconds: Any) -> str:
    return "never" if seconds is None else duration_text(max(0, round(seconds * 1_000)))
