"""The report: builds sections from the gold tables. The page and the terminal show the same sections.

Gold is much smaller than the history, but a year of minutes still has many rows. Therefore a chart has at most
POINTS_MAX points, each for several minutes. A table has one row per tube, or only the rows with the greatest values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline import charts
from penstock.pipeline.gold_reader import GoldReader, Row, group, rows_of
from penstock.pipeline.queries import question
from penstock.pipeline.sections import Column, Section, column

POINTS_MAX: Final = 400
TUBES_MAX: Final = 6  # A chart with more lines cannot be read.
ROWS_MAX: Final = 20

# Seconds that a point of a chart can cover, with their names.
_STEPS: Final = {
    **{1: "second", 5: "5 seconds", 15: "15 seconds"},
    **{60: "minute", 300: "5 minutes", 900: "15 minutes"},
    **{3_600: "hour", 21_600: "6 hours", 86_400: "day"},
}

# Ratio between the ends of neighbouring buckets in gold/durations.sql.
_BUCKET_GROWTH: Final = 1.02
_PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

_NOTHING: Final = "No data for this section in the selected days and tubes."


@dataclass(frozen=True)
class Report:
    """A report on a lake."""

    title: str
    subtitle: str
    figures: Sequence[tuple[str, str]]  # Labels and values of the totals at the top.
    sections: Sequence[Section]


def report_of(gold: GoldReader) -> Report:
    maker = _ReportBuilder(gold)
    sections = [
        maker.rates(),
        maker.durations("wait", "waits", "Wait times", "How long were jobs ready before they were taken?", "takes"),
        maker.durations("run", "runs", "Run times", "How long did workers hold jobs before they acked them?", "acks"),
        maker.backlog(),
        maker.failures(),
        maker.redeliveries(),
        maker.fairness(),
        maker.workers(),
        maker.transitions(),
    ]
    return Report("Queue report", maker.subtitle(), maker.figures(), sections)


class _ReportBuilder:
    def __init__(self, gold: GoldReader) -> None:
        self._gold = gold
        self._chart_tubes = gold.tubes[:TUBES_MAX]

    @cached_property
    def _step_s(self) -> int:
        """The seconds per point of a chart: the smallest step that gives at most POINTS_MAX points."""
        span = self._gold.span
        seconds = 0.0 if span is None else (span[1] - span[0]).total_seconds()
        fine = [step for step in _STEPS if step >= 60 or self._gold.grain == "second"]
        return next((step for step in fine if seconds / step <= POINTS_MAX), fine[-1])

    def subtitle(self) -> str:
        span = self._gold.span
        if span is None:
            return "No events in the selected days and tubes."
        first, last = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in span)
        tubes = self._gold.tubes
        named = ", ".join(tubes) if len(tubes) <= TUBES_MAX else f"{len(tubes):,} tubes"
        return f"{first} to {last} UTC · {named}"

    def figures(self) -> list[tuple[str, str]]:
        sums = self._gold.summed("rates", [], puts="sum", takes="sum", acks="sum", fails="sum")[0]
        dead = self._gold.summed("failures", [], dead_letters="sum")[0]["dead_letters"]
        again = self._gold.summed("redeliveries", [], redeliveries="sum")[0]["redeliveries"]
        named = {"jobs put": sums["puts"], "taken": sums["takes"], "acked": sums["acks"], "failed": sums["fails"]}
        named |= {"redelivered": again, "given up": dead}
        return [(name, f"{count or 0:,}") for name, count in named.items()]

    def rates(self) -> Section:
        counts = {"puts": "sum", "takes": "sum", "acks": "sum", "fails": "sum"}
        rows = self._by_tube(self._gold.summed("rates", ["tube"], **counts))
        busiest = {row["tube"]: row["puts"] for row in self._gold.summed("rates", ["tube"], puts="max")}
        lines = {"puts": "put", "takes": "taken", "acks": "acked", "fails": "failed"}
        return self._section(
            "rates",
            "Rates",
            [
                *(column("tube"), *(column(field, name) for field, name in lines.items())),
                Column(f"put in the busiest {self._gold.grain}", lambda row: busiest[row["tube"]]),
            ],
            rows,
            self._counts("rates", lines),
            self._note(),
        )

    def durations(self, kind: str, name: str, title: str, asked: str, of: str) -> Section:
        totals, counts = (
            table.filter(pc.equal(table["kind"], kind)) for table in (self._durations, self._durations_over_time)
        )
        rows = self._by_tube(percentiles(totals, ["tube"]))
        panels = {"p50": "median", "p95": "95th percentile", "p99": "99th percentile"}
        points = self._fill_steps(percentiles(counts, ["tube", "minute"]), panels, None)
        columns = [column("tube"), column("count", of), *(column(each, f"{each}, ms") for each in panels)]
        figure = charts.over_time(points, panels, "ms", self._chart_tubes, self._gold.span) if rows else None
        return Section(
            name,
            title,
            asked,
            columns,
            rows,
            _NOTHING,
            figure,
            f"{self._note()} Percentiles are accurate to 2 %.".strip(),
        )

    @cached_property
    def _durations(self) -> pa.Table:
        return self._gold.reduced("durations", lambda table: group(table, ["tube", "kind", "bucket"], count="sum"))

    @cached_property
    def _durations_over_time(self) -> pa.Table:
        by = ["tube", "kind", "minute", "bucket"]
        return self._gold.reduced("durations", lambda table: group(self._round_to_steps(table), by, count="sum"))

    def backlog(self) -> Section:
        table = self._gold.table("backlog").sort_by("minute")
        levels = ("ready", "taken", "delayed", "buried", "kept")
        most = {row["tube"]: row["ready"] for row in rows_of(group(table, ["tube"], ready="max"))}
        last = rows_of(group(table, ["tube"], **dict.fromkeys(levels, "last")))
        lines = {"ready": "ready", "taken": "taken", "buried": "buried"}
        points = self._extend_to_end(self._over_time("backlog", **dict.fromkeys(lines, "max")), last)
        return self._section(
            "backlog",
            "Backlog",
            [
                *(column("tube"), Column("most ready", lambda row: most[row["tube"]])),
                *(column(level, f"{level} at the end") for level in levels),
            ],
            self._by_tube(last),
            charts.over_time(points, lines, "jobs", self._chart_tubes, self._gold.span, level=True),
            self._note(),
        )

    def failures(self) -> Section:
        rows = self._greatest("failures", ["tube", "reason"], "count", dead_letters="sum")
        named = [{**row, "name": f"{row['tube']}: {row['reason']}"} for row in rows]
        figure = charts.bars(named, "name", {"count": "failed", "dead_letters": "given up"}, "jobs")
        columns = [column("tube"), column("reason"), column("count", "failed"), column("dead_letters", "given up")]
        return self._section("failures", "Failures", columns, rows, figure)

    def redeliveries(self) -> Section:
        whys = ("nacked", "ttr_passed", "disconnected", "released", "claim_ended", "snatched", "undelivered")
        counts = dict.fromkeys(("takes", "redeliveries", *whys), "sum")
        rows = self._by_tube(self._gold.summed("redeliveries", ["tube"], **counts))
        share = Column(
            "again, %", lambda row: round(100 * row["redeliveries"] / row["takes"], 2) if row["takes"] else None
        )
        columns = [column("tube"), column("takes", "taken"), column("redeliveries", "again"), share]
        return self._section(
            "redeliveries",
            "Redeliveries",
            [*columns, *map(column, whys)],
            rows,
            self._counts("redeliveries", {"redeliveries": "redelivered"}),
            self._note(),
        )

    def fairness(self) -> Section:
        rows = self._greatest("fairness", ["tube", "key"], "jobs", deliveries="sum", wait_ms="sum", wait_ms_max="max")
        for row in rows:
            row["wait_mean"] = round(row["wait_ms"] / row["deliveries"], 1) if row["deliveries"] else None
        named = [{**row, "name": f"{row['tube']}: {row['key']}"} for row in rows]
        columns = [
            *(column("tube"), column("key"), column("jobs"), column("deliveries")),
            *(column("wait_mean", "mean wait, ms"), column("wait_ms_max", "longest, ms")),
        ]
        figure = charts.bars(named, "name", {"wait_mean": "mean wait"}, "ms")
        return self._section("fairness", "Keys", columns, rows, figure, f"The {ROWS_MAX} keys with the most jobs.")

    def workers(self) -> Section:
        rows = self._greatest("workers", ["node", "session"], "taken", acked="sum", failed="sum", busy_ms="sum")
        # Session numbers are unique only within a node.
        several = len({row["node"] for row in rows}) > 1
        named = [
            {**row, "name": f"{row['node'][:8]}: session {row['session']}" if several else f"session {row['session']}"}
            for row in rows
        ]
        columns = [
            *(Column("node", lambda row: row["node"][:8]), column("session")),
            *(column("taken"), column("acked"), column("failed"), column("busy_ms", "busy, ms")),
        ]
        figure = charts.bars(named, "name", {"acked": "acked", "failed": "failed"}, "jobs")
        note = f"The {ROWS_MAX} sessions that took the most jobs, in all tubes."
        return self._section("workers", "Workers", columns, rows, figure, note)

    def transitions(self) -> Section:
        rows = self._greatest("transitions", ["tube", "before", "after"], "count")
        every = self._gold.summed("transitions", ["before", "after"], count="sum")
        columns = [column("tube"), column("before", "from"), column("after", "to"), column("count")]
        return self._section(
            "transitions", "Transitions", columns, rows, charts.matrix(every, "before", "after", "count")
        )

    # Rows

    def _by_tube(self, rows: list[Row]) -> list[Row]:
        """Sort rows by tube, the busiest tubes first."""
        place = {tube: number for number, tube in enumerate(self._gold.tubes)}
        return sorted(rows, key=lambda row: (place.get(row["tube"], len(place)), row["tube"]))[:ROWS_MAX]

    def _greatest(self, name: str, by: Sequence[str], order: str, **how: str) -> list[Row]:
        """Group a table, and return the rows that have the greatest sums of the column `order`."""
        table = group(self._gold.table(name), by, **{order: "sum"}, **how)
        # Ties are broken by the keys, so that the result is the same each time.
        keys = [(order, "descending"), *((each, "ascending") for each in by)]
        return rows_of(table.take(pc.sort_indices(table, keys)[:ROWS_MAX]))

    def _over_time(self, name: str, **how: str) -> list[Row]:
        """Return the points of a chart: a row for each of the busiest tubes and each step, with aggregated columns."""
        return rows_of(group(self._round_to_steps(self._gold.table(name)), ["tube", "minute"], **how))

    def _round_to_steps(self, table: pa.Table) -> pa.Table:
        """Keep the rows of the busiest tubes, and round their minutes down to the steps of the chart."""
        table = table.filter(pc.is_in(table["tube"], pa.array(self._chart_tubes, pa.string())))
        minutes = pc.floor_temporal(table["minute"], self._step_s, "second")
        return table.set_column(table.schema.get_field_index("minute"), "minute", minutes)

    def _fill_steps(self, points: list[Row], fields: Iterable[str], nothing: int | None) -> list[Row]:
        """For each step without a row, add a point with the value `nothing`. Gold has no rows for idle minutes."""
        there = {(row["tube"], row["minute"]): row for row in points}
        blank = dict.fromkeys(fields, nothing)
        return [
            there.get((tube, moment)) or {"tube": tube, "minute": moment, **blank}
            for tube in self._chart_tubes
            for moment in self._moments
        ]

    def _extend_to_end(self, points: list[Row], last: list[Row]) -> list[Row]:
        """Sort points by time. If a tube has no point at the end of the chart, add one from its row in `last`."""
        if self._gold.span is None:
            return points
        end = self._gold.span[1]
        there = {row["tube"] for row in points if row["minute"] >= end}
        more = [{**row, "minute": end} for row in last if row["tube"] not in there]
        return sorted([*points, *more], key=lambda row: row["minute"])

    @cached_property
    def _moments(self) -> list[datetime]:
        if self._gold.span is None:
            return []
        first, last = (moment.timestamp() // self._step_s for moment in self._gold.span)
        return [datetime.fromtimestamp(step * self._step_s, UTC) for step in range(int(first), int(last) + 1)]

    def _counts(self, name: str, panels: dict[str, str]) -> charts.Figure:
        points = self._fill_steps(self._over_time(name, **dict.fromkeys(panels, "sum")), panels, 0)
        return charts.over_time(points, panels, f"jobs per {_STEPS[self._step_s]}", self._chart_tubes, self._gold.span)

    def _note(self) -> str:
        left_out = len(self._gold.tubes) - len(self._chart_tubes)
        if not left_out:
            return ""
        return f"The chart leaves out {left_out:,} tubes with less activity. Use --tube to select the tubes to show."

    def _section(
        self,
        table: str,
        title: str,
        columns: Sequence[Column],
        rows: list[Row],
        figure: charts.Figure,
        note: str = "",
    ) -> Section:
        asked = question(f"gold/{table}").replace("minute", self._gold.grain)
        return Section(table, title, asked, columns, rows, _NOTHING, figure if rows else None, note)


def percentiles(counts: pa.Table, by: Sequence[str]) -> list[Row]:
    """Return percentiles of durations in ms from a histogram. Each is the upper limit of a bucket."""
    buckets: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for row in counts.to_pylist():
        buckets[tuple(row[each] for each in by)].append((row["bucket"], row["count"]))
    return [{**dict(zip(by, key)), **_of_buckets(sorted(found))} for key, found in buckets.items()]


def _of_buckets(buckets: list[tuple[int, int]]) -> Row:
    total = sum(count for _, count in buckets)
    row: Row = {"count": total}
    for name, share in _PERCENTILES.items():
        upto = 0
        for bucket, count in buckets:
            upto += count
            if upto >= total * share:
                row[name] = round(_BUCKET_GROWTH ** (bucket - 1), 1) if bucket else 0.0
                break
    return row
