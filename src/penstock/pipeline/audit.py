"""The audit: history itself is asked whether the promises were kept. A promise that was broken is shown, row by row.

It reads bronze, so it rests on nothing that the pipeline has worked out. Where the nodes are at hand, what the lake
says is compared with what they count themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.client import commands
from penstock.core import states as s
from penstock.pipeline import nodes
from penstock.pipeline.errors import spoken
from penstock.pipeline.lake import Lake
from penstock.pipeline.queries import sql
from penstock.pipeline.sizing import prepared, sized
from penstock.pipeline.source import Source
from penstock.pipeline.stream import Told, once, quiet
from penstock.pipeline.tables import EVENTS, JOBS, gold_table
from penstock.spark.node import Head, Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By the names of their queries, in the order in which they are told.
PROMISES: Final = {
    "lost": "Nothing that was acknowledged is lost.",
    "twice": "Every event is in the lake once.",
    "lawless": "A job changes only as the rules say, and ends only by an ack, a delete, its ttl or the like.",
    "once": "What may be delivered at most once was delivered at most once.",
    "keys": "No key had more jobs taken at a time than its tube allows.",
    "strangers": "Nobody acked a job that another held.",
}

# Those that a tube can choose not to make.
_BY_TUBE: Final = ("keys", "strangers")
_TUBES: Final = "node string, tube string, owned boolean, cancels boolean, key_limit int"

# So many of the rows that break a promise are shown.
SHOWN: Final = 20


@dataclass(frozen=True)
class Finding:
    """One promise, and what speaks against it."""

    name: str
    promise: str
    broken: int
    examples: list[dict[str, Any]]
    unjudged: str = ""  # What it could not be judged by, and why.


@dataclass(frozen=True)
class Verdict:
    """What the audit found."""

    events: int
    jobs: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether every promise was."""
        return not any(finding.broken for finding in self.findings)


def audit(spark: SparkSession, lake: Lake, source: Source | None = None, told: Told = quiet) -> Verdict:
    """Judge all that the lake holds. With a source, bring it up to date first, and compare it with the nodes."""
    heads = None
    if source is not None:
        heads = source.heads()
        once(spark, lake, source, told)
    lake.must_be_there()
    told("judging events", 0, lake.rows(EVENTS))
    with spoken(), sized(prepared(spark), lake.rows(EVENTS)):
        lake.read(spark, EVENTS).drop("body").createOrReplaceTempView("events")
        spark.createDataFrame(_tubes(lake), _TUBES).createOrReplaceTempView("tubes")
        spark.createDataFrame(_rules(), "event string, before string, after string").createOrReplaceTempView("rules")
        holds = spark.sql(sql("audit/holds")).persist()
        try:
            holds.createOrReplaceTempView("holds")
            findings = _judge(spark)
        finally:
            holds.unpersist()
    if source is not None:
        findings.append(_compare(lake, source, heads))
    return Verdict(lake.rows(EVENTS), lake.rows(JOBS), findings)


def _judge(spark: SparkSession) -> list[Finding]:
    """Ask for each promise what breaks it. One query asks all: most often there is nothing to show."""
    asked = " UNION ALL ".join(f"SELECT '{name}' AS promise, * FROM ({sql(f'audit/{name}')})" for name in PROMISES)
    spark.sql(asked).createOrReplaceTempView("broken")
    counted = "SELECT *, count(*) OVER (PARTITION BY promise) AS total, row_number() OVER nth AS nth FROM broken"
    ranked = f"{counted} WINDOW nth AS (PARTITION BY promise ORDER BY node, position)"
    found = [row.asDict() for row in spark.sql(f"SELECT * FROM ({ranked}) WHERE nth <= {SHOWN}").collect()]
    unknown = spark.sql("SELECT tube FROM holds WHERE owned IS NULL GROUP BY tube ORDER BY tube").collect()
    note = f"not known what these tubes promise: {', '.join(row['tube'] for row in unknown)}" if unknown else ""
    findings = []
    for name, promise in PROMISES.items():
        rows = sorted((row for row in found if row["promise"] == name), key=lambda row: row["nth"])
        total = rows[0]["total"] if rows else 0
        shown = [{key: row[key] for key in ("node", "tube", "job", "position", "time", "what")} for row in rows]
        findings.append(Finding(name, promise, total, shown, note if name in _BY_TUBE else ""))
    return findings


def _tubes(lake: Lake) -> list[tuple[Any, ...]]:
    return [
        (node, tube, promise["owned"], promise["cancels"], promise["key_limit"])
        for node, known in nodes.recall(lake).items()
        for tube, promise in known["tubes"].items()
    ]


def _rules() -> list[tuple[str, str, str]]:
    return [(s.EVENT_NAMES[event], s.STATE_NAMES[source], s.STATE_NAMES[to]) for event, source, to in s.TRANSITIONS]


# What the nodes say themselves


def _compare(lake: Lake, source: Source, heads: dict[str, Head] | None) -> Finding:
    """Whether the lake has counted all that the nodes have. Of a tube that was made again after a drop it has more."""
    name, promise = "counts", "Nothing that the nodes have counted is missing from the lake."
    since = nodes.recall(lake)
    if any(since[node]["since"] > 1 for node in heads or ()):
        return Finding(name, promise, 0, [], "the lake begins later than the nodes")
    live = _live_counts(source)
    if source.heads() != heads:
        return Finding(name, promise, 0, [], "the nodes were busy meanwhile")
    counted = _lake_counts(lake)
    wrong = [
        {"tube": tube, "what": f"{change}: {counted[tube, change]:,} in the lake, {count:,} on the nodes"}
        for (tube, change), count in sorted(live.items())
        if counted[tube, change] < count
    ]
    return Finding(name, promise, len(wrong), wrong[:SHOWN])


def _lake_counts(lake: Lake) -> Counter[tuple[str, str]]:
    """How often jobs changed state, by tube and change, in the lake"""
    found: Counter[tuple[str, str]] = Counter()
    table = gold_table("transitions")
    for part in lake.arrow(table, lake.days(table)):
        for row in part.to_pylist():
            found[row["tube"], f"{row['before']}-{row['after']}"] += row["count"]
    return found


def _live_counts(source: Source) -> Counter[tuple[str, str]]:
    """and on the nodes, without tubes that are in no log."""
    found: Counter[tuple[str, str]] = Counter()
    for url in source.urls:
        with Node(url) as node:
            for tube in node.call(commands.tubes()):
                if not node.call(commands.tube_info(tube.encode())).temporary:
                    for change, count in node.call(commands.tube_stats(tube.encode(), _transitions)).items():
                        found[tube, change] += count
    return found


def _transitions(answer: Any) -> dict[str, int]:
    return commands.counts(answer[b"transitions"])
