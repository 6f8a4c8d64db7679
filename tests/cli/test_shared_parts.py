"""The shared parts of commands: output, option values, targets and exit codes."""

from __future__ import annotations

import dataclasses
import io
import json
import time
from pathlib import Path

import pytest
import typer

import penstock
from penstock.cli.commands import put
from penstock.cli.commands.tube import TubeFlags, Type
from penstock.cli.contexts import Contexts
from penstock.cli.errors import MEANINGS, exit_code_of
from penstock.cli.imports import line_loader
from penstock.cli.imports.json_lines import read_line
from penstock.cli.option_values import parse_duration, parse_size
from penstock.cli.output import Column, Output, as_text, column
from penstock.cli.records import State
from penstock.cli.targets import DEFAULT_URL, QueueAddress, Target, parse_address
from penstock.core import errors
from penstock.core.policy import PRESETS
from penstock.core.states import STATE_NAMES
from penstock.options import PutOptions, TubeOptions

from .transcript import run

ROWS = [{"name": "a", "jobs": 7, "body": "one\ntwo"}, {"name": "longer", "jobs": 12_345, "body": ""}]
COLUMNS = [column("name"), column("jobs"), Column("body", lambda row: row["body"], wide=True)]


def test_a_table_in_a_pipe_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(ROWS, COLUMNS, "")
    assert capsys.readouterr().out == "NAME     JOBS  BODY\na           7  one\\ntwo\nlonger  12345  -\n"


def test_json_rows_are_printed_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    rows = iter(ROWS)
    Output(json=True).table((row for row in rows if capsys.readouterr().out or row is ROWS[0]), COLUMNS, "")
    assert json.loads(capsys.readouterr().out) == ROWS[1]


def test_a_long_body_is_cut_for_people(place: str) -> None:
    env: dict[str, str | None] = {"PENSTOCK_URL": place}
    id = run(["put", "a", "-"], b"x" * 5_000_000, env)[1].strip()
    for command in (["peek", "a"], ["job", "show", id]):
        out, _, code = run(command, b"", env)
        assert code == 0 and len(out) < 2_000 and out.endswith("x… (5,000,000 characters)\n".encode())
    assert run(["peek", "a", "--body"], b"", env)[0] == b"x" * 5_000_000


def test_a_file_and_a_missing_queue_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, said, code = run(["put", "a", "b", "--dir", f"{tmp_path}/file"], b"", {})
    assert code == 4 and "/file is a file, but a queue is a directory; choose a new" in said
    assert run(["journal", "check", f"{tmp_path}/none"], b"", {})[2] == 3
    with penstock.open(tmp_path / "used"):
        _, said, code = run(["stats", "--dir", f"{tmp_path}/used"], b"", {})
    assert code == 75 and said.count("/used") == 1


@pytest.mark.parametrize("words", [[], ["--oops"], ["oops"], ["tube", "--oops"]])
def test_a_check_with_a_usage_error_is_unknown(words: list[str]) -> None:
    assert run(["check", *words], b"", {})[2] == 3


