"""A report shows the sums of gold, and states what it leaves out."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.pipeline.gold_reader import GoldReader
from penstock.pipeline.page import page
from penstock.pipeline.report import POINTS_MAX, ROWS_MAX, TUBES_MAX, Report, report_of
from penstock.pipeline.sections import Section

from .lake_rows import Rows, make_lake

DAY = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)


def minutes(count: int, tube: str = "emails", **fields: int) -> Rows:
    moments = [DAY + datetime.timedelta(minutes=number) for number in range(count)]
    return [
        {"tube": tube, "minute": moment, "puts": 0, "takes": 0, "acks": 0, "fails": 0, **fields} for moment in moments
    ]


def section(report: Report, name: str) -> Section:
    return next(each for each in report.sections if each.name == name)


def cells(found: Section) -> list[list[Any]]:
    return [[column.cell(row) for column in found.columns] for row in found.rows]


def test_rates_are_summed_over_days_and_include_the_busiest_minute(tmp_path: Path) -> None:
    days = {
        "2026-11-16": {"rates": [*minutes(3, puts=2, takes=1), *minutes(1, tube="quiet", puts=1)]},
        "2026-11-17": {"rates": minutes(1, puts=7, fails=1)},
    }
    lake = make_lake(tmp_path, days)
    report = report_of(GoldReader(lake))
    assert cells(section(report, "rates")) == [["emails", 13, 3, 0, 1, 7], ["quiet", 1, 0, 0, 0, 1]]
    assert ("jobs put", "14") in report.figures

    of_one_day = report_of(GoldReader(lake, ["emails"], datetime.date(2026, 11, 17)))
    assert cells(section(of_one_day, "rates")) == [["emails", 7, 0, 0, 1, 7]]


def test_percentiles_are_computed_from_the_buckets_of_all_minutes(tmp_path: Path) -> None:
    # Of a hundred wait times, 90 are in bucket 10, nine in bucket 100, and one in bucket 200.
    rows = [
        {"tube": "emails", "minute": DAY, "kind": "wait", "bucket": 10, "count": 90},
        {"tube": "emails", "minute": DAY + datetime.timedelta(hours=1), "kind": "wait", "bucket": 100, "count": 9},
        {"tube": "emails", "minute": DAY, "kind": "wait", "bucket": 200, "count": 1},
        {"tube": "emails", "minute": DAY, "kind": "run", "bucket": 0, "count": 1},
    ]
    report = report_of(
        GoldReader(make_lake(tmp_path, {"2026-11-16": {"durations": rows, "rates": minutes(1, puts=1)}}))
    )
    assert cells(section(report, "waits")) == [["emails", 100, 1.2, 7.1, 7.1]]
    assert cells(section(report, "runs")) == [["emails", 1, 0.0, 0.0, 0.0]]


def test_the_report_of_a_long_history_with_many_tubes_is_limited(tmp_path: Path) -> None:
    tubes = [row for number in range(30) for row in minutes(2_000, tube=f"tube {number:02d}", puts=30 - number)]
    waited = {"deliveries": 1, "acks": 1, "wait_ms": 5, "wait_ms_max": 5}
    keys = [{"tube": "tube 00", "key": f"key {number}", "jobs": number, **waited} for number in range(5_000)]
    report = report_of(GoldReader(make_lake(tmp_path, {"2026-11-16": {"rates": tubes, "fairness": keys}})))
    rates = section(report, "rates")
    assert len(rates.rows) == ROWS_MAX and "24 tubes" in rates.note
    lines = [trace for trace in rates.figure.data if trace.name]
    assert {trace.name for trace in lines} == {f"tube {number:02d}" for number in range(TUBES_MAX)}
    assert all(len(trace.x) <= POINTS_MAX for trace in lines)
    assert sum(lines[0].y) == 30 * 2_000
    assert [row["key"] for row in section(report, "fairness").rows[:2]] == ["key 4999", "key 4998"]


def levels(tube: str, *ready: tuple[int, int]) -> Rows:
    """Return rows of backlog from pairs of a minute and the number of ready jobs from then on."""
    nothing = {"taken": 0, "delayed": 0, "buried": 0, "kept": 0}
    moments = [(DAY + datetime.timedelta(minutes=minute), count) for minute, count in ready]
    return [{"tube": tube, "minute": moment, "ready": count, **nothing} for moment, count in moments]


def test_the_last_level_is_drawn_to_the_end_of_the_chart(tmp_path: Path) -> None:
    rows = [*levels("emails", (0, 0), (2, 5)), *levels("quiet", (0, 3), (1, 7))]
    happened = [*minutes(10, puts=1), *minutes(1, tube="quiet", puts=1)]
    report = report_of(GoldReader(make_lake(tmp_path, {"2026-11-16": {"backlog": rows, "rates": happened}})))
    lines = {trace.name: (trace.x, trace.y) for trace in section(report, "backlog").figure.data[:2]}
    end = DAY + datetime.timedelta(minutes=9)
    for tube, level in (("emails", 5), ("quiet", 7)):
        assert (lines[tube][0][-1], lines[tube][1][-1]) == (end, level)


def test_a_tube_that_only_receives_dead_letters_is_in_the_report(tmp_path: Path) -> None:
    moved = {"tube": "morgue", "before": "elsewhere", "after": "ready", "count": 4}
    flow = {"tube": "morgue", "minute": DAY, "ready": 4, "taken": 0, "delayed": 0, "buried": 0, "kept": 0}
    gold = {"backlog": levels("morgue", (0, 4)), "flows": [flow], "transitions": [moved]}
    report = report_of(GoldReader(make_lake(tmp_path, {"2026-11-16": gold}), ["morgue"]))
    assert report.subtitle.endswith("UTC · morgue")
    assert [list(trace.y) for trace in section(report, "backlog").figure.data] == [[4], [0], [0]]


def test_rows_with_equal_labels_have_separate_bars(tmp_path: Path) -> None:
    done = {"session": 5, "acked": 1, "failed": 0, "busy_ms": 1}
    workers = [{**done, "node": node * 40, "taken": taken} for node, taken in (("a", 2), ("b", 1))]
    reasons = [{"tube": "t", "reason": "x" * 70 + end, "count": 1, "dead_letters": 0} for end in "yz"]
    gold = {"workers": workers, "failures": reasons, "rates": minutes(1)}
    report = report_of(GoldReader(make_lake(tmp_path, {"2026-11-16": gold})))
    for name in ("workers", "failures"):
        figure = section(report, name).figure
        assert len(set(figure.data[0].y)) == 2 == len(figure.layout.yaxis.ticktext)
    assert list(section(report, "workers").figure.layout.yaxis.ticktext) == [
        "aaaaaaaa: session 5",
        "bbbbbbbb: session 5",
    ]


def test_a_tube_that_is_not_in_the_lake_is_refused(tmp_path: Path) -> None:
    make_lake(tmp_path, {"2026-11-16": {"rates": minutes(1, puts=1)}})
    (tmp_path / "_state" / "nodes.json").write_text('{"n": {"since": 1, "tubes": {"idle": {}}}}')
    asked = ["pipeline", "report", "--lake", str(tmp_path), "--no-page", "--tube"]
    assert CliRunner().invoke(app, [*asked, "idle"]).exit_code == 0
    wrong = CliRunner().invoke(app, [*asked, "emials"])
    assert wrong.exit_code == 1 and "has no tube 'emials'; its tubes are emails, idle" in wrong.output


def test_the_report_of_an_empty_lake_states_that_there_are_no_events(tmp_path: Path) -> None:
    report = report_of(GoldReader(make_lake(tmp_path, {})))
    assert report.subtitle == "No events in the selected days and tubes."
    assert not any(each.rows or each.figure for each in report.sections)
    assert "No data for this section in the selected days and tubes." in page(
        report.title, report.subtitle, report.figures, report.sections, ""
    )


def test_terminal_and_json_output_have_the_numbers_of_the_page(tmp_path: Path) -> None:
    make_lake(tmp_path, {"2026-11-16": {"rates": minutes(2, puts=1_234)}})
    shown = CliRunner().invoke(app, ["pipeline", "report", "--lake", str(tmp_path)])
    assert shown.exit_code == 0 and "emails  2468" in shown.output
    assert shown.output.endswith(f"The report is {tmp_path / 'report.html'}\n")
    assert "2,468" in (tmp_path / "report.html").read_text()

    told = CliRunner().invoke(app, ["pipeline", "report", "--lake", str(tmp_path), "--json", "--no-page"])
    line = {"section": "rates", "tube": "emails", "put": 2468, "taken": 0, "acked": 0, "failed": 0}
    assert [json.loads(each) for each in told.output.splitlines()] == [{**line, "put in the busiest minute": 1234}]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--lake", "nowhere"], 1, "nowhere holds no lake; create one with"),
        (["--lake", "nowhere", "--since", "yesterday"], 2, "'yesterday' is not a day; write it as 2026-11-16"),
        ([], 2, "missing option '--lake'"),
    ],
)
def test_invalid_arguments_are_refused_with_one_sentence(arguments: list[str], code: int, words: str) -> None:
    for command in ("report", "whatif"):
        result = CliRunner().invoke(app, ["pipeline", command, *arguments])
        assert result.exit_code == code and words in result.output and result.output.count("\n") == 1
