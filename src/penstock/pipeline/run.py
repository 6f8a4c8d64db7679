"""Runs the pipeline: copies new events into bronze, and adds them to silver and gold.

`once` processes the existing events and ends. `run` continues until it is stopped. Both start where the last run
stopped, according to the counters of the lake. They can be stopped or killed at any time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.core.policy import TubePolicy
from penstock.lake.lake import Lake
from penstock.pipeline import bronze
from penstock.pipeline.compact import compact
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.judge.finding import Finding
from penstock.pipeline.source import Logs, Source
from penstock.pipeline.turn import prepare, update_derived
from penstock.pipeline.user_tables import UserTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.events.ranges import EventsRange

log = logging.getLogger("penstock.pipeline")

# Interval at which `run` checks the events of the last turns. An audit of few events costs some seconds of CPU.
AUDIT_EVERY_S: Final = 300.0

# Reports progress: name of the step, amount done, total.
ProgressCallback = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress of a run."""


class Pipeline:
    """A lake, the nodes whose logs are copied into it, and the Spark session that does the work."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        source: Source,
        on_progress: ProgressCallback = no_progress,
        audit_new: Callable[[SparkSession, Lake], list[Finding]] = lambda spark, lake: [],
        users: Sequence[UserTable] = (),
    ) -> None:
        """`audit_new` checks the events of the last turns. `run` calls it at an interval.

        `users` are the tables of users, which are updated together with gold.
        """
        self._spark = spark
        self._lake = lake
        self._source = source
        self._on_progress = on_progress
        self._audit = audit_new
        self._users = users
        self.stopping = threading.Event()  # Set it to end at the next commit.

    def once(self) -> int:
        """Add all events that the logs have now to the lake. Return how many were new."""
        with self._lake.writing(), as_pipeline_error(), self._source.connected() as logs:
            self._lake.create()
            prepare(self._spark, self._lake, self._users)
            logs.check_continues(self._lake)
            return self._cycle(logs)

    def run(self, every_s: float) -> None:
        """Add new events to the lake every `every_s` seconds until `stopping` is set."""
        with self._lake.writing(), as_pipeline_error():
            self._lake.create()
            prepare(self._spark, self._lake, self._users)
            audit_at = time.monotonic() + AUDIT_EVERY_S
            while not self.stopping.is_set():
                with self._source.connected() as logs:
                    logs.check_continues(self._lake)
                    self._cycle(logs)
                if time.monotonic() >= audit_at and not self.stopping.is_set():
                    self._audit_new()
                    audit_at = time.monotonic() + AUDIT_EVERY_S
                self.stopping.wait(every_s)

    def _audit_new(self) -> None:
        """Check the events of the last turns, and log every broken promise."""
        for finding in self._audit(self._spark, self._lake):
            if finding.broken:
                example = finding.examples[0]["what"] if finding.examples else ""
                log.error("promise broken: promise=%s count=%d first=%s", finding.name, finding.broken, example)

    def _cycle(self, logs: Logs) -> int:
        heads = logs.heads()
        ranges = logs.new_ranges(self._lake, heads)
        unknown = [node for node, head in heads.items() if not self._lake.position(node) and head.first > 1]
        added = self.copy(ranges, {node: logs.policies(node) for node in unknown})
        if not self.stopping.is_set():
            update_derived(
                self._spark,
                self._lake,
                lambda done, total: self._on_progress("silver and gold", done, total),
                self._users,
            )
            compact(self._spark, self._lake, only_many=True)
        return added

    def copy(self, ranges: list[EventsRange], policies: Mapping[str, Mapping[str, TubePolicy]] | None = None) -> int:
        """Copy ranges of the logs into bronze, in turns. Return the number of events.

        `policies` are the present policies of nodes whose first positions are no longer in their logs.
        """
        total, done, added = sum(each.end - each.start for each in ranges), 0, 0
        self._on_progress("reading events", 0, total)
        for some in _turns(ranges):
            ends: dict[str, int] = {}
            begins: dict[str, int] = {}
            for each in some:
                if each.start > ends.get(each.node, self._lake.position(each.node)):
                    begins[each.node] = each.start
                ends[each.node] = max(ends.get(each.node, self._lake.position(each.node)), each.end)
            seen = {node: by_name for node, by_name in (policies or {}).items() if node in ends}
            added += bronze.add_turn(self._spark, self._lake, some, self._source.bodies, ends, begins, seen)
            done += sum(each.end - each.start for each in some)
            self._on_progress("reading events", done, total)
            if self.stopping.is_set():
                break
        return added


def _turns(ranges: list[EventsRange]) -> Iterator[list[EventsRange]]:
    """Divide ranges into turns of at most POSITIONS_A_TURN positions."""
    some: list[EventsRange] = []
    for each in ranges:
        if some and sum(one.end - one.start for one in [*some, each]) > bronze.POSITIONS_A_TURN:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
