"""The page of a report in a browser: light, dark and on a phone. It runs no code and loads no other files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands.pipeline.report import write_page
from penstock.report.build import build_report
from penstock.report.section import Report
from penstock.report.targets import parse_target
from tests.report.memory_source import NOW, MemorySource
from tests.report.sample import sample
from tests.report.test_page import HOSTILE, hostile

TARGETS = [parse_target("p95=2m")]
# Violations of the Content-Security-Policy are collected from the start of the page.
WATCH = "document.addEventListener('securitypolicyviolation', e => (window.refused ||= []).push(e.violatedDirective))"


SOURCES: dict[str, Callable[[], MemorySource]] = {
    "sample": sample,
    "hostile": hostile,
    "empty": MemorySource,
    "six tubes": lambda: sample([f"tube {number}" for number in range(6)], minutes=60, broken=1),
}


@cache
def report_of(name: str) -> Report:
    return build_report(SOURCES[name](), NOW, targets=TARGETS)


@contextmanager
def opened(browser: Any, name: str, path: Path, **options: Any) -> Iterator[Any]:
    """Open the page of a report. Afterwards, check that it ran and loaded nothing."""
    write_page(report_of(name), path, "")
    context = browser.new_context(**options)
    page = context.new_page()
    page.add_init_script(WATCH)
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: messages.append(request.url))
    page.goto(path.as_uri())
    yield page
    assert messages == [path.as_uri()]
    assert page.evaluate("window.refused") is None and page.evaluate("window.harmed") is None
    context.close()


def test_the_page_draws_its_charts(browser: Any, tmp_path: Path) -> None:
    with opened(browser, "sample", tmp_path / "report.html") as page:
        sections = page.locator("section")
        assert sections.count() == 10
        for number in range(sections.count()):
            assert sections.nth(number).locator("svg.chart").count() > 0
            assert sections.nth(number).locator("tbody tr").count() > 0
        box = page.locator("#rates svg.chart").first.bounding_box()
        line = page.locator("#rates svg.chart path.s0").first.bounding_box()
        # The line fills the chart from the left to the right.
        assert line["width"] > 0.97 * box["width"] and 50 < line["height"] <= box["height"]
        heat = page.locator("#waits .cells path").first.bounding_box()
        assert heat["width"] > 0 and heat["height"] > 0


def test_names_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    with opened(browser, "hostile", tmp_path / "report.html") as page:
        assert HOSTILE[:20] in page.locator("#rates .legend li").first.inner_text()
        assert HOSTILE[:20] in page.locator("#failures svg text").first.text_content()
        assert page.locator("script, img").count() == 0


@pytest.mark.parametrize("name", ["sample", "hostile", "empty"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_fits_into_any_width(browser: Any, tmp_path: Path, name: str, width: int) -> None:
    size = {"width": width, "height": 800}
    with opened(browser, name, tmp_path / "report.html", viewport=size) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Charts over time fit without scrolling.
        for chart in page.locator("svg.chart:not(.matrix)").all():
            box = chart.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width


def luminance(page: Any, selector: str, name: str) -> float:
    """Return the relative luminance of a colour of an element, as WCAG defines it."""
    script = f"getComputedStyle(document.querySelector({selector!r})).{name}"
    channels = [int(each) / 255 for each in page.evaluate(script).removeprefix("rgb(").rstrip(")").split(",")[:3]]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_lines_are_visible_in_both_colour_schemes(browser: Any, tmp_path: Path, scheme: str) -> None:
    with opened(browser, "six tubes", tmp_path / "report.html", color_scheme=scheme) as page:
        card = luminance(page, "section", "backgroundColor")
        assert (card > 0.9) == (scheme == "light")
        texts = [("h2", "color"), ("section p", "color"), ("td", "color"), ("th", "color"), (".chart text", "fill")]
        lines = [(f".chart path.s{number}", "stroke") for number in range(6)]
        needed = [*((each, 4.5) for each in [*texts, (".chart .mark text", "fill")]), *((each, 3.0) for each in lines)]
        for (selector, name), ratio in needed:
            other = luminance(page, selector, name)
            assert (max(card, other) + 0.05) / (min(card, other) + 0.05) >= ratio, selector
        for tone in ("bad", "late"):
            status = luminance(page, f".status.{tone}", "backgroundColor")
            headline = luminance(page, f".status.{tone} b", "color")
            assert (max(status, headline) + 0.05) / (min(status, headline) + 0.05) >= 4.5
