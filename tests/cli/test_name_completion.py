"""The Tab key completes tube names and job ids, and errors suggest the closest tube name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, environment

from .transcript import Session


def press_tab(line: str, url: str, **variables: str) -> list[str]:
    """Return the completions of the Tab key in bash at the end of a line."""
    asked = {
        **environment(),
        "PENSTOCK_URL": url,
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], env=asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "line", ["penstock put e", "penstock take e", "penstock tube info e", "penstock job find -t e"]
)
def test_tab_completes_names_of_tubes(empty_server: str, line: str) -> None:
    with penstock.connect(empty_server) as queue:
        for name in ("emails", "exports", "reports"):
            queue.tube(name)
    assert press_tab(line, empty_server) == ["emails", "exports"]


def test_tab_asks_the_server_that_the_line_names(empty_server: str) -> None:
    """An option overrides the environment, as when the command runs."""
    with penstock.connect(empty_server) as queue:
        queue.tube("emails")
    assert press_tab(f"penstock put --url {empty_server} e", f"penstock://127.0.0.1:{free_port()}") == ["emails"]


def test_tab_completes_ids_of_jobs_if_there_are_fewer_than_50(empty_server: str) -> None:
    with penstock.connect(empty_server) as queue:
        tube = queue.tube("emails")
        ids = [job.id for job in tube.put_many(range(49))]
        assert sorted(press_tab("penstock job show ", empty_server)) == sorted(ids)
        assert press_tab(f"penstock ack {ids[7][:30]}", empty_server) == [
            each for each in ids if each[:30] == ids[7][:30]
        ]
        assert ids[7] not in press_tab(f"penstock ack {ids[7]} ", empty_server)
        tube.put("one more")
        assert press_tab("penstock job show ", empty_server) == []


def test_tab_offers_no_name_that_a_shell_would_interpret(empty_server: str) -> None:
    with penstock.connect(empty_server) as queue:
        for name in ("a$(touch x)", "a;b", "a b", "a`b`", "a'b", "a\nb", "a\x1bb", "a*", "a>b", "--all", "a&", "ä.b-c"):
            queue.tube(name)
    assert press_tab("penstock put a", empty_server) == []
    assert press_tab("penstock put ", empty_server) == ["ä.b-c"]


@pytest.mark.parametrize("url", ["penstock://127.0.0.1:{port}", "nonsense://x", "./nowhere"])
def test_tab_completes_nothing_without_a_server(tmp_path: Path, url: str) -> None:
    assert press_tab("penstock put ", url.format(port=free_port())) == []


def test_tab_does_not_open_a_directory(tmp_path: Path) -> None:
    penstock.open(tmp_path / "queue").close()
    before = sorted((entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(tmp_path / "queue"))
    assert press_tab("penstock put ", str(tmp_path / "queue")) == []
    assert sorted((entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(tmp_path / "queue")) == before


@pytest.mark.parametrize(
    "command",
    ["take emials", "peek emials", "tube info emials", "tube pause emials", "kick emials", "job find -t emials"],
)
def test_a_tube_that_does_not_exist_suggests_the_closest_one(session: Session, command: str) -> None:
    session.type("penstock tube create emails")
    shown = session.type(f"penstock {command}")
    assert "there is no tube 'emials'; did you mean 'emails'?" in shown, shown


def test_a_name_without_similar_tubes_has_no_suggestion(session: Session) -> None:
    session.type("penstock tube create emails")
    assert "did you mean" not in session.type("penstock take zzz")
