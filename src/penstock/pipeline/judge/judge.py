"""Judges whether every promise of the queue was kept, from the events of jobs and the policies of their tubes.

The judge reads two tables and knows nothing about how they are stored: `events`, with the columns of
spark/events/schema.py, and `tubes`, with the life of each tube. The number of a tube identifies one life of it, so that
a tube which was dropped and created again is judged by its own promises.

Most promises are *rules* (sql/rules): expressions about one event, or about an event and the previous event of its job.
Each of the two kinds is evaluated in one pass, the second one after a shuffle by job. The other promises are queries of
their own (sql/judge), which read only the tubes whose policy has the promise. The order of deliveries is examined by
`delivery_order.py`.

The events of a node have no gaps from the position `since` on. The history of a job may start earlier. Then the judge
uses only what the later events prove.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.core import states as s
from penstock.pipeline.judge import delivery_order
from penstock.pipeline.judge.clocks import NodeClock, node_clocks
from penstock.pipeline.judge.finding import Finding
from penstock.pipeline.queries import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The promises by name, in the order of the findings.
PROMISES: Final = {
    "lost": "Nothing that was acknowledged is lost.",
    "twice": "Every event is there exactly once.",
    "lawless": "Jobs change state only as the rules allow, and end only by an ack, a delete, their ttl or the like.",
    "changed": "Jobs keep their creation, key, number, priority, place and ttl, unless an event may change them.",
    "time": "Time never goes back: neither on a node, nor for a job.",
    "order": "Jobs were delivered in the order of their tube.",
    "early": "No delay, ttr or time of a kept job ended early.",
    "late": "No job was finished or touched after its ttr.",
    "ttl": "No job was delivered after its ttl, and none expired before it.",
    "once": "Jobs with at-most-once delivery were delivered at most once.",
    "keys": "No key had more jobs taken at the same time than its tube allows.",
    "capacity": "No tube accepted a put beyond its capacity.",
    "unique": "No number of a tube was used for two jobs.",
    "strangers": "No session finished, moved or touched a job that another session or a claim held.",
}

# Rules about one event, by promise.
EVENT_RULES: Final = (
    ("lawless", "lawless"),
    ("time", "time"),
    ("ttl", "ttl"),
    ("once", "once"),
    ("strangers", "strangers"),
)

# Rules about an event and the previous event of its job, by promise.
CHAIN_RULES: Final = (
    ("lost", "lost"),
    ("twice", "twice"),
    ("changed", "changed"),
    ("early", "early"),
    ("late", "late"),
    ("strangers", "claims"),
)

# This rule is needed only for events of version 1 of the log.
OLD_RULE: Final = ("strangers", "old_strangers")

# Promises that have queries of their own. Each reads only the tubes that have the promise.
QUERIES: Final = (
    ("time", "clock"),
    ("keys", "keys"),
    ("capacity", "capacity"),
    ("unique", "numbers"),
    ("unique", "chosen_numbers"),
)

# Number of violations of a promise that are listed.
EXAMPLES_MAX: Final = 20

# Java compiles methods of at most this many bytes.
_METHOD_BYTES_MAX: Final = 8_000


@dataclass(frozen=True)
class Judgement:
    """The findings about all promises, and the clocks of the nodes."""

    findings: list[Finding]
    clocks: list[NodeClock]
    events: int


def judge(spark: SparkSession, events: DataFrame, tubes: DataFrame, since: dict[str, int]) -> list[Finding]:
    """Return one finding for each promise.

    `events`: the columns of spark/events/schema.py; a body is not needed. `tubes`: node, tube_number, tube, position,
    event ('made', 'changed' or 'dropped') and policy (the fields of TubePolicy as JSON, or null if it is not known).
    A policy is valid from its position until that of the next row of the same tube. `since`: the first position of each
    node; the events of a node have no gaps from there on.
    """
    return judge_with_clocks(spark, events, tubes, since).findings


def judge_with_clocks(spark: SparkSession, events: DataFrame, tubes: DataFrame, since: dict[str, int]) -> Judgement:
    """Return the findings of `judge`, and what the events show about the clocks of the nodes."""
    nodes = sorted(since)
    if not nodes:
        nothing = [Finding(name, promise, 0, [], "there are no events", False) for name, promise in PROMISES.items()]
        return Judgement(nothing, [], 0)
    with _compiled(spark):
        return _judge_nodes(spark, events, tubes, _Texts(nodes, since), nodes)


@contextmanager
def _compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark split its generated code into methods that Java compiles. Java only interprets larger methods."""
    name = "spark.sql.codegen.hugeMethodLimit"
    before = spark.conf.get(name, None)
    spark.conf.set(name, str(_METHOD_BYTES_MAX))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _judge_nodes(
    spark: SparkSession, events: DataFrame, tubes: DataFrame, filled: _Texts, nodes: list[str]
) -> Judgement:
    events.createOrReplaceTempView("events")
    tubes.createOrReplaceTempView("tubes")
    spark.sql(filled.sql("judge/narrow")).createOrReplaceTempView("narrow")
    summary = spark.sql(filled.sql("judge/summary")).persist()
    try:
        summary.createOrReplaceTempView("summary")
        lives = spark.sql(filled.sql("judge/lives")).persist()
        try:
            return _judge(spark, filled, events, lives, nodes)
        finally:
            lives.unpersist()
    finally:
        summary.unpersist()


