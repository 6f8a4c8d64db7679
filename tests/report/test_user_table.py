"""The section of a table that a user has defined."""

from __future__ import annotations

import datetime

import pyarrow as pa

from penstock.report.build import build_report
from penstock.report.page import page
from penstock.report.source import UserTable

from .memory_source import DAY, NOW, MemorySource


def test_a_table_of_a_user_is_shown_merged_and_for_the_selected_tubes() -> None:
    hour = DAY.replace(hour=9)
    rows = [
        {"date": DAY.date(), "tube": "mail", "hour": hour, "jobs": 2, "wait_ms_max": 7},
        {"date": DAY.date() + datetime.timedelta(days=1), "tube": "mail", "hour": hour, "jobs": 3, "wait_ms_max": 5},
        {"date": DAY.date(), "tube": "calls", "hour": hour, "jobs": 9, "wait_ms_max": 0},
    ]
    table = UserTable("slow_waits", "Who waits?", ["tube", "hour"], ["jobs", "wait_ms_max"], pa.Table.from_pylist(rows))
    source = MemorySource(user_tables=[table], tubes=["mail", "calls"])
    section = build_report(source, NOW).sections[-1]
    assert (section.title, section.question) == ("Slow waits", "Who waits?")
    assert [(row["tube"], row["jobs"], row["wait_ms_max"]) for row in section.rows] == [("calls", 9, 0), ("mail", 5, 7)]
    report = build_report(source, NOW, tubes=["mail"])
    assert [row["tube"] for row in report.sections[-1].rows] == ["mail"]
    assert "Who waits?" in page(report, "")
