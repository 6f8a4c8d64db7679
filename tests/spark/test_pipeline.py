"""The pipeline with a real server, a real Spark session and a lake on disk. Turns are slow, so tests share a lake."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.client import commands
from penstock.client.commands import Call
from penstock.core.errors import Trimmed
from penstock.lake.lake import Lake
from penstock.lake.tables import ALL, DERIVED, EVENTS, FLOWS, GOLD, JOBS, SESSIONS, TUBES, TURNS
from penstock.pipeline import steps
from penstock.pipeline.audit import audit
from penstock.pipeline.backfill import backfill
from penstock.pipeline.compact import compact
from penstock.pipeline.judge.judge import PROMISES
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source, unread
from penstock.pipeline.tasks import read_files
from penstock.pipeline.turn import update_derived
from penstock.pipeline.views import merged_rows
from penstock.spark.node import Node
from tests.server.serving import Server, wait_for
from tests.spark.conftest import url_of
from tests.spark.history_model import Model, Row, events_of
from tests.spark.lake_work import contents, jobs, levels, positions, rows_of, sums, work
from tests.spark.synthetic_events import HERE, THERE, History, first_turn, second_turn, take_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATES = ("ready", "taken", "delayed", "buried")


class Interrupted(BaseException):
    """Ends a turn at a step."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own for this module, so that the lake has exactly its history."""
    server = Server(tmp_path_factory.mktemp("history"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def source(server: Server) -> Source:
    return Source((url_of(server),))


@pytest.fixture(scope="module")
def made(spark: SparkSession, server: Server, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A lake that was created in three turns, of which two were interrupted, and the history of the server."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    with lake.writing():
        lake.create("second")
    with penstock.connect(url_of(server), name="worker-1") as queue:
        held = work(queue)
        interrupt(spark, lake, source, "before bronze/events")
        first = once(spark, lake, source)
        # A job that is taken in the first turn is acked in the second.
        held.ack()
        held = work(queue)
        interrupt(spark, lake, source, "after gold/fairness")
        held.ack()
        queue.tube("mail").truncate()
        seen = watch(spark, lake, source)
        counts = {name: queue.tube(name).transitions() for name in queue.tubes()}
        states = {name: queue.tube(name).stats() for name in queue.tubes()}
    return Made(Path(lake.place.uri), first, seen, counts, states, events_of(url_of(server)))


def once(spark: SparkSession, lake: Lake, source: Source) -> int:
    return Pipeline(spark, lake, source).once()


def interrupt(spark: SparkSession, lake: Lake, source: Source, at: str) -> None:
    """Run a turn that ends at a step."""

    def hook(step: str) -> None:
        if step == at:
            raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_hooks", [hook])
        with pytest.raises(Interrupted):
            once(spark, lake, source)


def watch(spark: SparkSession, lake: Lake, source: Source) -> set[str]:
    """Run a turn. At each step, read the lake. Return the different results."""
    root, seen = lake.place.uri, []

    def hook(step: str) -> None:
        if step != "after _turns":
            reader = Lake(root).pin()
            seen.append(repr([reader.rows(table) for table in ALL]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_hooks", [hook])
        once(spark, lake, source)
    assert len(seen) > 2 * len(DERIVED)
    return set(seen)


class Made:
    """A lake, and the counts and the events of the server when it was created."""

    def __init__(
        self, root: Path, first: int, seen: set[str], counts: dict[str, Any], states: dict[str, Any], events: list[Row]
    ) -> None:
        self.root = root
        self.first = first  # Number of events of the first turn.
        self.seen = seen  # What readers saw during the last turn.
        self.counts = counts
        self.states = states
        self.events = events
        self.model = Model(events)

    @property
    def lake(self) -> Lake:
        """The lake as a new reader sees it."""
        return Lake(self.root)

    def copy(self, place: Path) -> Lake:
        return Lake(shutil.copytree(self.root, place))


def test_every_event_is_in_bronze_once_although_turns_were_interrupted(made: Made) -> None:
    assert positions(made.lake) == sorted((row["node"], row["position"]) for row in made.events)
    assert 50 < made.first < len(made.events)
    read = {row["position"]: row for row in rows_of(made.lake, EVENTS)}
    for row in made.events:
        assert {name: read[row["position"]][name] for name in row} == row


def test_gold_equals_the_model(made: Made) -> None:
    lake, model = made.lake, made.model
    for name, keys in (
        ("rates", ("tube", "minute")),
        ("redeliveries", ("tube", "minute")),
        ("transitions", ("tube", "before", "after")),
        ("failures", ("tube", "reason")),
        ("fairness", ("tube", "key")),
        ("workers", ("node", "session")),
        ("durations", ("tube", "minute", "kind", "bucket")),
    ):
        expected = {key: +counts for key, counts in getattr(model, name).items() if +counts}
        assert sums(lake, name, *keys) == expected, name
        assert expected, name
    example = max(row["job"] for row in made.events if row["tube"] == "tired")
    tired = {"count": 4, "dead_letters": 2, "example_max": example}
    assert sums(lake, "failures", "reason", tube="tired") == {("404",): tired}
    assert sums(lake, "rates", tube="mail")[()] == {"puts": 42, "takes": 26, "acks": 22, "fails": 4}


def test_flows_give_the_levels_of_the_server_and_true_peaks(made: Made) -> None:
    found, model = levels(made.lake), made.model
    for tube, states in made.states.items():
        assert [found[tube].get(state, 0) for state in STATES] == [states[state] for state in STATES]
        for state in ("ready", "taken"):
            assert found[tube].get(f"{state}_peak", 0) == model.peaks[tube, state], (tube, state)
    assert model.peaks["mail", "ready"] > model.levels["mail"]["ready"]


def test_transitions_equal_the_lifetime_counts_of_the_server(made: Made) -> None:
    for tube, counts in made.counts.items():
        found = sums(made.lake, "transitions", "before", "after", tube=tube)
        assert {f"{before}-{after}": counted["count"] for (before, after), counted in found.items()} == counts


def test_jobs_equal_the_model_whether_merged_by_spark_or_by_pyarrow(spark: SparkSession, made: Made) -> None:
    lake = made.lake
    expected = [made.model.jobs[key] for key in sorted(made.model.jobs)]
    found = jobs(lake)
    assert found == [{name: row[name] for name in JOBS.arrow.names} for row in expected]
    assert rows_of(lake, JOBS) != found  # Some jobs have parts of several turns.
    by_spark = merged_rows(spark, JOBS, read_files(spark, lake.place, JOBS, lake.files(JOBS))).toArrow()
    by_spark = by_spark.select(JOBS.arrow.names).cast(JOBS.arrow).sort_by([("node", "ascending"), ("job", "ascending")])
    assert by_spark.to_pylist() == found
    assert Counter(job["outcome"] for job in jobs(lake, "mail")) == {"acked": 22, "buried": 2, "truncated": 18}
    open_states = Counter((row["tube"], row["state"]) for row in found if row["state"] != "gone")
    live = {(tube, state): n for tube, states in made.states.items() for state, n in states.items() if n}
    assert open_states == live


def test_sessions_and_the_lives_of_tubes_are_in_bronze(made: Made) -> None:
    assert "worker-1" in {row["name"] for row in rows_of(made.lake, SESSIONS)}
    lives = [row for row in rows_of(made.lake, TUBES) if row["event"] == "made"]
    assert Counter(row["tube"] for row in lives) == dict.fromkeys(made.states, 1)
    assert all(row["policy"] for row in lives)


def test_a_reader_during_a_turn_sees_the_turn_before(made: Made) -> None:
    (seen,) = made.seen
    assert seen != repr([made.lake.pin().rows(table) for table in ALL])
    assert made.lake.pin().rows(EVENTS) == len(made.events)


def test_backfill_computes_the_same_again(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    again = made.copy(tmp_path / "lake")
    assert backfill(spark, again, None) == 0
    assert contents(Lake(again.place.uri)) == contents(made.lake)
    assert all(file.turn == again.turn for table in DERIVED for file in again.files(table))


def test_compaction_leaves_one_file_per_day_and_the_same_rows(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    copy = made.copy(tmp_path / "lake")
    with copy.writing():
        before, after = compact(spark, copy)
    assert before > after
    assert contents(copy) == contents(made.lake) == contents(Lake(copy.place.uri).pin())
    assert positions(copy) == positions(made.lake)
    for table in ALL:
        assert all(len(copy.files(table, [day])) == 1 for day in copy.days(table)), table.path
    # Rows that have equal keys are now one row.
    for table in (JOBS, *(each for each in GOLD if each is not FLOWS)):
        keys = [tuple(row[key] for key in table.keys or ("node", "job", "date")) for row in rows_of(copy, table)]
        assert len(keys) == len(set(keys)), table.path


def test_a_turn_without_new_events_changes_nothing(spark: SparkSession, made: Made, source: Source) -> None:
    lake = made.lake
    once(spark, lake, source)  # The log has rows about sessions after the last event.
    before = [lake.log(table).version for table in (*ALL, TURNS)]
    assert once(spark, lake, source) == 0 and set(unread(lake, source).values()) == {0}
    assert [made.lake.log(table).version for table in (*ALL, TURNS)] == before


def test_an_audit_of_a_correct_history_finds_every_promise_kept_and_adds_no_event_twice(
    spark: SparkSession, made: Made, source: Source, tmp_path: Path
) -> None:
    copy = made.copy(tmp_path / "lake")
    verdict = audit(spark, copy, source)
    assert [finding.name for finding in verdict.findings] == ["coverage", "unchanged", "same", *PROMISES]
    assert {finding.name: finding.examples for finding in verdict.findings if not finding.kept} == {}
    assert verdict.events == len(made.events) == Lake(copy.place.uri).rows(EVENTS)
    assert not verdict.broken and not verdict.cannot_tell


def test_an_audit_of_an_empty_queue_creates_a_lake_and_judges_nothing(
    spark: SparkSession, start: Callable[..., Server], tmp_path: Path
) -> None:
    verdict = audit(spark, Lake(tmp_path / "lake"), Source((url_of(start()),)))
    assert not verdict.broken and verdict.events == 0 and verdict.cannot_tell
    assert {finding.kept for finding in verdict.findings if finding.name in PROMISES} == {None}


# ---- Cases of clusters and claims ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def synthetic(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of synthetic events of two nodes, in two turns."""
    lake = Lake(tmp_path_factory.mktemp("synthetic"))
    history = History()
    first_turn(history)
    seen = len(history.rows)
    for rows in (slice(seen), slice(seen, None)):
        if rows.stop is None:
            second_turn(history)
        take_in(lake, history.rows[rows])
        with lake.writing():
            update_derived(spark, lake)
    return lake


def outcomes(lake: Lake, tube: str) -> Counter[tuple[str, str]]:
    """Return the number of jobs of a tube by node and outcome."""
    return Counter((row["node"], row["outcome"]) for row in jobs(lake, tube))


def test_a_job_with_copies_on_several_nodes_counts_once(synthetic: Lake) -> None:
    assert sums(synthetic, "rates", tube="copied") == {(): {"puts": 4, "takes": 3, "acks": 3}}
    assert levels(synthetic)["copied"]["ready"] == 1
    assert set(levels(synthetic)["copied"]) <= {"ready", "ready_peak", "taken_peak"}
    found = {(HERE, "acked"): 1, (THERE, "acked"): 2, (HERE, "open"): 1, (HERE, "copy"): 2, (THERE, "copy"): 2}
    assert outcomes(synthetic, "copied") == found
    assert levels(synthetic)["by hand"]["delayed"] == 2


def test_a_job_without_its_first_events_counts_in_its_first_known_state(synthetic: Lake) -> None:
    found = levels(synthetic)["met"]
    assert {state: found[state] for state in found if not state.endswith("peak")} == {"taken": 1}
    assert [row["whole"] for row in jobs(synthetic, "met")] == [False, False]


def test_work_of_a_claim_is_not_counted_for_the_session_before_it(synthetic: Lake) -> None:
    workers = sums(synthetic, "workers", "session", node=HERE)
    claimed = next(row for row in jobs(synthetic, "claimed") if row["job"] == 30)
    assert (claimed["session"], claimed["run_ms"], claimed["outcome"]) == (None, 37_000, "acked")
    of_others = {"met": 1, "failed": 4, "claimed": 2, "hasty": 2}
    assert workers[5,]["taken"] == sum(of_others.values())
    assert workers[5,]["acked"] == 0


def test_positions_order_deliveries_in_the_same_millisecond(spark: SparkSession, synthetic: Lake) -> None:
    found = [(job["wait_ms"], job["session"]) for job in jobs(synthetic, "hasty")]
    assert found == [(1000, 5), (1000, 5)]
    by_spark = merged_rows(spark, JOBS, read_files(spark, synthetic.place, JOBS, synthetic.files(JOBS)))
    assert [(job.wait_ms, job.session) for job in by_spark.where("tube = 'hasty'").collect()] == found


def test_redeliveries_count_expired_claims_and_failed_deliveries(synthetic: Lake) -> None:
    why = {"claim_ended": 1, "undelivered": 1, "snatched": 1, "released": 1}
    assert sums(synthetic, "redeliveries", tube="claimed") == {(): {"takes": 5, "redeliveries": 3, **why}}


def test_a_job_is_given_up_for_the_reason_of_its_last_failure(synthetic: Lake) -> None:
    found = sums(synthetic, "failures", "reason", tube="failed")
    assert found == {
        ("no answer",): {"count": 1, "example_max": 40},
        ("ttr passed",): {"count": 1, "dead_letters": 1, "example_max": 40},
        ("no such street",): {"count": 2, "dead_letters": 2, "example_max": 42},
    }


# ---- Gaps ------------------------------------------------------------------------------------------------------------


def test_levels_are_right_if_a_gap_is_within_a_minute(spark: SparkSession, tmp_path: Path) -> None:
    lake, history = Lake(tmp_path), History()
    for job in (1, 2):
        history.tell(job, "put", "ready", job, tube="gapped")
    take_in(lake, history.rows)
    history.tell(1, "acked", "gone", 3, position=10, before_position=8, before="taken")
    history.tell(3, "put", "ready", 4, tube="gapped")
    take_in(lake, history.rows[2:], after_gap=10)
    with lake.writing():
        update_derived(spark, lake)
    # What happened to the second job in the gap is not known.
    assert levels(lake) == {"gapped": {"ready": 1, "ready_peak": 2}}
    backfill(spark, lake, None)
    lake.reload()
    assert levels(lake) == {"gapped": {"ready": 1, "ready_peak": 2}}


def test_history_has_a_gap_only_if_it_was_trimmed_before_it_was_read(
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
        penstock.connect(url_of(server)).close()  # Sessions use positions, too.
    assert once(spark, lake, strict) == 5
    # The rows after the last event are of sessions, and they were read. So nothing is missing.
    assert trim() > max(position for _, position in positions(lake)) + 5
    assert once(spark, lake, strict) == 0
    puts(3)
    read, first = lake.position(node), trim()
    with penstock.connect(url_of(server)) as queue:
        for _ in range(8):
            queue.tube("trimmed").take().ack()
    with pytest.raises(Trimmed, match="is no longer kept"):
        once(spark, lake, strict)
    assert once(spark, lake, Source(strict.urls, gaps=True)) == 16
    found = {finding.name: finding for finding in audit(spark, lake, strict).findings}
    assert [row["what"] for row in found["coverage"].examples] == [f"positions {read} to {first - 1} were never read"]
    # Events before the gap are not judged, so that nothing else is broken.
    assert [name for name, finding in found.items() if finding.broken] == ["coverage"]
    assert len(jobs(lake)) == 8
    # All jobs have ended, also those that were put before the gap.
    assert levels(lake) == {"trimmed": {"ready_peak": 5, "taken_peak": 1}}
    before = contents(lake)
    backfill(spark, lake, None)
    lake.reload()
    assert contents(lake) == before
