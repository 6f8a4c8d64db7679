"""`penstock put`: bodies, files, dry runs and refused options."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from penstock import embedded

from .transcript import Session


@pytest.mark.parametrize("words", ["hello", "--from jobs.jsonl"])
def test_a_dry_run_puts_nothing(words: str, session: Session) -> None:
    (session.directory / "jobs.jsonl").write_text('"hello"\n')
    assert session.type(f"penstock put a {words} --dry-run") == "would put 1 job into a\n"
    assert json.loads(session.type(f"penstock put a {words} --dry-run --json"))["would_put"] == 1
    assert session.type("penstock tube ls --json") == ""


@pytest.mark.parametrize("option", ["--lines options", "--skip 3", "--batch 10"])
def test_options_of_from_are_refused_with_bodies(option: str, session: Session) -> None:
    said = session.type(f"penstock put a hello {option}")
    assert said == f"penstock: {option.split()[0]} requires --from\n[exit code 2]\n"


@pytest.mark.parametrize("option", ["--as json", "--timeout 3s"])
def test_options_of_bodies_are_refused_with_from(option: str, session: Session) -> None:
    said = session.type(f"penstock put a --from - {option}")
    assert said == f"penstock: {option.split()[0]} cannot be used with --from\n[exit code 2]\n"


def test_a_dry_run_refuses_bad_options(session: Session) -> None:
    assert session.type("penstock put a hello --retry nonsense --dry-run").endswith("[exit code 2]\n")
    assert session.type("penstock put a --from - --retry nonsense --dry-run").endswith("[exit code 2]\n")


def test_ids_are_printed_even_if_a_later_job_is_refused(session: Session) -> None:
    session.type("penstock tube create small --type limfifottl --capacity 2")
    said = session.type("penstock put small 1 2 3").splitlines()
    assert said[:2] == ["ID-1", "ID-2"] and "full" in said[2] and said[3] == "[exit code 4]"


@pytest.mark.parametrize("kind", ["directory"], indirect=True)
@pytest.mark.parametrize(
    ("before", "told"), [(0, "perhaps up to 2 jobs were put"), (1, "put 2 jobs of the first 2 lines, ")]
)
def test_an_interrupted_load_reports_the_batch_in_flight(
    before: int, told: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session.directory / "jobs.jsonl").write_text("1\n2\n3\n4\n")
    real, calls = embedded.Tube.put_many, []

    def interrupted(tube: embedded.Tube, bodies: list[object], **options: object) -> object:
        jobs = real(tube, bodies, **options)  # type: ignore[arg-type]
        calls.append(jobs)
        if len(calls) > before:
            raise KeyboardInterrupt
        return jobs

    monkeypatch.setattr(embedded.Tube, "put_many", interrupted)
    said = session.type("penstock put a --from jobs.jsonl --batch 2")
    assert said.startswith("penstock: interrupted; ") and told in said and said.endswith("[exit code 130]\n")
    assert ("and perhaps up to 2 more; continue with --skip 2" in said) == bool(before)


# ---- Lines -----------------------------------------------------------------------------------------------------------

NO_JOBS = [
    pytest.param('{"body": 1, "retry": "nonsense"}', id="a retry policy that is none"),
    pytest.param(r'{"body": "\ud800"}', id="a body that cannot be written"),
    pytest.param('{"body": 1, "priority": "high"}', id="a priority that is no number"),
    pytest.param('{"body": 1, "delay": null}', id="a delay without end"),
    pytest.param('{"body": 1, "delay": "forever"}', id="a delay without end, in words"),
    pytest.param('{"body": 1, "tube": "b"}', id="another tube"),
    pytest.param('{"body_base64": "?"}', id="bytes that are no base64"),
]


@pytest.mark.parametrize("line", NO_JOBS)
@pytest.mark.parametrize("how", ["", "--dry-run"])
def test_an_invalid_line_is_reported_with_its_number(line: str, how: str, session: Session) -> None:
    (session.directory / "jobs.jsonl").write_text(f'{{"body": 1}}\n{line}\n')
    said = session.type(f"penstock put a --from jobs.jsonl --lines options {how}")
    assert said.startswith("penstock: line 2: ") and said.endswith("[exit code 1]\n"), said
    assert ("put 1 job of the first 1 lines; continue with --skip 1" in said) == (not how)


def test_a_line_that_is_a_body_is_checked(session: Session) -> None:
    (session.directory / "jobs.jsonl").write_text('1\n"\\ud800"\n')
    assert session.type("penstock put a --from jobs.jsonl --dry-run").startswith("penstock: line 2: ")


def test_a_refused_batch_is_reported_with_its_lines(session: Session) -> None:
    (session.directory / "jobs.jsonl").write_text('{"body": 1}\n{"body": 2, "key": "k"}\n\n{"body": 3, "key": "k"}\n')
    said = session.type("penstock put a --from jobs.jsonl --lines options")
    assert said.startswith(
        "penstock: lines 2 to 4: a fifottl tube has no key; use a type that has one, such as utubettl; "
        "put 1 job of the first 1 lines; continue"
    )


@pytest.mark.parametrize("kind", ["directory"], indirect=True)
def test_a_line_may_have_bytes_and_infinite_times(session: Session, place: str) -> None:
    lines = ['{"body_base64": "AP8="}', '{"body": 1, "ttl": null, "ttr": "forever", "tube": "a"}']
    (session.directory / "jobs.jsonl").write_text("\n".join(lines))
    assert session.type("penstock put a --from jobs.jsonl --lines options") == "put 2 jobs into a\n"
    with penstock.open(Path(place)) as queue:
        first, second = queue.tube("a").jobs("ready", 9)
        assert first.body == b"\x00\xff" and second.meta()["ttl"] is None


@pytest.mark.parametrize("command", ["take a", "peek a", "job show ID-1", "job named a n"])
def test_body_and_json_exclude_each_other(command: str, session: Session) -> None:
    session.type("penstock put a hello --name n")
    assert session.type(f"penstock {command} --body --json").endswith("use only one of them\n[exit code 2]\n")
    assert session.type(f"penstock {command} --body") == "hello\n"


def test_at_delays_a_job_until_a_time(session: Session) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds")
    past = (datetime.now() - timedelta(hours=1)).isoformat(timespec="seconds")
    session.type(f"penstock put later x --at {soon}")
    session.type(f"penstock put later y --at {past}")
    (session.directory / "jobs.jsonl").write_text(json.dumps({"body": "z", "at": soon}) + "\n")
    session.type("penstock put later --from jobs.jsonl --lines options")
    said = session.type("penstock tube info later --json")
    assert '"ready": 1,' in said and '"delayed": 2,' in said


def test_a_bad_time_is_refused(session: Session) -> None:
    said = session.type("penstock put later x --at tomorrow")
    assert "'tomorrow' is not a date and time; write 2026-12-24T18:00 (local time)" in said and said.endswith(
        "[exit code 2]\n"
    )
    (session.directory / "jobs.jsonl").write_text('{"body": "z", "at": "tomorrow"}\n')
    said = session.type("penstock put later --from jobs.jsonl --lines options")
    assert "line 1: its at is not a date and time" in said and "nothing was put" in said


def test_a_new_tube_retries_and_create_with_other_options_is_refused(session: Session) -> None:
    session.type("penstock put emails x")
    assert '"retry": "5x exp(1s..10m) jitter then bury"' in session.type("penstock tube info emails --json")
    said = session.type("penstock tube create emails --ttr 30s")
    assert "ttr 5m, not 30s" in said and "`penstock tube alter`" in said and said.endswith("[exit code 4]\n")


@pytest.mark.parametrize("kind", ["directory"], indirect=True)
def test_a_directory_with_other_files_is_refused(session: Session) -> None:
    (session.directory / "thesis").mkdir()
    (session.directory / "thesis" / "chapter-1.tex").touch()
    said = session.type("penstock put a x --dir thesis")
    assert "contains no queue but other files, such as chapter-1.tex" in said and said.endswith("[exit code 4]\n")
