"""`penstock put`: bodies, files, dry runs and refused options."""

from __future__ import annotations

import json
import re
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


def headers_in(said: str) -> list[dict[str, str] | None]:
    """Return the headers in each line. A session replaces times by words, so the whole line is not JSON."""
    found = [re.search(r'"headers": (\{[^}]*\})', line) for line in said.splitlines()]
    return [None if each is None else json.loads(each[1]) for each in found]


def test_headers_are_put_and_shown(session: Session) -> None:
    assert session.type("penstock put a hello --header tenant=acme -H trace=00-ab=cd -H empty=") == "ID-1\n"
    wanted = {"tenant": "acme", "trace": "00-ab=cd", "empty": ""}
    assert headers_in(session.type("penstock peek a --json")) == [wanted]
    shown = session.type("penstock job show ID-1").splitlines()
    assert [line.split(maxsplit=1)[1] for line in shown if line.startswith("headers")] == [
        "tenant=acme trace=00-ab=cd empty="
    ]
    head, row = session.type("penstock take a").splitlines()
    assert head.split()[-2:] == ["HEADERS", "BODY"] and "tenant=acme trace=00-ab=cd" in row


def test_jobs_without_headers_are_shown_as_before(session: Session) -> None:
    session.type("penstock put a hello")
    assert "headers" not in session.type("penstock job show ID-1") + session.type("penstock peek a --json")
    assert "headers" not in session.type("penstock take a")


@pytest.mark.parametrize("words", ["hello", "hello --dry-run", "--from -"])
@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ("-H tenant", "is not a header; write NAME=VALUE"),
        ("-H =acme", "is not a header; write NAME=VALUE"),
        ("-H a=1 -H b=2 -H a=3", "the header 'a' is given twice"),
        (f"-H long={'x' * 8_192}", "at most 8192 bytes together"),
        (" ".join(f"-H {number}=" for number in range(65)), "at most 64 headers"),
    ],
)
def test_bad_headers_are_refused_and_nothing_is_put(headers: str, told: str, words: str, session: Session) -> None:
    said = session.type(f"penstock put a {words} {headers}")
    assert told in " ".join(said.replace("│", " ").split()) and said.endswith("[exit code 2]\n")
    assert session.type("penstock tube ls --json") == ""


def test_lines_of_a_file_have_headers_for_all_and_their_own(session: Session) -> None:
    lines: list[dict[str, object]] = [
        {"body": 1, "headers": {"n": "own"}},
        {"body": 2},
        {"body": 3, "headers": {"m": "other"}},
    ]
    (session.directory / "jobs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    session.type("penstock put a --from jobs.jsonl --lines options -H n=common")
    found = headers_in(session.type("penstock peek a --count 9 --json"))
    assert found == [{"n": "own"}, {"n": "common"}, {"n": "common", "m": "other"}]
    session.type("penstock import jsonl jobs.jsonl --tube b")
    assert headers_in(session.type("penstock peek b --count 9 --json")) == [{"n": "own"}, None, {"m": "other"}]


def test_jobs_are_found_by_a_header(session: Session) -> None:
    session.type("penstock put a 1 -H tenant=acme")
    session.type("penstock put a 2 -H tenant=globex")
    session.type("penstock put a 3")
    found = session.type("""penstock job find --where 'headers.tenant == "acme"' --json""")
    assert headers_in(found) == [{"tenant": "acme"}] and '"body": "1"' in found


def test_the_history_of_a_job_has_its_headers(session: Session) -> None:
    session.type("penstock put a hello -H tenant=acme")
    assert headers_in(session.type("penstock job history ID-1 --json")) == [{"tenant": "acme"}]
