"""`penstock dlq` reads only the necessary jobs, and reports its progress."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import penstock
from penstock import embedded

from .transcript import run


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Return a queue with many buried jobs."""
    with penstock.open(tmp_path / "queue", fsync="never") as queue:
        tube = queue.tube("orders")
        tube.put_many(range(1_000))
        for job in tube.take_many(1_000):
            job.bury("no stock")
    return str(tmp_path / "queue")


def test_a_redrive_with_a_limit_does_not_read_all_jobs(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, looked = embedded.Job.meta, itertools.count()

    def counted(job: embedded.Job) -> object:
        next(looked)
        return real(job)

    monkeypatch.setattr(embedded.Job, "meta", counted)
    _, said, code = run(["dlq", "redrive", "orders", "--limit", "3", "--yes", "-d", directory], b"", {})
    assert code == 0 and said == "redrove 3 jobs of orders\n"
    assert next(looked) <= 4


def test_an_interrupted_redrive_reports_its_progress(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, dug = embedded.Job.dig, itertools.count(1)

    def interrupted(job: embedded.Job, delay: float = 0) -> None:
        if next(dug) == 8:
            raise KeyboardInterrupt
        real(job, delay)

    monkeypatch.setattr(embedded.Job, "dig", interrupted)
    _, said, code = run(["dlq", "redrive", "orders", "--yes", "-d", directory], b"", {})
    assert code == 130 and said == "redrove 7 jobs of orders\n"


def test_reasons_are_counted(directory: str) -> None:
    out, _, code = run(["dlq", "show", "orders", "--json", "-d", directory], b"", {})
    assert code == 0 and b'"reason": "no stock", "jobs": 1000' in out


def test_a_kick_explains_that_a_buried_job_allows_no_further_delivery(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("mail", "disque")
        tube.put("x", once=True)
        job = tube.take()
        assert job is not None
        job.bury()
    _, said, code = run(["kick", "mail", "-d", str(tmp_path / "queue")], b"", {})
    assert code == 5 and "the buried jobs of mail allow no further delivery" in said
