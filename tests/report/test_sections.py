"""A report shows the sums of gold, and states what it leaves out."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.report.build import build_report
from penstock.report.context import ROWS_MAX, TUBES_MAX
from penstock.report.errors import ReportError
from penstock.report.section import NO_DATA, Report, Section
from penstock.report.source import AuditResult, Finding, NodeLag, Verdict
from penstock.report.targets import parse_target

from .memory_source import DAY, NOW, MemorySource, Rows, minute
from .sample import NODES, bucket_of


def minutes(count: int, tube: str = "emails", **fields: int) -> Rows:
    return [{"tube": tube, "minute": minute(number), **fields} for number in range(count)]


def section(report: Report, name: str) -> Section:
    return next(each for each in report.sections if each.name == name)


def cells(found: Section) -> list[list[Any]]:
    return [[column.cell(row) for column in found.columns] for row in found.rows]


def texts(found: Section) -> list[list[str]]:
    return [[column.text(row) for column in found.columns] for row in found.rows]


def test_rates_are_added_and_include_the_busiest_minute() -> None:
    # Rows with equal keys are parts of one minute.
    rows = [*minutes(3, puts=2, takes=1), *minutes(1, puts=7, fails=1), *minutes(1, tube="quiet", puts=1)]
    report = build_report(MemorySource({"rates": rows}), NOW)
    assert cells(section(report, "rates")) == [["emails", 13, 3, 0, 1, 9], ["quiet", 1, 0, 0, 0, 1]]
    assert ("jobs put", "14") in report.totals
    assert cells(section(build_report(MemorySource({"rates": rows}), NOW, ["quiet"]), "rates")) == [
        ["quiet", 1, 0, 0, 0, 1]
    ]


def test_percentiles_are_computed_from_the_buckets_of_all_minutes() -> None:
    waited = [(0, 12, 90), (60, 5_000, 9), (0, 3_700_000, 1)]
    rows = [
        {"tube": "emails", "minute": minute(at), "kind": "wait", "bucket": bucket_of(ms), "count": count}
        for at, ms, count in waited
    ]
    rows.append({"tube": "emails", "minute": DAY, "kind": "run", "bucket": 0, "count": 1})
    report = build_report(MemorySource({"durations": rows, "rates": minutes(1, puts=1)}), NOW)
    assert texts(section(report, "waits")) == [["emails", "100", "12 ms", "5 s", "5 s", "1 h 1 min"]]
    assert texts(section(report, "runs")) == [["emails", "1", "0 ms", "0 ms", "0 ms", "0 ms"]]


def test_a_target_has_a_line_a_percentile_and_a_used_budget() -> None:
    rows = [
        {"tube": tube, "minute": DAY, "kind": "wait", "bucket": bucket_of(ms), "count": count}
        for tube, ms, count in (("emails", 10, 98), ("emails", 9_000, 2), ("images", 9_000, 1))
    ]
    source = MemorySource({"durations": rows, "rates": [*minutes(1, puts=2), *minutes(1, tube="images", puts=1)]})
    report = build_report(source, NOW, targets=[parse_target("p90=2s")])
    found = section(report, "targets")
    assert texts(found) == [
        ["emails", "p90 ≤ 2 s", "met", "10 ms", "100", "2", "2 %", "10 %", "20 %"],
        ["images", "p90 ≤ 2 s", "missed", "9 s", "1", "1", "100 %", "10 %", "1,000 %"],
    ]
    assert {column.json_key: column.json_value(found.rows[0]) for column in found.columns[-3:]} == {
        **{"slower, %": 2.0, "allowed, %": 10.0},
        "budget used, %": 20.0,
    }
    charts, heatmaps = section(report, "waits").figures
    assert [figure.caption.split()[-1] for figure in charts] == ["(p50)", "(p90)", "(p95)", "(p99)"]
    assert ["target 2 s" in figure.svg for figure in charts] == [False, True, False, False]
    assert ["p90 ≤ 2 s" in figure.svg for figure in heatmaps] == [True, False]  # 2 s is outside of the second one.
    assert not any(each.name == "targets" for each in build_report(source, NOW).sections)


def flow(at: int, ready: int, peak: int, tube: str = "emails") -> dict[str, Any]:
    return {"tube": tube, "minute": minute(at), "node": "n", "position": at, "ready": ready, "ready_peak": peak}


def test_the_backlog_has_the_true_peak_next_to_the_levels() -> None:
    # In the second minute 3,100 jobs are put and most are taken, so that the level at its end is 246.
    source = MemorySource({"flows": [flow(0, 100, 100), flow(1, 146, 3_000), flow(5, -40, 0)]})
    found = section(build_report(source, NOW), "backlog")
    row = {column.heading: column.text(found.rows[0]) for column in found.columns}
    assert row["most ready"] == "3,100" and row["ready at the end"] == "206"
    assert row["most ready at, UTC"] == "2026-11-16 00:01:00"
    ready = found.figures[0][0].svg
    # The peak is a line of its own, and the level is dotted in the minutes without events.
    assert 'class="s0 faint"' in ready and re.search(r'class="s0 held" d="M2 94h3"', ready)


def test_levels_start_with_those_before_the_selected_days() -> None:
    opening = [{"tube": "emails", "ready": 1_000, "buried": 2}]
    source = MemorySource({"flows": [flow(3, -10, 5)]}, opening=opening)
    (row,) = section(build_report(source, NOW), "backlog").rows
    assert (row["ready"], row["ready_peak"], row["buried"]) == (990, 1_005, 2)


def test_minutes_without_events_are_gaps() -> None:
    rates = [each for each in minutes(10, puts=5) if each["minute"] not in (minute(4), minute(5))]
    found = section(build_report(MemorySource({"rates": rates}), NOW), "rates")
    (path,) = re.findall(r'class="s0" d="([^"]*)"', found.figures[0][0].svg)
    assert path == "M0 17l3 0M6 17l3 0"


def test_reasons_with_one_cause_are_one_row_with_examples() -> None:
    failures = [
        {"tube": "emails", "reason": "404", "count": 10, "example_max": 7},
        {"tube": "emails", "reason": "404", "count": 5, "example_max": 9},
        {"tube": "emails", "reason": "failed 3 times, at last: 404", "count": 2, "dead_letters": 2, "example_max": 4},
        {"tube": "emails", "reason": "", "count": 1, "example_max": 0},
    ]
    report = build_report(MemorySource({"failures": failures, "rates": minutes(1)}), NOW)
    assert cells(section(report, "failures")) == [
        ["emails", "404", 17, 2, "9, 4"],
        ["emails", "no reason given", 1, 0, ""],
    ]
    assert ("given up", "2") in report.totals


def test_workers_are_clients_and_a_session_without_a_name_is_a_worker_of_its_own() -> None:
    workers = [
        {"node": NODES[at], "session": session, "taken": taken, "acked": taken, "busy_ms": 90_000}
        for at, session, taken in ((0, 1, 5), (0, 2, 6), (1, 1, 7), (1, 2, 1))
    ]
    sessions = [
        {"node": NODES[0], "session": 1, "name": "old", "user": "ann"},
        {"node": NODES[0], "session": 1, "name": "crawler", "user": "ann"},
        {"node": NODES[1], "session": 1, "name": "crawler", "user": "ann"},
        {"node": NODES[1], "session": 2, "name": "crawler", "user": "bob"},
        {"node": NODES[0], "session": 2, "name": None, "user": None},
    ]
    report = build_report(MemorySource({"workers": workers}, sessions=sessions), NOW)
    assert texts(section(report, "workers")) == [
        ["crawler", "ann", "2", "12", "12", "0", "3 min"],
        [f"session 2 of node {NODES[0][:8]}", "–", "1", "6", "6", "0", "1 min 30 s"],
        ["crawler", "bob", "1", "1", "1", "0", "1 min 30 s"],
    ]


def test_keys_have_their_mean_and_longest_wait() -> None:
    keys = [
        {"tube": "emails", "key": "a", "jobs": 2, "deliveries": 2, "wait_ms": 5_000, "wait_ms_max": 4_000},
        {"tube": "emails", "key": "a", "jobs": 1, "deliveries": 1, "wait_ms": 1_000, "wait_ms_max": 1_000},
        {"tube": "emails", "key": "b", "jobs": 1},
    ]
    report = build_report(MemorySource({"fairness": keys}), NOW)
    assert texts(section(report, "fairness")) == [
        ["emails", "a", "3", "3", "2 s", "4 s"],
        ["emails", "b", "1", "0", "–", "0 ms"],
    ]


def test_the_report_of_a_long_history_with_many_tubes_is_limited() -> None:
    rates = [row for number in range(30) for row in minutes(2_000, tube=f"tube {number:02d}", puts=30 - number)]
    keys = [{"tube": "tube 00", "key": f"key {number}", "jobs": number} for number in range(5_000)]
    report = build_report(MemorySource({"rates": rates, "fairness": keys}), NOW)
    found = section(report, "rates")
    assert len(found.rows) == ROWS_MAX and "24 tubes" in found.note
    assert list(found.legend) == [f"tube {number:02d}" for number in range(TUBES_MAX)]
    assert [row["key"] for row in section(report, "fairness").rows[:2]] == ["key 4999", "key 4998"]
    assert section(report, "fairness").note == "The 20 keys with the most jobs, of 5,000."
    # A point stands for ten minutes, and the values are still per minute.
    assert 'viewBox="0 0 200 100"' in found.figures[0][0].svg and "at most 30," in found.figures[0][0].svg


def test_a_tube_that_only_receives_dead_letters_is_in_the_report() -> None:
    moved = {"tube": "morgue", "before": "elsewhere", "after": "ready", "count": 4}
    report = build_report(MemorySource({"flows": [flow(0, 4, 4, "morgue")], "transitions": [moved]}), NOW, ["morgue"])
    assert report.subtitle == "2026-11-16 00:00:00 to 2026-11-16 00:01:00 UTC · morgue"
    assert [row["ready"] for row in section(report, "backlog").rows] == [4]


def test_a_tube_that_is_not_in_the_lake_is_refused() -> None:
    source = MemorySource({"rates": minutes(1, puts=1)}, tubes=["idle"])
    build_report(source, NOW, ["idle"])
    with pytest.raises(ReportError, match="the lake has no tube 'emials'; its tubes are emails, idle"):
        build_report(source, NOW, ["emials"])
    many = MemorySource(tubes=[f"tube {number:03d}" for number in range(100)])
    with pytest.raises(ReportError, match=r"tube 019 and 80 more$"):
        build_report(many, NOW, ["x"])


def test_the_report_of_an_empty_lake_states_that_there_are_no_events() -> None:
    report = build_report(MemorySource(), NOW, targets=[parse_target("p95=2s")])
    assert report.subtitle == "No events in the selected days and tubes."
    assert not any(each.rows or each.figures for each in report.sections)
    assert section(report, "rates").empty == NO_DATA


@pytest.mark.parametrize(
    ("verdicts", "tone", "headline"),
    [
        (["kept", "kept"], "good", "2 promises kept"),
        (["kept", "not judged"], "good", "1 promise kept, 1 not judged"),
        (["kept", "broken"], "bad", "1 promise broken"),
        (["not judged"], "unknown", "No promise was judged"),
    ],
)
def test_the_verdict_of_the_audit(verdicts: Sequence[Verdict], tone: str, headline: str) -> None:
    result = AuditResult([Finding("p", verdict) for verdict in verdicts], DAY, 41)
    status = section(build_report(MemorySource(verdict=result), NOW), "audit").status
    assert status is not None and (status.tone, status.headline) == (tone, headline)
    assert status.detail == "Audited at 2026-11-16 00:00:00 UTC, turn 41."


@pytest.mark.parametrize(
    ("unread", "tone", "headline", "detail"),
    [
        ([0, 0], "good", "The lake has all events", "The newest event is from"),
        ([0, 1], "late", "1 event is not in the lake yet", "The newest event is from"),
        ([1_000, None], "late", "1,000 events are not in the lake yet", "The newest event is from"),
        ([0, None], "unknown", "The lag is not known", "1 of 2 nodes did not answer. The newest"),
        ([], "unknown", "The lag is not known", "No node was asked."),
    ],
)
def test_the_lag_of_the_lake(unread: list[int | None], tone: str, headline: str, detail: str) -> None:
    lag = [NodeLag(node, count, NOW - datetime.timedelta(minutes=5)) for node, count in zip(NODES, unread)]
    status = section(build_report(MemorySource(lag=lag), NOW), "lag").status
    assert status is not None and (status.tone, status.headline) == (tone, headline)
    assert status.detail.startswith(detail)
    if lag:
        assert status.detail.endswith("is from 2026-11-17 07:55:00 UTC, 5 min before this report.")