def test_json_has_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).table(ROWS, COLUMNS, "nothing")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    Output(json=True).table([], COLUMNS, "nothing")
    assert capsys.readouterr() == ("", "")
    Output().table([], COLUMNS, "nothing")
    assert capsys.readouterr() == ("", "nothing\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), ("", "-"), (True, "yes"), (0, "0"), ("\x1b[2J", "\\x1b[2J"), ({"a": "\x07"}, '{"a": "\\u0007"}')],
)
def test_a_value_is_shown_on_one_line_without_control_characters(value: object, shown: str) -> None:
    assert as_text(value) == shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("1.5", 1.5), ("250ms", 0.25), ("5m", 300), ("1d", 86_400), ("forever", float("inf"))],
)
def test_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("read", [parse_duration, parse_size])
@pytest.mark.parametrize("text", ["", "soon", "-2", "1e5", "1_0", " 1", "٣"])
def test_bad_durations_and_sizes_are_refused(read: object, text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is not a (duration|size); write"):
        read(text)  # type: ignore[operator]


def test_every_refusal_has_a_documented_exit_code() -> None:
    kinds: list[type[errors.CommandError]] = [errors.CommandError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert exit_code_of(kind.__new__(kind)) in MEANINGS
    assert exit_code_of(ConnectionRefusedError()) == 75 and exit_code_of(FileNotFoundError()) == 1


def test_every_option_of_puts_and_tubes_is_on_the_command_line() -> None:
    # Programs create batches. `penstock put --batch` is the number of jobs per command.
    assert {field.name for field in dataclasses.fields(put.PutFlags)} == set(PutOptions.__annotations__) - {"batch"}
    assert {field.name for field in dataclasses.fields(TubeFlags)} == set(TubeOptions.__annotations__)
    assert [each.value for each in Type] == list(PRESETS)
    assert [each.value for each in State] == STATE_NAMES[1:]


# ---- Targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("penstock://u:p@h:1,i:2?tls=1", QueueAddress("penstock://u:p@h:1,i:2?tls=1")),
        ("localhost:7712", QueueAddress("penstock://localhost:7712")),
        ("[::1]:7712", QueueAddress("penstock://[::1]:7712")),
        ("/var/jobs", QueueAddress(directory=Path("/var/jobs"))),
        ("file:/var/my%20jobs", QueueAddress(directory=Path("/var/my jobs"))),
        ("file:///var/jobs", QueueAddress(directory=Path("/var/jobs"))),
        ("./jobs", QueueAddress(directory=Path.cwd() / "jobs")),
        ("file:jobs", QueueAddress(directory=Path.cwd() / "jobs")),
    ],
)
def test_a_url_names_a_server_or_a_directory(url: str, place: QueueAddress) -> None:
    assert parse_address(url) == place


def test_a_bare_word_is_refused_because_it_may_be_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, said, code = run(["put", "a", "b", "--url", "localhost"], b"", {})
    assert code == 2 and said.endswith("can be a server or a directory; write localhost:7711 or ./localhost\n")
    (tmp_path / "jobs").mkdir()
    assert parse_address("jobs") == QueueAddress(directory=tmp_path / "jobs")


def test_options_override_the_environment_which_overrides_the_selected_context(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PENSTOCK_URL", "PENSTOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    assert Target().address().url == DEFAULT_URL
    contexts = Contexts({"one": "one:1", "two": "two:2"}, selected="one")
    contexts.save()
    assert Target().address().url == "penstock://one:1"
    monkeypatch.setenv("PENSTOCK_CONTEXT", "two")
    assert Target().address().url == "penstock://two:2"
    monkeypatch.setenv("PENSTOCK_URL", "three:3")
    assert Target().address().url == "penstock://three:3"
    assert Target(context="one").address().url == "penstock://one:1"
    assert Target(directory="x").address().directory == Path.cwd() / "x"


@pytest.mark.parametrize("held", ["{", "[]", '{"contexts": 3}', "{}"])
def test_a_damaged_contexts_file_is_reported(held: str, tmp_path: Path) -> None:
    path = tmp_path / "penstock" / "contexts.json"
    path.parent.mkdir()
    path.write_text(held)
    _, shown, code = run(["context", "ls"], b"", {"XDG_CONFIG_HOME": str(tmp_path)})
    assert code == 1 and str(path) in shown.replace("\n", "") and "damaged" in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("penstock://bob:secret@h:7711", "penstock://bob:***@h:7711"),
        ("penstock://bob:sec/ret@h:7711?tls=1", "penstock://bob:***@h:7711?tls=1"),
        ("penstock://bob:sec@ret@h,i", "penstock://bob:***@h,i"),
        ("penstock://:secret@h", "penstock://:***@h"),
        ("penstock://bob:sec?ret@h", "penstock://bob:***@h"),
        ("penstock://bob:x@sec?ret@h", "penstock://bob:***@h"),
        ("other://bob:secret@h", "other://bob:***@h"),
        ("penstock://bob@h:7711", "penstock://bob@h:7711"),
        ("penstock://h:7711?name=me", "penstock://h:7711?name=me"),
    ],
)
def test_no_password_is_shown(url: str, shown: str, tmp_path: Path) -> None:
    env: dict[str, str | None] = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert shown in run(["context", "add", "a", url], b"", env)[1]
    assert run(["context", "ls"], b"", env)[1].endswith(f"  {shown}\n")


