"""`penstock demo`: with a utube no domain is visited by two workers at a time, and a violation would be counted."""

from __future__ import annotations

import signal
import socket
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from rich.console import Console

import penstock
from penstock.cli.demos import crawl_demo, crawler, demo_server

from .terminal import Terminal

# A short demo without Spark.
SHORT = """
import sys
sys.modules["pyspark.sql"] = None
from penstock.cli.demos import crawl_demo
run = crawl_demo.run
crawl_demo.run = lambda **options: run(200, **options)
"""
END = " (Ctrl-C ends the demo)\n"


def test_the_demo_finds_no_domain_with_two_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert crawl_demo.run_in_one_process(Console(width=110), pages=400) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no domain was visited by two workers at a time" in shown
    assert "others" in shown and "pages-utube" in shown


def test_without_spark_the_demo_runs_in_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert crawl_demo.run(pages=200) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "(Spark is not installed; install it with: pip install 'penstock-queue[spark]'), so the demo runs without it."
        in shown
    )
    assert "no domain was visited by two workers at a time" in shown


def test_concurrent_visits_are_counted() -> None:
    visits = crawler.Visits()
    visits.enter("a.example")
    visits.enter("a.example")
    visits.leave("a.example")
    visits.enter("b.example")
    assert visits.most == {"a.example": 2, "b.example": 1}


def test_two_workers_on_a_domain_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honestly = crawler.crawl

    def badly(*arguments: object) -> crawler.Visits:
        visits = honestly(*arguments)  # type: ignore[arg-type]
        visits.most["site001.example"] = 2
        return visits

    monkeypatch.setattr(crawler, "crawl", badly)
    assert crawl_demo.run_in_one_process(Console(width=110), pages=200) == 1
    assert "This is a bug" in " ".join(capsys.readouterr().out.split())


def test_pages_follow_zipfs_law_and_are_the_same_in_every_run() -> None:
    pages = crawler.make_pages(5_000)
    assert pages == crawler.make_pages(5_000)
    counts = sorted((sum(page.domain == name for page in pages) for name in {p.domain for p in pages}), reverse=True)
    assert counts[0] > 3 * counts[9]


def test_the_demo_starts_its_own_server_despite_other_servers_and_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        # The settings of another server on this machine.
        taken = str(other.getsockname()[1])
        for setting in ("PORT", "HTTP_PORT", "CLUSTER_PORT"):
            monkeypatch.setenv(f"PENSTOCK_{setting}", taken)
        monkeypatch.setenv("PENSTOCK_REQUIREPASS", "the other's password")
        with demo_server.server(tmp_path / "queue") as url, penstock.connect(url) as queue:
            assert queue.tubes() == []


@pytest.fixture
def demo_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that has the temporary directory of the demo."""
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(home))
    return home


def test_at_a_terminal_the_demo_keeps_the_dashboard_until_ctrl_c(tmp_path: Path, demo_home: Path) -> None:
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 7780)))
        terminal = Terminal(tmp_path, "demo", first=SHORT)
        shown = terminal.until(END)
        assert "no domain was visited by two workers at a time" in " ".join(shown.split())
        address = shown.removesuffix(END).rpartition("Dashboard: ")[2]
        # Port 7780 is in use, so the dashboard has the next free one.
        port = int(address.removeprefix("http://127.0.0.1:"))
        assert 7780 < port < 7800
        with urllib.request.urlopen(f"{address}/api/v1/tubes") as answer:
            assert b"pages-utube" in answer.read()
        terminal.interrupt()
        assert terminal.ended() == 0
    assert list(demo_home.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_the_demo_ends_with_its_terminal(tmp_path: Path, demo_home: Path) -> None:
    terminal = Terminal(tmp_path, "demo", first=SHORT)
    terminal.until(END)
    assert terminal.close() == 128 + signal.SIGHUP
    assert list(demo_home.iterdir()) == []


def test_without_dashboard_the_demo_ends_at_a_terminal(tmp_path: Path, demo_home: Path) -> None:
    terminal = Terminal(tmp_path, "demo", "--no-dashboard", first=SHORT)
    assert "Dashboard" not in terminal.until(" time.\n")
    assert terminal.ended() == 0
    assert list(demo_home.iterdir()) == []


def test_without_a_free_port_the_demo_prints_why_it_shows_no_dashboard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_server, "_is_free", lambda port: False)
    demo_server.show_dashboard(Console(width=110), "penstock://127.0.0.1:1")
    assert capsys.readouterr().out == "The dashboard is not shown: the ports from 7780 to 7799 are in use.\n"
