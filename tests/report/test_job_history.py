"""`penstock job history` describes the events of a job in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.core import states as s
from penstock.journal.history.reader import Event
from penstock.report import job_history
from penstock.report.units import duration_text

START_MS = 1_794_808_180_000
TTR_MS = 60_000


class Life:
    """A builder of the journal events of one job."""

    def __init__(self) -> None:
        self.now = START_MS
        self.events: list[Event] = []
        self.deliveries = 0

    def then(self, event: str, after_ms: int, to: str, **more: object) -> Life:
        self.now += after_ms
        self.deliveries += event == "taken"
        before = self.events[-1].after if self.events else "gone"
        told = {"tube": "emails", "job": "D-1", "before": before, "after": to, "deliveries": self.deliveries, **more}
        position = len(self.events) + 1
        self.events.append(Event(position=position, time_ms=self.now, event=event, **told))  # type: ignore[arg-type]
        return self

    def taken(self, after_ms: int, session: int, ttr_ms: int | None = TTR_MS) -> Life:
        wake = None if ttr_ms is None else self.now + after_ms + ttr_ms
        return self.then("taken", after_ms, "taken", session=session, wake_ms=wake)

    def words(self, now_ms: int | None = None) -> list[str]:
        return [line.words for line in job_history.describe(self.events, now_ms)]


def test_the_history_shows_the_time_spent_in_each_state() -> None:
    life = Life().then("put", 0, "ready", expiry_ms=START_MS + 3_600_000).taken(3_200, session=7)
    life.then("disconnected", 41_000, "ready").taken(0, session=8).then("acked", 250, "gone")
    assert life.words() == [
        "put into emails, ttl 1 h",
        "waited 3.2 s",
        "taken by session 7 (delivery 1)",
        "ran 41 s, ttr 1 min",
        "released because its consumer disconnected",
        "taken by session 8 (delivery 2)",
        "ran 250 ms, ttr 1 min",
        "acked, 44 s after it was put",
    ]


def test_a_failure_and_its_consequence_have_no_time_between_them() -> None:
    life = Life().then("put", 0, "ready").taken(0, session=1, ttr_ms=None).then("nacked", 9, "ready", reason="no route")
    life.then("held back", 0, "delayed", reason="no route", wake_ms=life.now + 2_000)
    life.then("delay passed", 2_001, "ready", reason="no route").taken(0, session=1, ttr_ms=None)
    life.then("nacked", 5, "ready", reason="no host").then("exhausted", 0, "buried", reason="no host")
    assert life.words()[2:] == [
        "ran 9 ms",
        "failed because no route",
        "held back by its retry policy, ready in 2 s",
        "was delayed for 2 s",
        "its delay passed",
        "taken by session 1 (delivery 2)",
        "ran 5 ms",
        "failed because no host",
        "buried by its retry policy because no host",
    ]


def test_a_touch_is_part_of_a_run() -> None:
    life = Life().then("put", 0, "ready").taken(0, session=1)
    life.then("touched", 50_000, "taken", wake_ms=life.now + 110_000).then("released", 20_000, "ready")
    assert life.words()[2:] == [
        "touched: it may run for another 1 min",
        "ran 1 min 10 s, ttr 1 min",
        "released",
    ]


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (Life().then("put", 0, "ready"), "has been ready for 5 s"),
        (Life().then("put", 0, "ready").taken(0, session=3), "has been running for 5 s, ttr 1 min"),
        (
            Life().then("put delayed", 0, "delayed", wake_ms=START_MS + 8_000),
            "has been delayed for 5 s, ready in 3 s",
        ),
    ],
)
def test_the_history_of_an_existing_job_ends_with_its_state(life: Life, words: str) -> None:
    assert life.words(START_MS + 5_000)[-1] == words
    assert life.words()[-1] != words


def test_missing_early_history_is_reported() -> None:
    life = Life().then("put", 0, "ready").taken(0, session=1).then("acked", 1_500, "gone")
    told = [line.words for line in job_history.describe(life.events[1:])]
    assert told == ["earlier history is no longer kept", *life.words()[1:3], "acked"]


def test_the_time_in_a_state_is_known_without_the_event_that_began_it() -> None:
    life = Life().then("put", 0, "ready").taken(0, session=1)
    life.then("touched", 1_000, "taken", since_ms=START_MS).then("acked", 500, "gone", since_ms=START_MS)
    assert [line.words for line in job_history.describe(life.events[3:])][1:] == ["ran 1.5 s", "acked"]
    touched = [line.words for line in job_history.describe(life.events[2:3], START_MS + 3_000)]
    assert touched == ["earlier history is no longer kept", "touched", "has been running for 3 s"]


@pytest.mark.parametrize(
    ("name", "user", "by"),
    [("worker-3", "ann", "worker-3 (ann)"), ("worker-3", None, "worker-3"), (None, "ann", "session 35 (ann)")],
)
def test_events_name_the_client_that_caused_them(name: str | None, user: str | None, by: str) -> None:
    acts = {"actor": 35, "actor_name": name, "actor_user": user}
    life = Life().then("put", 0, "ready", expiry_ms=START_MS + 60_000, **acts)
    life.then("taken", 0, "taken", session=35, **acts).then("touched", 0, "taken", wake_ms=START_MS + 1_000, **acts)
    life.then("nacked", 0, "ready", reason="no route", **acts).then("held back", 0, "delayed", **acts)
    life.then("kicked delayed", 0, "ready", **acts).then("claimed", 0, "taken", **acts).then("kept", 0, "done", **acts)
    life.then("deleted", 5, "gone", **acts)
    assert [line.words for line in job_history.describe(life.events) if line.event] == [
        f"put into emails by {by}, ttl 1 min",
        f"taken by {by} (delivery 1)",
        f"touched by {by}: it may run for another 1 s",
        f"failed by {by} because no route",
        "held back by its retry policy",
        f"kicked by {by}",
        f"taken by a claim of {by} (delivery 1)",
        f"acked by {by}, and kept",
        f"deleted by {by}, 5 ms after it was put",
    ]


def test_every_event_has_words() -> None:
    for name in s.EVENT_NAMES:
        event = Event(position=1, time_ms=1, event=name, tube="t", job="D-1", before="gone", after="gone")
        assert job_history.describe([event])[-1].words


def test_lines_begin_with_the_time_of_the_event() -> None:
    life = Life().then("put", 0, "ready").taken(3_200, session=7)
    first, gap, second = job_history.text_lines(job_history.describe(life.events))
    assert first[23:] == "  put into emails" and gap == " " * 25 + "waited 3.2 s" and first[:23] < second[:23]


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (3_250, "3.2 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (725_000, "12 min 5 s"),
        (12_000_000, "3 h 20 min"),
        (86_400_000, "1 d"),
        (187_200_001, "2 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(ms: int, words: str) -> None:
    assert duration_text(ms) == words


# ---- The command -----------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["job", "history", *map(str, arguments)])


@pytest.fixture
def acked(tmp_path: Path) -> str:
    """Return the id of a job that was nacked once and then acked."""
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("emails", "fifottl")
        job = tube.put("hello", ttr=60)
        for finish in ("nack", "ack"):
            taken = tube.take()
            assert taken is not None
            getattr(taken, finish)(*(["no answer"] if finish == "nack" else []))
        return job.id


def test_the_history_of_an_ended_job(tmp_path: Path, acked: str) -> None:
    result = run(acked, "-d", tmp_path / "queue")
    lines = result.output.splitlines()
    assert result.exit_code == 0 and lines[0] == f"Job {acked}"
    told = [line[25:] for line in lines[1:] if line[0] != " "]
    assert told[:4] == [
        "put into emails",
        "taken by session 1 (delivery 1)",
        "failed because no answer",
        "taken by session 1 (delivery 2)",
    ]
    assert told[4].startswith("acked, ") and told[4].endswith(" after it was put") and len(told) == 5
    assert sum("ttr 1 min" in line for line in lines) == 2


def test_history_can_be_read_while_the_queue_is_in_use(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        id = queue.tube("emails").put("hello").id
        result = run(id, "-d", tmp_path / "queue")
    assert result.exit_code == 0 and "has been ready for" in result.output


def test_an_ended_job_is_found_by_its_number_in_its_tube(tmp_path: Path, acked: str) -> None:
    result = run("emails#0", "-d", tmp_path / "queue")
    assert result.exit_code == 0 and result.output == run(acked, "-d", tmp_path / "queue").output
    for id in ("emails#1", "letters#0", "emails#x"):
        assert run(id, "-d", tmp_path / "queue").exit_code == 3


def test_json_has_one_line_per_event_with_its_words(tmp_path: Path, acked: str) -> None:
    lines = [json.loads(line) for line in run(acked, "--dir", tmp_path / "queue", "--json").output.splitlines()]
    assert [line["event"] for line in lines] == ["put", "taken", "nacked", "taken", "acked"]
    assert lines[2]["words"] == "failed because no answer" and lines[0]["body"] == "hello"
    assert all(line["job"] == acked for line in lines)


def test_bad_ids_and_unknown_jobs_are_reported_in_one_sentence(tmp_path: Path, acked: str) -> None:
    result = run("D-nonsense", "-d", tmp_path / "queue")
    assert result.exit_code == 3 and "invalid job id: it is malformed" in result.output
    result = run(acked, "-d", tmp_path / "nowhere")
    assert result.exit_code == 3 and "does not exist" in result.output
    with penstock.open(tmp_path / "queue") as queue:
        id = queue.tube("cache", temporary=True).put("not in the log").id
    result = run(id, "-d", tmp_path / "queue")
    assert result.exit_code == 3 and "the job is unknown" in result.output
