"""The page of a report in a browser: it draws its charts, loads no other files, and does not execute names as code."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from penstock.cli.commands.pipeline_report import write_page
from penstock.pipeline.gold_reader import GoldReader
from penstock.pipeline.report import report_of
from tests.pipeline.lake_rows import make_lake

DAY = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
WICKED = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"


def everything(tube: str) -> dict[str, list[dict[str, Any]]]:
    """Return rows for every table that a report reads."""
    minutes = [{"tube": tube, "minute": DAY + datetime.timedelta(minutes=number)} for number in range(60)]
    levels = {"ready": 5, "taken": 2, "delayed": 0, "buried": 1, "kept": 0}
    again = {"takes": 9, "redeliveries": 1, "nacked": 1, "ttr_passed": 0, "disconnected": 0, "released": 0}
    waited = {"deliveries": 9, "acks": 8, "wait_ms": 9, "wait_ms_max": 3}
    return {
        "rates": [{**each, "puts": 10, "takes": 9, "acks": 8, "fails": 1} for each in minutes],
        "durations": [{**each, "kind": kind, "bucket": 99, "count": 9} for each in minutes for kind in ("wait", "run")],
        "backlog": [{**each, **levels} for each in minutes],
        "redeliveries": [{**each, **again} for each in minutes],
        "failures": [{"tube": tube, "reason": WICKED, "count": 60, "dead_letters": 3}],
        "fairness": [{"tube": tube, "key": WICKED, "jobs": 9, **waited}],
        "workers": [{"node": "0" * 40, "session": 7, "taken": 540, "acked": 480, "failed": 60, "busy_ms": 9_999}],
        "transitions": [{"tube": tube, "before": "ready", "after": "taken", "count": 540}],
    }


def test_a_report_draws_its_charts_and_escapes_names(browser: Any, tmp_path: Path) -> None:
    tables = everything("emails")
    for name, rows in everything(WICKED).items():
        tables[name] += rows
    report = report_of(GoldReader(make_lake(tmp_path / "lake", {"2026-11-16": tables})))
    path = write_page(report, tmp_path / "report.html", "")

    page = browser.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: told.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('[data-chart] .main-svg').length > 0")

    assert told == [path.as_uri()]
    assert page.evaluate("window.harmed") is None
    sections = page.locator("section")
    assert sections.count() == len(report.sections) == 9
    for number in range(sections.count()):
        section = sections.nth(number)
        assert section.locator(".main-svg").count() > 0, section.inner_text()
        assert section.locator("tbody tr").count() == len(report.sections[number].rows)
    # The charts themselves have the names as text, and lines with points.
    names = page.locator("#rates .legendtext").all_text_contents()
    assert names[0].startswith("</script><script>") and names[1:] == ["emails"]
    assert page.locator("#rates .scatterlayer .point").count() == 4 * 2 * 60
    assert page.locator("#transitions .heatmaplayer image").count() == 1
    page.close()