def _judge(spark: SparkSession, filled: _Texts, events: DataFrame, lives: DataFrame, nodes: list[str]) -> Judgement:
    from pyspark.sql import functions as f

    f.broadcast(lives).createOrReplaceTempView("lives")
    scope = _Scope(
        [row.asDict() for row in spark.sql(sql("judge/scope")).collect()],
        {row["n"]: row.asDict() for row in spark.sql(sql("judge/nodes")).collect()},
    )
    spark.sql(filled.judged()).createOrReplaceTempView("judged")
    spark.sql(filled.chain(scope.old_events > 0)).createOrReplaceTempView("chain")
    broken = spark.sql(filled.rules(CHAIN_RULES + ((OLD_RULE,) if scope.old_events else ())))
    for promise, query in QUERIES:
        if scope.needs(query):
            broken = broken.unionByName(spark.sql(sql(f"judge/{query}")).withColumn("promise", f.lit(promise)))
    broken = broken.unionByName(_overtakers(spark).withColumn("promise", f.lit("order")))
    broken.createOrReplaceTempView("broken")
    found = [row.asDict() for row in spark.sql(f"{sql('judge/examples')} {EXAMPLES_MAX}").collect()]
    examples = _examples(events, found, nodes)
    findings = []
    for name, promise in PROMISES.items():
        total = max((row["total"] for row in found if row["promise"] == name), default=0)
        unjudged = "; ".join(scope.not_judged(name))
        findings.append(Finding(name, promise, total, examples.get(name, []), unjudged, scope.is_judged(name)))
    return Judgement(findings, node_clocks(nodes, scope.nodes), scope.events)


def _overtakers(spark: SparkSession) -> DataFrame:
    """Return the deliveries of wrong order."""
    waiting = spark.sql(sql("judge/waiting"))
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    in_lines = waiting.repartition(partitions, "line").sortWithinPartitions("line", "position")
    return in_lines.mapInArrow(delivery_order.overtakers, delivery_order.RESULT)