# ---- Loading and benchmarks ------------------------------------------------------------------------------------------


def test_neighbouring_lines_with_equal_options_are_one_batch() -> None:
    text = b"".join(b'{"body": %d, "priority": %d}\n' % (n, n // 4) for n in range(10))
    jobs = line_loader.read_lines(io.BytesIO(text), "a", read_line, 1, {"ttl": 60})
    assert [[line.body for line in some] for some in line_loader.batches(jobs, 3)] == [
        [1, 2, 3],
        [4, 5, 6],
        [7],
        [8, 9],
    ]


def test_a_full_tube_stops_loading_and_skip_continues_it(empty_server: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(20_000)))
    env: dict[str, str | None] = {"PENSTOCK_URL": empty_server}
    assert run(["tube", "create", "big", "--type", "limfifottl", "--capacity", "5500"], b"", env)[2] == 0
    _, shown, code = run(["put", "big", "--from", str(path)], b"", env)
    assert code == 4 and "put 5,000 jobs of the first 5,000 lines; continue with --skip 5000" in shown
    assert run(["tube", "alter", "big", "--capacity", "0"], b"", env)[2] == 0
    _, shown, code = run(["put", "big", "--from", str(path), "--skip", "5000", "--batch", "10000"], b"", env)
    assert code == 0 and "put 15,000 jobs into big" in shown
    with penstock.connect(empty_server) as queue:
        bodies = [job.body["n"] for job in queue.tube("big").jobs("ready", 20_000)]
        assert bodies == list(range(20_000))


@pytest.mark.parametrize("what", ["put", "take", "mixed"])
def test_a_bench_prints_figures_and_leaves_no_tube(what: str, place: str) -> None:
    env: dict[str, str | None] = {"PENSTOCK_URL": place}
    # Long enough for both clients to make a call on a busy machine.
    options = ["--duration", "500ms", "--clients", "2", "--batch", "5", "--size", "1kb"]
    stdout, shown, code = run(["bench", what, "--json", *options], b"", env)
    assert code == 0, shown
    told = json.loads(stdout)
    assert told["jobs"] > 0 and told["jobs"] % 5 == 0 and told["jobs_per_second"] > 0
    assert 0 < told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]
    assert run(["tube", "ls", "--json"], b"", env)[0] == b""


@pytest.mark.parametrize("what", ["take", "mixed"])
def test_a_bench_takes_no_other_jobs_and_leaves_none(what: str, place: str) -> None:
    env: dict[str, str | None] = {"PENSTOCK_URL": place}
    bench = ["bench", what, "--tube", "orders", "--duration", "50ms"]
    assert run(["put", "orders", "a", "b"], b"", env)[2] == 0
    _, said, code = run(bench, b"", env)
    assert code == 2 and said.startswith("penstock: orders has 2 jobs")
    assert run(["peek", "orders", "-n", "9", "--body"], b"", env)[0] == b"a\nb\n"
    assert run(["tube", "truncate", "orders", "--yes"], b"", env)[2] == 0
    assert run(bench, b"", env)[2] == 0
    assert run(["peek", "orders"], b"", env)[2] == 5


def test_a_bench_keeps_its_rate_and_the_given_tube(empty_server: str) -> None:
    env: dict[str, str | None] = {"PENSTOCK_URL": empty_server}
    began = time.monotonic()
    stdout, _, code = run(["bench", "put", "--json", "--rate", "50", "--duration", "1s", "--tube", "mine"], b"", env)
    # The rate allows this many calls in the measured time, which is longer if the process was suspended.
    assert code == 0 and 1 <= json.loads(stdout)["jobs"] <= 50 * (time.monotonic() - began) + 1
    assert run(["tube", "ls", "--names"], b"", env)[0] == b"mine\n"
