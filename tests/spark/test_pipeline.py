"""The pipeline with a real server, a real Spark session and a lake on disk. Turns are slow, so tests share a lake."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.client import commands
from penstock.client.commands import Call
from penstock.pipeline.audit import PROMISES, audit
from penstock.pipeline.backfill import backfill
from penstock.pipeline.bronze import append
from penstock.pipeline.compact import compact
from penstock.pipeline.digest import digest
from penstock.pipeline.errors import LakeInUse, NoLake, PipelineError
from penstock.pipeline.lake import NO_DAY, Lake
from penstock.pipeline.nodes import load, refresh
from penstock.pipeline.source import Source
from penstock.pipeline.stream import Intake, _wait, _writer, once
from penstock.pipeline.tables import EVENTS, GOLD, JOBS, TALLIES, Table, gold_table
from penstock.spark.node import Node
from tests.server.serving import Server, wait_for
from tests.spark.conftest import url_of
from tests.spark.synthetic_events import HERE, THERE, History, as_version_2, first_turn, second_turn, take_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.queue import Job, Queue

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own for this module, so that the lake has exactly its history."""
    server = Server(tmp_path_factory.mktemp("history"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def source(server: Server) -> Source:
    """The log of the server. Gaps are allowed, because the nodes of synthetic events do not exist."""
    return Source((url_of(server),), gaps=True)


@pytest.fixture(scope="module")
def made(spark: SparkSession, server: Server, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A lake that was created in two turns after a failed commit, and the counts of the server at that time.

    It also has synthetic events of other nodes in other tubes.
    """
    root = tmp_path_factory.mktemp("lake")
    with penstock.connect(url_of(server)) as queue:
        held = work(queue)
        stumble(spark, Lake(root), source)
        made_up = History()
        first_turn(made_up)
        seen = len(made_up.rows)
        take_in(spark, Lake(root), made_up.rows)
        first = once(spark, Lake(root), source)
        # A job that is taken in the first turn is acked in the second.
        held.ack()
        work(queue).ack()
        queue.tube("mail").truncate()
        second_turn(made_up)
        take_in(spark, Lake(root), made_up.rows[seen:])
        second = once(spark, Lake(root), source)
        counts = {name: queue.tube(name).transitions() for name in queue.tubes()}
        states = {name: queue.tube(name).stats() for name in queue.tubes()}
    return Made(root, first, second, counts, states)


class Made:
    """A lake, and the counts of the server when it was created."""

    def __init__(self, root: Path, first: int, second: int, counts: dict[str, Any], states: dict[str, Any]) -> None:
        self.root = root
        self.new = (first, second)
        self.counts = counts
        self.states = states

    @property
    def lake(self) -> Lake:
        """The lake with its present manifest."""
        return Lake(self.root)

    def jobs(self, tube: str) -> Rows:
        """Return the jobs of a tube in order of their ids."""
        found = [row for row in rows_of(self.lake, JOBS) if row["tube"] == tube]
        return sorted(found, key=lambda row: row["job"])


def work(queue: Queue) -> Job:
    """Produce events for all tables. Return a job that is still taken."""
    mail = queue.tube("mail", "fifottl")
    for n in range(20):
        mail.put(f"letter {n}")
    for _ in range(10):
        mail.take().ack()
    mail.take().nack("no such street")
    mail.take().ack()
    mail.take().bury("torn")
    mail.put("later", delay=3600)
    risky = queue.tube("risky", "fifottl", max_deliveries=1, dead_letter="morgue")
    risky.put("try this")
    risky.take().nack("it blew up")
    crawl = queue.tube("crawl", "utube")
    for n in range(6):
        crawl.put(f"page {n}", key=f"site {n % 2}")
    one, other = crawl.take(), crawl.take()
    one.ack()
    other.release()
    queue.execute("ADDJOB", "orders", "pay", "0", "RETRY", "0")
    queue.execute("GETJOB", "FROM", "orders")
    held = queue.tube("held", "fifo")
    held.put("half done")
    return held.take()


def stumble(spark: SparkSession, lake: Lake, source: Source) -> None:
    """Run a turn whose commit fails after all files are written."""
    (lake.state / "manifest.new").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        once(spark, lake, source)
    (lake.state / "manifest.new").rmdir()


def rows_of(lake: Lake, table: Table) -> Rows:
    """Return all rows of a table according to the manifest, without Spark."""
    found: Rows = []
    for name in lake.files(table):
        rows = pq.ParquetFile(lake.root / table.path / name).read().to_pylist()
        found += [{**row, table.by: name.partition("/")[0].partition("=")[2]} for row in rows]
    return found


def total(lake: Lake, name: str, *keys: str, **only: Any) -> dict[Any, Counter[str]]:
    """Return the sums of a tally over all days, by some of its keys."""
    table = gold_table(name)
    found: dict[Any, Counter[str]] = {}
    for row in rows_of(lake, table):
        if all(row[key] == value for key, value in only.items()):
            found.setdefault(tuple(row[key] for key in keys), Counter()).update({m: row[m] for m in table.measures})
    return found


def test_every_event_is_in_bronze_once_although_a_commit_failed(made: Made) -> None:
    keys = [row["position"] for row in rows_of(made.lake, EVENTS) if row["node"] not in (HERE, THERE)]
    assert len(keys) == len(set(keys)) == sum(made.new)
    assert all(count > 50 for count in made.new)


def test_transitions_equal_the_lifetime_counts_of_the_server(made: Made) -> None:
    for tube, counts in made.counts.items():
        found = total(made.lake, "transitions", "before", "after", tube=tube)
        assert {f"{before}-{after}": sums["count"] for (before, after), sums in found.items()} == counts


def test_silver_has_the_unfinished_jobs_in_their_states(made: Made) -> None:
    rows = [row for row in rows_of(made.lake, JOBS) if row["tube"] in made.states and row["ended"] == NO_DAY]
    there = Counter((row["tube"], row["state"]) for row in rows)
    live = {(tube, state): n for tube, states in made.states.items() for state, n in states.items() if n}
    assert there == live


def test_silver_has_the_times_and_the_outcome_of_each_job(made: Made) -> None:
    jobs = made.jobs("mail")
    assert Counter(job["outcome"] for job in jobs) == {"acked": 22, "buried": 2, "truncated": 18}
    failed = next(job for job in jobs if job["nacks"])
    assert (failed["outcome"], failed["deliveries"], failed["reason"]) == ("acked", 2, "no such street")
    assert failed["put_at"] <= failed["first_take_at"] <= failed["last_take_at"] <= failed["finished_at"]
    assert failed["wait_ms"] >= 0 and failed["run_ms"] >= 0 and failed["session"] and failed["whole"]
    assert failed["body_bytes"] == len("letter 10")
    assert next(job for job in jobs if job["outcome"] == "buried")["reason"] == "torn"


def test_gold_has_the_sums_of_all_events(made: Made) -> None:
    lake = made.lake
    rates = {tube: sums for tube, sums in total(lake, "rates", "tube").items() if tube[0] in made.states}
    assert rates["mail",] == {"puts": 42, "takes": 26, "acks": 22, "fails": 4}
    assert total(lake, "redeliveries", tube="mail")[()]["redeliveries"] == 2
    reasons = total(lake, "failures", "reason", tube="mail")
    assert reasons["no such street",] == {"count": 2, "dead_letters": 0}
    assert reasons["torn",] == {"count": 2, "dead_letters": 2}
    assert total(lake, "failures", "reason", tube="risky")["it blew up",] == {"count": 2, "dead_letters": 2}
    assert total(lake, "transitions", "after", tube="morgue")["ready",] == {"count": 2}
    keys = total(lake, "fairness", "key", tube="crawl")
    assert keys["site 0",]["jobs"] == keys["site 1",]["jobs"] == 6
    takes = Counter({tube: sums["takes"] for (tube,), sums in rates.items()})
    waits = {tube: sums["count"] for (tube,), sums in total(lake, "durations", "tube", kind="wait").items()}
    assert waits.items() >= takes.items()
    workers = [sums for (node, _), sums in total(lake, "workers", "node", "session").items() if node != HERE]
    assert (
        sum(worker["taken"] for worker in workers) == takes.total() - takes["orders"]
    )  # Their jobs belong to no session.
    assert sum(worker["acked"] for worker in workers) == sum(sums["acks"] for sums in rates.values())


def test_gold_has_percentiles_and_levels(made: Made) -> None:
    lake = made.lake
    for row in rows_of(lake, gold_table("latency")):
        assert row["waits"] == 0 or 0 <= row["wait_p50"] <= row["wait_p95"] <= row["wait_p99"]
    levels = {
        tube: max((row["minute"], row) for row in rows_of(lake, gold_table("backlog")) if row["tube"] == tube)[1]
        for tube in made.states
    }
    for tube, states in made.states.items():
        kinds = ("ready", "taken", "delayed", "buried")
        assert [levels[tube][kind] for kind in kinds] == [states[kind] for kind in kinds]


def last_level(lake: Lake, tube: str) -> dict[str, int]:
    """Return the last number of jobs of a tube in each state, without zeros."""
    rows = [row for row in rows_of(lake, gold_table("backlog")) if row["tube"] == tube]
    last = max(rows, key=lambda row: row["minute"])
    return {state: last[state] for state in ("ready", "taken", "delayed", "buried", "kept") if last[state]}


def outcomes(lake: Lake, tube: str) -> Counter[tuple[str, str]]:
    """Return the number of jobs of a tube by node and outcome."""
    return Counter((row["node"], row["outcome"]) for row in rows_of(lake, JOBS) if row["tube"] == tube)


def sums(lake: Lake, name: str, tube: str) -> dict[str, Any]:
    """Return the sums of a tally for a tube, without zeros."""
    return {measure: count for measure, count in total(lake, name, tube=tube)[()].items() if count}


def test_a_job_with_copies_on_several_nodes_counts_once(made: Made) -> None:
    lake = made.lake
    assert sums(lake, "rates", "copied") == {"puts": 4, "takes": 3, "acks": 3}
    assert last_level(lake, "copied") == {"ready": 1}
    found = {(HERE, "acked"): 1, (THERE, "acked"): 2, (HERE, "open"): 1, (HERE, "copy"): 2, (THERE, "copy"): 2}
    assert outcomes(lake, "copied") == found
    assert last_level(lake, "by hand") == {"delayed": 2}


def test_a_job_without_its_first_events_counts_in_its_first_known_state(made: Made) -> None:
    lake = made.lake
    assert last_level(lake, "met") == {"taken": 1}


def test_work_of_a_claim_is_not_counted_for_the_session_before_it(made: Made) -> None:
    lake = made.lake
    workers = total(lake, "workers", "session", node=HERE)
    assert set(workers) == {(5,)}
    claimed = next(row for row in rows_of(lake, JOBS) if row["job"] == 30)
    assert (claimed["session"], claimed["run_ms"], claimed["outcome"]) == (None, 37_000, "acked")
    of_others = {"met": 1, "failed": 4, "claimed": 2}
    assert workers[5,]["taken"] == sum(of_others.values())
    assert workers[5,]["acked"] == 0  # It released one job, and took the other before the lake begins.


def test_redeliveries_count_expired_claims_and_failed_deliveries(made: Made) -> None:
    lake = made.lake
    why = {"claim_ended": 1, "undelivered": 1, "snatched": 1, "released": 1}
    assert sums(lake, "redeliveries", "claimed") == {"takes": 5, "redeliveries": 3, **why}


def test_a_job_is_given_up_for_the_reason_of_its_last_failure(made: Made) -> None:
    lake = made.lake
    found = {reason: dict(counts) for (reason,), counts in total(lake, "failures", "reason", tube="failed").items()}
    assert found == {
        "no answer": {"count": 1, "dead_letters": 0},
        "ttr passed": {"count": 1, "dead_letters": 1},
        "no such street": {"count": 2, "dead_letters": 2},
    }


def test_waits_and_runs_are_the_same_for_events_with_and_without_since(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    history = History()
    first_turn(history)
    seen = len(history.rows)
    second_turn(history)
    new = as_version_2(history.rows)
    mixed = [new[at] if history.rows[at]["job"] % 2 else history.rows[at] for at in range(seen)]
    lake = Lake(tmp_path)
    for rows in (mixed, new[seen:]):
        take_in(spark, lake, rows)
        with lake.writing():
            assert lake.has_nulls(EVENTS, "since", lake.manifest.fresh) == (rows is mixed)
            digest(spark, lake)
    tubes = {row["tube"] for row in history.rows}
    for table in (JOBS, *TALLIES):
        key, values = ("tube", tubes) if "tube" in table.arrow.names else ("node", {HERE, THERE})
        expected = [row for row in rows_of(made.lake, table) if row[key] in values]
        assert sorted(map(repr, rows_of(lake, table))) == sorted(map(repr, expected)), table.path
        assert expected or table.name == "fairness"  # The synthetic jobs have no keys.


def test_several_turns_give_the_same_result_as_a_backfill(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    again = Lake(shutil.copytree(made.root, tmp_path / "lake"))
    backfill(spark, again, None)
    for table in (JOBS, *GOLD):
        assert sorted(map(repr, rows_of(again, table))) == sorted(map(repr, rows_of(made.lake, table))), table.path


def test_compaction_leaves_fewer_files_and_the_same_rows(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    copy = Lake(shutil.copytree(made.root, tmp_path / "lake"))
    with copy.writing():
        before, after = compact(spark, copy)
    assert before > after
    for table in (EVENTS, JOBS):
        assert sorted(map(repr, rows_of(copy, table))) == sorted(map(repr, rows_of(made.lake, table)))
        assert all(len(copy.files(table, [day])) == 1 for day in copy.days(table))


def test_an_audit_of_a_correct_history_finds_every_guarantee_kept_and_adds_no_event_twice(
    spark: SparkSession, made: Made, source: Source, tmp_path: Path
) -> None:
    copy = Lake(shutil.copytree(made.root, tmp_path / "lake"))
    shutil.rmtree(copy.checkpoint)
    verdict = audit(spark, copy, source)
    assert [finding.name for finding in verdict.findings] == [*PROMISES, "counts"]
    assert all(finding.kept for finding in verdict.findings)
    assert {finding.name for finding in verdict.findings if finding.unjudged} == {"keys", "strangers"}
    assert verdict.events == Lake(copy.root).rows(EVENTS) == made.lake.rows(EVENTS)


def test_an_audit_of_an_empty_queue_creates_a_lake_and_checks_nothing(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    verdict = audit(spark, Lake(tmp_path / "lake"), Source((url_of(start()),)))
    assert verdict.kept and verdict.events == 0
    assert {finding.kept for finding in verdict.findings if finding.name in PROMISES} == {None}


def test_history_starts_after_a_gap_only_if_it_was_trimmed_before_it_was_read(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start("--history-bytes", "0")
    lake, strict = Lake(tmp_path / "lake"), Source((url_of(server),))
    (node,) = strict.heads()

    def puts(count: int) -> None:
        with penstock.connect(url_of(server)) as queue:
            for n in range(count):
                queue.tube("trimmed", "fifo").put(str(n))

    def trim() -> int:
        end = strict.heads()[node].end
        with Node(url_of(server)) as asker:
            asker.call(Call([b"BGREWRITEAOF"], commands.ignored, commands.REPEAT))
            wait_for(lambda: asker.head().first >= end)
            return asker.head().first

    puts(5)
    for _ in range(5):
        penstock.connect(url_of(server)).close()
    assert once(spark, lake, strict) == 5
    # The rows after the last event are of sessions, and they were read. So nothing is missing without a checkpoint.
    assert trim() > lake.manifest.positions[node] + 5
    shutil.rmtree(lake.checkpoint)
    assert once(spark, lake, strict) == 0
    assert load(lake)[node]["since"] == 1
    puts(3)
    trim()
    with penstock.connect(url_of(server)) as queue:
        for _ in range(8):
            queue.tube("trimmed").take().ack()
    with pytest.raises(PipelineError, match="is no longer kept"):
        once(spark, lake, strict)
    # A stream that continues after the gap, between two requests for the policies of tubes.
    (lake.state / "nodes.json").write_text(json.dumps({node: {"since": 1, "tubes": {}}}))
    intake = Intake(str(lake.root), Source(strict.urls, gaps=True), digests=False, refresh_at=float("inf"))
    with lake.writing():
        _wait(_writer(spark, lake, intake.source, intake).trigger(availableNow=True).start(), intake)
    assert intake.done == 16
    assert load(lake)[node]["since"] == strict.heads()[node].first > 1
    assert audit(spark, Lake(lake.root), strict).kept


def test_the_policies_of_tubes_are_requested_at_most_once_a_minute(
    server: Server, source: Source, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    with lake.writing():
        refresh(lake, source)
        intake = Intake(str(tmp_path), source, digests=True)
        for name in ("late", "later"):
            server.connect().call("TUBE", "CREATE", name, "TYPE", "utube")
            intake.refresh_nodes(lake)
            (node,) = load(lake).values()
            assert (
                "late" in node["tubes"] and "later" not in node["tubes"]
            )  # Created less than a minute after the first request.


def test_an_audit_finds_every_violated_guarantee(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    lake, planted = plant(spark, made, tmp_path / "lake")
    older = leave_a_gap(spark, lake)
    verdict = audit(spark, lake)
    assert not verdict.kept
    found = {finding.name: {row["job"] for row in finding.examples} for finding in verdict.findings}
    assert found == planted
    left_out = f"without {older} events before a gap in the history"
    assert all(finding.unjudged.startswith(left_out) for finding in verdict.findings)
    times = {(row["node"], row["position"]): row["time"] for row in rows_of(lake, EVENTS)}
    for row in (row for finding in verdict.findings for row in finding.examples):
        assert row["time"] == times[row["node"], row["position"]] and row["time"].utcoffset() == timedelta(0)


def leave_a_gap(spark: SparkSession, lake: Lake) -> int:
    """Add the history of another node with a gap. Return the number of events before the gap."""
    history, node = History(tube="gapped", key=b"k"), "c" * 40
    history.tell(1, "put", "ready", node=node)
    history.tell(1, "taken", "taken", session=5, node=node)
    history.tell(2, "put", "ready", node=node)
    history.tell(3, "put", "ready", key=b"z", node=node)
    history.tell(3, "taken", "taken", session=5, node=node)
    older = len(history.rows)
    # In the gap, job 1 was acked, and job 3 was released and taken by another session.
    history.tell(2, "taken", "taken", session=6, before_position=30, position=51, node=node)
    history.tell(2, "acked", "gone", session=6, node=node)
    history.tell(3, "acked", "gone", session=9, before_position=40, node=node)
    take_in(spark, lake, history.rows)
    promise = {"owned": True, "cancels": False, "key_limit": 1}
    known = {**load(lake), node: {"since": 51, "tubes": {"gapped": promise}}}
    (lake.state / "nodes.json").write_text(json.dumps(known))
    return older


def plant(spark: SparkSession, made: Made, root: Path) -> tuple[Lake, dict[str, set[int]]]:
    """Return a lake with a violation of each guarantee, and the jobs of the violations."""
    events = pa.Table.from_pylist(rows_of(made.lake, EVENTS), schema=EVENTS.arrow.remove(len(EVENTS.arrow) - 1))
    rows = events.sort_by("position").to_pylist()
    acked = [row for row in rows if row["tube"] == "mail" and row["event"] == "acked"]
    crawled = [row for row in rows if row["tube"] == "crawl" and row["event"] == "taken"]
    end = rows[-1]["position"] + 1000

    def more(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """Append an event that correctly follows the last event of its job."""
        nonlocal end
        last = [each for each in rows if each["job"] == row["job"]][-1]
        end += 1
        new = {**last, "position": end, "before_position": last["position"], "before": last["after"], **changes}
        rows.append(new)
        return new

    stranger, lost, twice, lawless, old_stranger = acked[:5]
    stranger["actor"] = 4711
    # An ack in version 1 of the log: the session is the one that acked.
    old_stranger |= {"session": 4711, "since": None, "actor": None}
    nacked = next(row for row in rows if row["tube"] == "mail" and row["event"] == "nacked")
    nacked["actor"] = 4711
    rows = [row for row in rows if row["job"] != lost["job"] or row["event"] != "taken"]
    more(lawless, event="deleted", after="gone")
    again = next(row for row in rows if row["once"] and row["event"] == "taken")
    more(again, event="ttr passed", after="ready")
    more(again, event="taken", after="taken")
    waiting = {row["job"] for row in crawled if row["key"] == b"site 0"}
    put = [row for row in rows if row["tube"] == "crawl" and row["event"] == "put" and row["key"] == b"site 0"]
    idle = [row for row in put if row["job"] not in waiting]
    more(idle[0], event="taken", after="taken", session=1)
    more(idle[1], event="taken", after="taken", session=1)

    lake = Lake(root)
    with lake.writing():
        append(lake, spark.createDataFrame(pa.Table.from_pylist(rows, schema=events.schema)))
        change = lake.change()
        same = spark.createDataFrame(pa.Table.from_pylist([twice], schema=events.schema))
        change.add(EVENTS, same.selectExpr("*", "to_date(time) AS date"))
        change.commit()
    shutil.copy(made.lake.state / "nodes.json", lake.state)
    return lake, {
        "lost": {lost["job"]},
        "twice": {twice["job"]},
        "lawless": {lawless["job"]},
        "once": {again["job"]},
        "keys": {idle[1]["job"]},
        "strangers": {stranger["job"], old_stranger["job"], nacked["job"]},
    }


def test_a_lake_stores_the_guarantees_of_its_tubes(made: Made) -> None:
    (node,) = load(made.lake).values()
    assert node["since"] == 1
    assert node["tubes"]["crawl"] == {"owned": True, "cancels": False, "key_limit": 1}
    assert node["tubes"]["orders"] == {"owned": False, "cancels": True, "key_limit": None}


def test_files_that_the_manifest_does_not_list_are_ignored_and_deleted(tmp_path: Path) -> None:
    stray = tmp_path / "gold/rates/date=2026-11-16/00000001-0.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"half a file")
    lake = Lake(tmp_path)
    assert not lake.files(gold_table("rates"))
    with pytest.raises(NoLake, match="holds no lake; create one with"):
        lake.require_exists()
    with lake.writing():
        assert not stray.exists()
        with pytest.raises(LakeInUse), Lake(tmp_path).writing():
            pass
