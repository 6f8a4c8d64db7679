"""The audit: checks from the history whether every guarantee was kept, and lists the violations.

It reads only the events (bronze), so it does not depend on the derived tables. If the nodes can be reached, the counts
of state changes in the lake are also compared with the counts of the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.client import commands
from penstock.core import states as s
from penstock.pipeline import bronze, nodes
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.lake import Lake
from penstock.pipeline.queries import sql
from penstock.pipeline.sizing import configure, sized_for
from penstock.pipeline.source import Source
from penstock.pipeline.stream import ProgressCallback, no_progress, once
from penstock.pipeline.tables import EVENTS, JOBS, gold_table
from penstock.spark.node import Head, Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The guarantees by the names of their queries, in the order of the output.
PROMISES: Final = {
    "lost": "Nothing that was acknowledged is lost.",
    "twice": "Every event is in the lake exactly once.",
    "lawless": "Jobs change state only as the rules allow, and end only by an ack, a delete, their ttl or the like.",
    "once": "Jobs with at-most-once delivery were delivered at most once.",
    "keys": "No key had more jobs taken at the same time than its tube allows.",
    "strangers": "No session acked, nacked, requeued or touched a job that another session held.",
}

# Guarantees that depend on the policy of the tube.
_BY_TUBE: Final = ("keys", "strangers")
_TUBES: Final = "node string, tube string, owned boolean, cancels boolean, key_limit int"

# Number of violations of a guarantee that are listed.
EXAMPLES_MAX: Final = 20


@dataclass(frozen=True)
class Finding:
    """One guarantee and its violations."""

    name: str
    promise: str
    broken: int
    examples: list[dict[str, Any]]
    unjudged: str = ""  # Which events or tubes could not be checked, and why.
    judged: bool = True  # False: nothing could be checked.

    @property
    def kept(self) -> bool | None:
        """True if no violation was found, False otherwise, or None if nothing could be checked."""
        if self.broken:
            return False
        return True if self.judged else None


@dataclass(frozen=True)
class Verdict:
    """The result of an audit."""

    events: int
    jobs: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """True if no guarantee was violated. Guarantees that could not be checked do not count."""
        return not any(finding.broken for finding in self.findings)


def audit(
    spark: SparkSession, lake: Lake, source: Source | None = None, on_progress: ProgressCallback = no_progress
) -> Verdict:
    """Check all events of the lake. With a source, first update the lake, then also compare counts with the nodes."""
    heads = None
    if source is not None:
        heads = source.heads()
        once(spark, lake, source, on_progress)
    lake.require_exists()
    on_progress("checking events", 0, lake.rows(EVENTS))
    with as_pipeline_error(), sized_for(configure(spark), lake.rows(EVENTS)):
        known = nodes.load(lake)
        since = {node: mine["since"] for node, mine in known.items()}
        events = lake.read(spark, EVENTS).drop("body")
        # Events before a gap are left out, because the history of a job cannot be followed across a gap.
        bronze.from_positions(events, since).createOrReplaceTempView("events")
        spark.createDataFrame(_tubes(known), _TUBES).createOrReplaceTempView("tubes")
        spark.createDataFrame(_rules(), "event string, before string, after string").createOrReplaceTempView("rules")
        holds = spark.sql(sql("audit/holds")).persist()
        try:
            holds.createOrReplaceTempView("holds")
            findings = _judge(spark, lake.rows(EVENTS))
        finally:
            holds.unpersist()
    if source is not None:
        findings.append(_compare(lake, source, heads))
    return Verdict(lake.rows(EVENTS), lake.rows(JOBS), findings)


def _judge(spark: SparkSession, rows: int) -> list[Finding]:
    """Return a finding for each guarantee: its number of violations, with examples.

    A single query finds the violations of all guarantees, because separate queries would be slower.
    """
    asked = " UNION ALL ".join(f"SELECT '{name}' AS promise, * FROM ({sql(f'audit/{name}')})" for name in PROMISES)
    spark.sql(asked).createOrReplaceTempView("broken")
    counted = "SELECT *, count(*) OVER (PARTITION BY promise) AS total, row_number() OVER nth AS nth FROM broken"
    ranked = f"{counted} WINDOW nth AS (PARTITION BY promise ORDER BY node, position)"
    shown = f"SELECT *, unix_millis(time) AS ms FROM ({ranked}) WHERE nth <= {EXAMPLES_MAX}"
    found = [row.asDict() for row in spark.sql(shown).collect()]
    tubes = spark.sql("SELECT tube, bool_or(owned IS NOT NULL) AS known, count(*) AS events FROM holds GROUP BY tube")
    scope = _Scope(rows, {row["tube"]: (row["known"], row["events"]) for row in tubes.collect()})
    findings = []
    for name, promise in PROMISES.items():
        broken = sorted((row for row in found if row["promise"] == name), key=lambda row: row["nth"])
        total = broken[0]["total"] if broken else 0
        unjudged = "; ".join(scope.not_checked(name))
        findings.append(Finding(name, promise, total, list(map(_example, broken)), unjudged, scope.is_judged(name)))
    return findings


def _example(row: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(row["ms"] / 1_000, UTC)
    return {**{key: row[key] for key in ("node", "tube", "job", "position")}, "time": moment, "what": row["what"]}


@dataclass(frozen=True)
class _Scope:
    """The events and tubes that an audit could check."""

    rows: int  # Events in the lake.
    tubes: dict[str, tuple[bool, int]]  # By tube: whether its policy is known, and the number of checked events.

    def is_judged(self, name: str) -> bool:
        """Return whether the lake had any events for which the guarantee could be checked."""
        return any(known or name not in _BY_TUBE for known, _ in self.tubes.values())

    def not_checked(self, name: str) -> Iterator[str]:
        """Yield sentences about the events or tubes for which the guarantee was not checked, and why."""
        older = self.rows - sum(events for _, events in self.tubes.values())
        unknown = sorted(tube for tube, (known, _) in self.tubes.items() if not known)
        if not self.tubes:
            yield "there are no events"
        if older:
            yield f"without {older:,} events before a gap in the history"
        if unknown and name in _BY_TUBE:
            yield f"the policy of these tubes is not known: {', '.join(unknown)}"


def _tubes(known: nodes.Nodes) -> list[tuple[Any, ...]]:
    return [
        (node, tube, promise["owned"], promise["cancels"], promise["key_limit"])
        for node, mine in known.items()
        for tube, promise in mine["tubes"].items()
    ]


def _rules() -> list[tuple[str, str, str]]:
    return [(s.EVENT_NAMES[event], s.STATE_NAMES[source], s.STATE_NAMES[to]) for event, source, to in s.TRANSITIONS]


# Comparison with the counts of the nodes


def _compare(lake: Lake, source: Source, heads: dict[str, Head] | None) -> Finding:
    """Check for each tube and kind of state change that the nodes do not count more changes than the lake.

    The lake can count more, because a node counts from zero again if a tube is dropped and created again.
    """
    name, promise = "counts", "All state changes that the nodes have counted are in the lake."
    since = nodes.load(lake)
    if any(since[node]["since"] > 1 for node in heads or ()):
        return Finding(name, promise, 0, [], "the lake does not have the beginning of the nodes' history", judged=False)
    live = _live_counts(source)
    if source.heads() != heads:
        return Finding(name, promise, 0, [], "the nodes received commands during the audit", judged=False)
    counted = _lake_counts(lake)
    wrong = [
        {"tube": tube, "what": f"{change}: {counted[tube, change]:,} in the lake, {count:,} on the nodes"}
        for (tube, change), count in sorted(live.items())
        if counted[tube, change] < count
    ]
    return Finding(name, promise, len(wrong), wrong[:EXAMPLES_MAX])


def _lake_counts(lake: Lake) -> Counter[tuple[str, str]]:
    """Return how often jobs changed state, by tube and change, according to the lake."""
    found: Counter[tuple[str, str]] = Counter()
    table = gold_table("transitions")
    for part in lake.arrow(table, lake.days(table)):
        for row in part.to_pylist():
            found[row["tube"], f"{row['before']}-{row['after']}"] += row["count"]
    return found


def _live_counts(source: Source) -> Counter[tuple[str, str]]:
    """Return how often jobs changed state, by tube and change, according to the nodes.

    Temporary tubes are left out, because they are not in the logs.
    """
    found: Counter[tuple[str, str]] = Counter()
    for url in source.urls:
        with Node(url) as node:
            for tube in node.call(commands.tubes()):
                if not node.call(commands.find_tube(tube.encode())).temporary:
                    for change, count in node.call(commands.tube_stats(tube.encode(), _transitions)).items():
                        found[tube, change] += count
    return found


def _transitions(answer: Any) -> dict[str, int]:
    return commands.counts(answer[b"transitions"])
