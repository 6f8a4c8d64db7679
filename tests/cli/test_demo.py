"""The demo shows what it says: with a utube no domain is visited twice at a time, and its counting would notice."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from penstock.cli import crawl, demo


def test_the_demo_ends_with_its_promise_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run_in_one_process(Console(width=110), pages=400) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no domain was ever visited twice at a time" in shown
    assert "others" in shown and "pages-utube" in shown


def test_where_spark_cannot_be_had_the_demo_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert demo.run(pages=200) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Spark cannot be had here (Spark is not installed here: pip install 'penstock[spark]'), so this is" in shown
    assert "no domain was ever visited twice at a time" in shown


def test_two_visits_at_a_time_are_noticed() -> None:
    visits = crawl.Visits()
    visits.enter("a.example")
    visits.enter("a.example")
    visits.leave("a.example")
    visits.enter("b.example")
    assert visits.most == {"a.example": 2, "b.example": 1}


def test_a_broken_promise_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    honestly = crawl.crawl

    def badly(*arguments: object) -> crawl.Visits:
        visits = honestly(*arguments)  # type: ignore[arg-type]
        visits.most["site001.example"] = 2
        return visits

    monkeypatch.setattr(crawl, "crawl", badly)
    assert demo.run_in_one_process(Console(width=110), pages=200) == 1
    assert "this is a bug" in " ".join(capsys.readouterr().out.split())


def test_pages_follow_zipfs_law_and_are_the_same_in_every_run() -> None:
    pages = crawl.make_pages(5_000)
    assert pages == crawl.make_pages(5_000)
    counts = sorted((sum(page.domain == name for page in pages) for name in {p.domain for p in pages}), reverse=True)
    assert counts[0] > 3 * counts[9]
