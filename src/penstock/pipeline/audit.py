"""The audit: checks from the history whether every promise was kept, and lists the violations.

It reads only bronze, so it does not depend on the derived tables. It has two parts. First it checks that bronze is what
the nodes have written: no position is missing (coverage), and the digests of all blocks are those that were recorded
when the events were read. With `source`, they are also compared with the digests of the nodes' own logs. Then the judge
checks the promises of the queue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.core.limits import NEVER
from penstock.lake.delta import TableLog
from penstock.lake.files import read_table, write_table
from penstock.lake.forgotten import forgotten_events, interrupted_days
from penstock.lake.lake import TURN, Lake
from penstock.lake.span import Span
from penstock.lake.tables import EVENTS, TUBES, VERDICTS
from penstock.pipeline.coverage import judged_since, spans, without_erased
from penstock.pipeline.errors import as_pipeline_error
from penstock.pipeline.judge.clocks import NodeClock
from penstock.pipeline.judge.finding import Finding
from penstock.pipeline.judge.judge import EXAMPLES_MAX, Judgement, judge_with_clocks
from penstock.pipeline.run import Pipeline, ProgressCallback, no_progress
from penstock.pipeline.sizing import configure, sized_for
from penstock.pipeline.source import Logs, Source
from penstock.pipeline.tasks import read_files
from penstock.pipeline.verify import Difference, Expected, differences, expected_of, may_have, of_node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The promises about bronze itself, by name.
COVERED: Final = "The lake has every position of the logs that it has read, without a gap."
UNCHANGED: Final = "The events in the lake are those that were read, unchanged and complete."
SAME: Final = "The events in the lake are those of the nodes' logs."


@dataclass(frozen=True)
class Verdict:
    """The result of an audit."""

    events: int
    findings: list[Finding] = field(default_factory=list)
    clocks: list[NodeClock] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        return any(finding.broken for finding in self.findings)

    @property
    def cannot_tell(self) -> bool:
        """True if a promise could not be judged at all."""
        return any(finding.kept is None for finding in self.findings)


def audit(
    spark: SparkSession, lake: Lake, source: Source | None = None, on_progress: ProgressCallback = no_progress
) -> Verdict:
    """Check all events of the lake, and store the result in it.

    With a source, first update the lake, and also compare it with the nodes.
    """
    if source is not None:
        Pipeline(spark, lake, source, on_progress).once()
        lake.reload()
    lake.require_exists()
    events = lake.rows(EVENTS)
    on_progress("checking events", 0, events)
    with as_pipeline_error(), sized_for(configure(spark), events):
        found = [_covered(lake), _unchanged(spark, lake)]
        if source is not None:
            with source.connected() as logs:
                found.append(_same(spark, lake, logs, source))
        on_progress("checking events", events // 2, events)
        # Events before a gap are left out, because the history of a job cannot be followed across a gap.
        judgement = _judge(spark, lake, judged_since(lake))
    verdict = Verdict(events, [*found, *judgement.findings], judgement.clocks)
    _store(lake, verdict.findings)
    on_progress("checking events", events, events)
    return verdict


def audit_new(spark: SparkSession, lake: Lake) -> list[Finding]:
    """Check the events of the turns since the last audit, and add the result to the stored one.

    Promises about events that are far apart are judged only as far as both events are new. A complete audit judges all.
    """
    log = TableLog(lake.place, VERDICTS)
    blocks = [row for row in lake.coverage() if row["turn"] > log.counter(TURN)]
    if not blocks:
        return []
    since: dict[str, int] = {}
    for row in blocks:
        since[row["node"]] = min(row["start"], since.get(row["node"], row["start"]))
    with as_pipeline_error(), sized_for(configure(spark), sum(row["events"] for row in blocks)):
        different = differences(spark, lake, expected_of(blocks))
        unchanged = Finding("unchanged", UNCHANGED, len(different), list(map(_example, different))[:EXAMPLES_MAX])
        findings = [_covered(lake), unchanged, *_judge(spark, lake, since).findings]
    before = {row["promise"]: row for row in read_table(lake.place, VERDICTS, log.files).to_pylist()}
    _store(lake, [_added(before.get(each.name), each) for each in findings])
    return findings


def _added(before: dict[str, Any] | None, new: Finding) -> Finding:
    """Return a finding with the violations of the stored one and of the new one. A gap stays, so it is not added."""
    if before is None or new.name == "coverage":
        return new
    examples = [*json.loads(before["examples"]), *new.examples][:EXAMPLES_MAX]
    judged = new.judged or before["kept"] is not None
    return replace(new, broken=before["broken"] + new.broken, examples=examples, judged=judged)


def _judge(spark: SparkSession, lake: Lake, since: dict[str, int]) -> Judgement:
    """Judge the promises of the queue on the events from the positions `since` on."""
    limits = [Span(node, position, NEVER) for node, position in since.items()]
    files = [file for file in lake.files(EVENTS) if any(may_have(file, limit) for limit in limits)]
    events = read_files(spark, lake.place, EVENTS, files).drop("body")
    for node, position in since.items():
        events = events.where((events.node != node) | (events.position >= position))
    return judge_with_clocks(spark, events.where(events.node.isin(*since)), _tubes(spark, lake), since)


def _tubes(spark: SparkSession, lake: Lake) -> DataFrame:
    """Return the lives of tubes. A tube whose creation is not in the lake has no known policy."""
    rows = lake.read(TUBES).to_pylist()
    names = ("node", "tube_number", "tube", "position", "event", "policy")
    known = [row for row in rows if row["turn"] <= lake.turn and row["event"] != "named"]
    seen = [tuple("changed" if row[name] == "seen" else row[name] for name in names) for row in known]
    ddl = "node string, tube_number bigint, tube string, position bigint, event string, policy string"
    return spark.createDataFrame(seen, ddl)


def _covered(lake: Lake) -> Finding:
    """Check that the blocks of each node follow each other."""
    gaps = []
    for one, other in pairwise(spans(lake.coverage())):
        if one.node == other.node:
            what = f"positions {one.end:,} to {other.start - 1:,} were never read"
            gaps.append({"node": one.node, "position": one.end, "what": what})
    return Finding("coverage", COVERED, len(gaps), gaps[:EXAMPLES_MAX], _erased(lake))


def _unchanged(spark: SparkSession, lake: Lake) -> Finding:
    expected = expected_of(lake.coverage())
    different = differences(spark, lake, expected)
    known = sum(block.events for block in expected)
    found = [_example(each) for each in different]
    extra = lake.rows(EVENTS) - known + sum(each.expected.events - each.events for each in different)
    if extra > 0:
        found.append({"what": f"{extra:,} events are at positions that were never read"})
    return Finding("unchanged", UNCHANGED, len(found), found[:EXAMPLES_MAX], _erased(lake), judged=bool(expected))


def _erased(lake: Lake) -> str:
    """Return a note about events that `forget` has erased, or an empty text."""
    events = forgotten_events(lake)
    notes = [f"{events:,} events were erased by `forget` and are not judged"] if events else []
    if interrupted_days(lake):
        notes.append("a `forget` was interrupted: repeat it")
    counted = sum(row["events"] for row in lake.coverage() if row["rows_digest"] is None)
    if counted:
        notes.append(f"{counted:,} events of a converted lake are only counted, because they lack columns")
    return "; ".join(notes)


def _same(spark: SparkSession, lake: Lake, logs: Logs, source: Source) -> Finding:
    """Compare bronze with the digests of the nodes' logs, as far as the nodes still have them."""
    expected: list[Expected] = []
    trimmed = []
    coverage = lake.coverage()
    for node, head in logs.heads().items():
        for whole in (each for each in spans(coverage) if each.node == node):
            for span in without_erased(coverage, whole):
                start, end = max(span.start, head.first), min(span.end, head.end)
                expected += of_node(node, logs.digests(node, start, end), source.bodies)
                if span.start < start:
                    trimmed.append(node)
    found = [_example(each) for each in differences(spark, lake, expected)]
    note = f"the nodes no longer keep the oldest positions of {len(set(trimmed)):,} logs" if trimmed else ""
    note = "; ".join(each for each in (note, _erased(lake)) if each)
    return Finding("same", SAME, len(found), found[:EXAMPLES_MAX], note, judged=bool(expected))


def _example(each: Difference) -> dict[str, Any]:
    block = each.expected
    what = f"positions {block.start:,} to {block.end - 1:,}: {each.what}"
    return {"node": block.node, "position": block.start, "what": what}


def _store(lake: Lake, findings: list[Finding]) -> None:
    """Replace the stored result. The report shows it."""
    now = datetime.now(UTC)
    rows = [
        {
            **{"turn": lake.turn, "time": now, "promise": each.name, "text": each.promise, "kept": each.kept},
            **{"broken": each.broken, "note": each.unjudged, "examples": json.dumps(each.examples, default=str)},
        }
        for each in findings
    ]
    log = TableLog(lake.place, VERDICTS)
    log.commit(
        write_table(lake.place, VERDICTS, pa.Table.from_pylist(rows, VERDICTS.arrow), lake.turn),
        log.files,
        {TURN: lake.turn},
    )