def _examples(events: DataFrame, found: list[dict[str, Any]], nodes: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the violations by promise, with the facts of their events."""
    if not found:
        return {}
    from pyspark.sql import functions as f

    wanted = events.where(f.col("position").isin(sorted({row["position"] for row in found})))
    facts = {
        (row["node"], row["position"]): row
        for row in wanted.select("node", "position", "tube", "job", f.expr("unix_millis(time) AS t")).collect()
    }
    examples: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(found, key=lambda row: (row["n"], row["position"])):
        fact = facts[nodes[row["n"] - 1], row["position"]]
        example = {name: fact[name] for name in ("node", "tube", "job", "position")}
        example |= {"time": datetime.fromtimestamp(fact["t"] / 1_000, UTC), "what": row["what"]}
        examples.setdefault(row["promise"], []).append(example)
    return examples


class _Texts:
    """The texts of the queries, with the nodes and transitions filled in."""

    def __init__(self, nodes: list[str], since: dict[str, int]) -> None:
        cases = " ".join(f"WHEN '{_quoted(node)}' THEN {number}" for number, node in enumerate(nodes, 1))
        transitions = (
            f"'{s.EVENT_NAMES[event]}/{s.STATE_NAMES[before]}/{s.STATE_NAMES[after]}'"
            for event, before, after in s.TRANSITIONS
        )
        self._values = {
            ":node_number": f"CASE node {cases} END",
            ":beginnings": f"array({', '.join(f'{since[node]}L' for node in nodes)})",
            ":nodes": str(len(nodes)),
            ":transitions": ", ".join(transitions),
        }

    def sql(self, name: str) -> str:
        text = sql(name)
        for mark, value in self._values.items():
            text = text.replace(mark, value)
        return text

    def judged(self) -> str:
        """Return the query that evaluates the rules about one event. `alone` is null if none is broken."""
        return f"SELECT *, {self._broken(EVENT_RULES)} AS alone FROM ({self.sql('judge/judged')})"

    def chain(self, has_old_events: bool) -> str:
        """Return the query that joins each event with the previous event of its job."""
        text = self.sql("judge/chain")
        text = text.replace(":old_session", ", session" if has_old_events else "")
        return text.replace(":old_columns", ", session, owner, since IS NULL AS is_old" if has_old_events else "")

    def rules(self, rules: tuple[tuple[str, str], ...]) -> str:
        """Return a query with one row for each broken rule: those about one event, and the given ones about two."""
        return f"""
            SELECT n, position, inline(array_compact(flatten(array_compact(array(alone, chained)))))
            FROM (SELECT n, position, alone, {self._broken(rules)} AS chained FROM chain)
            WHERE alone IS NOT NULL OR chained IS NOT NULL"""

    def _broken(self, rules: tuple[tuple[str, str], ...]) -> str:
        """Return an expression: the broken ones of some rules as an array with nulls, or null if none is broken."""
        texts = [(promise, f"({self.sql(f'rules/{rule}')})") for promise, rule in rules]
        pairs = ", ".join(
            f"IF({text} IS NULL, NULL, struct('{promise}' AS promise, {text} AS what))" for promise, text in texts
        )
        return f"IF(coalesce({', '.join(text for _, text in texts)}) IS NULL, NULL, array({pairs}))"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


@dataclass(frozen=True)
class _Scope:
    """The events and tubes that could be judged."""

    tubes: list[dict[str, Any]]  # One row for each kind of policy: see sql/judge/scope.sql.
    nodes: dict[int, dict[str, Any]]  # By the number of the node.

    @property
    def events(self) -> int:
        return sum(row["events"] for row in self.tubes)

    @property
    def old_events(self) -> int:
        """The number of events of version 1 of the log."""
        return sum(row["old_events"] for row in self.tubes)

    def needs(self, query: str) -> bool:
        """Return whether a query can find anything, because there are tubes with its promise."""
        needed = {"keys": "limited", "capacity": "bounded", "numbers": "numbered", "chosen_numbers": "chosen"}
        return query not in needed or any(row[needed[query]] for row in self.tubes)

    def is_judged(self, name: str) -> bool:
        """Return whether there were events for which the promise could be judged."""
        if name in ("lost", "twice", "lawless", "changed", "time", "once"):
            return bool(self.tubes)
        return any(row["known"] and not row["driven"] for row in self.tubes)

    def not_judged(self, name: str) -> Iterator[str]:
        """Yield sentences about the events or tubes for which the promise was not judged, and why."""
        if not self.tubes:
            yield "there are no events"
            return
        unknown = sum(row["lives"] for row in self.tubes if not row["known"])
        if unknown and name not in ("lost", "twice", "lawless", "time", "once"):
            yield f"the policy of {unknown:,} tubes is not known"
        if name in ("order", "early", "late", "unique", "capacity", "strangers") and any(
            row["driven"] for row in self.tubes
        ):
            yield "tubes with a driver are not judged, because the driver decides"
        if self.old_events and name == "strangers":
            yield f"of {self.old_events:,} events of version 1 of the log, only acks have the acting session"
        if name == "strangers":
            yield "releases are not judged, because every session may release all taken jobs of a tube"
        if name == "order" and any(row["keyed"] for row in self.tubes):
            yield "in tubes with keys, only the order within each key is judged"
        if name == "capacity" and any(row["bytes_bounded"] for row in self.tubes):
            yield "capacities in bytes are not judged, because events do not have the lengths of bodies"
        if name == "unique":
            yield "unique values, names and dedup ids are not judged, because events do not have them"
        if name in ("early", "late", "capacity") and any(row["shared"] for row in self.tubes) and len(self.nodes) > 1:
            yield "tubes whose jobs can have copies on other nodes are judged only in part"
        if name == "once" and len(self.nodes) > 1:
            yield "deliveries are counted on each node, because a job has another id on each node"
