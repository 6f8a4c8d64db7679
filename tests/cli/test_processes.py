"""The command line as a process of its own: on a terminal, in a pipe, interrupted, and when its server goes away."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli.nodes import node_at
from penstock.cli.target import Target
from tests.ports import free_port

from .transcript import run

PENSTOCK = [sys.executable, "-m", "penstock"]
PATIENCE_S = 20


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "NO_COLOR"))}
    homes = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    return {**kept, **homes, "COLUMNS": "100", "TERM": "xterm"}


def on_terminal(words: list[str], env: dict[str, str], typed: bytes = b"") -> tuple[str, int]:
    """What a command shows on a terminal, where something may be typed, and its exit code."""
    master, slave = pty.openpty()
    with subprocess.Popen([*PENSTOCK, *words], stdin=slave, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        os.write(master, typed)
        shown = b""
        with contextlib.suppress(OSError):  # That is how the end of a terminal is told.
            while select.select([master], [], [], PATIENCE_S)[0] and (some := os.read(master, 65536)):
                shown += some
        os.close(master)
        return shown.decode(), process.wait(PATIENCE_S)


def test_on_a_terminal_there_are_tables_and_questions(empty_server: str, env: dict[str, str]) -> None:
    with penstock.connect(empty_server) as queue:
        id = queue.tube("emails").put("\x1b[31m[red]a[/red]" + "x" * 200).id
    shown, code = on_terminal(["peek", "emails", "-u", empty_server], env)
    assert code == 0 and "\x1b[1mTUBE" in shown and f"{id}  emails  ready" in shown  # Bold headings, nothing cut
    assert "\\x1b[31m[red]a[/red]x" in shown and "x…" in shown  # but the body, at the edge. Nothing obeyed.
    shown, code = on_terminal(["peek", "emails", "-u", empty_server], env | {"COLUMNS": "40"})
    assert f"{id}  emails  ready" in shown  # Rather on two lines than cut.
    shown, code = on_terminal(["tube", "truncate", "emails", "-u", empty_server], env, b"n\n")
    assert code == 1 and "Remove 1 job of emails? [y/N]" in shown and "nothing was done" in shown
    shown, code = on_terminal(["tube", "truncate", "emails", "-u", empty_server], env | {"NO_COLOR": "1"}, b"y\n")
    assert code == 0 and "removed 1 job of emails" in shown and "\x1b[" not in shown


def test_on_a_terminal_how_far_a_file_came_stays_when_the_bar_goes(
    empty_server: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text("1\n2\n{\n")
    shown, code = on_terminal(["put", "a", "--from", f"{tmp_path}/jobs", "--batch", "1", "-u", empty_server], env)
    assert code == 1 and "putting" in shown
    assert "\x1b[2K" not in shown.partition("continue with --skip 2")[2], "the bar was taken away behind the sentence"
    assert "continue with --skip 2" in shown


def test_on_a_terminal_what_is_said_while_a_bar_runs_stands_above_it(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text('{"tube": "a", "body": 1}\n{"tube": "a"}\n')
    shown, code = on_terminal(["import", "jsonl", f"{tmp_path}/jobs", "--into", f"{tmp_path}/queue"], env)
    assert code == 1 and "importing" in shown
    assert re.search(r"(^|[\nK])penstock: line 2: ", shown), "it stands behind the bar"


def test_on_a_terminal_simulations_show_how_many_are_through(env: dict[str, str]) -> None:
    small = ["--set", "nodes=1", "--set", "jobs=5", "--set", "replicate=1", "--set", "nemeses="]
    shown, code = on_terminal(["sim", "--seed", "3", "--seeds", "2", *small], env)
    assert code == 0 and "2/2" in shown.partition("2 seeds, 0 failed")[0]


def test_a_reader_that_has_read_enough_is_no_error(empty_server: str, env: dict[str, str]) -> None:
    with penstock.connect(empty_server) as queue:
        queue.tube("many").put_many(["x" * 1_000] * 500)
    command = [*PENSTOCK, "job", "find", "--limit", "0", "--json", "-u", empty_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["tube"] == "many"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


def test_ctrl_c_ends_it_quietly_with_130(empty_server: str, env: dict[str, str]) -> None:
    with penstock.connect(empty_server) as queue:
        tube = queue.tube("quiet")
        command = [*PENSTOCK, "take", "quiet", "--timeout", "forever", "-u", empty_server]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as process:
            wait_for(lambda: tube.info()["waiting"] == 1)
            # It has asked. Python notices a signal that comes a moment before it waits for the answer only after that.
            status = Path(f"/proc/{process.pid}/status")
            wait_for(lambda: "State:\tS" in status.read_text())
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=PATIENCE_S)[0] == b""
            assert process.returncode == 130


def test_what_one_process_took_the_next_may_ack(empty_server: str, env: dict[str, str], tmp_path: Path) -> None:
    with penstock.connect(empty_server) as queue:
        queue.tube("emails").put("hello")
        taken = subprocess.run(
            [*PENSTOCK, "take", "emails", "--json", "-u", empty_server], stdout=subprocess.PIPE, env=env, check=True
        )
        (kept,) = (tmp_path / "state" / "penstock" / "sessions").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        job = json.loads(taken.stdout)["id"]
        # Without the file it is somebody else.
        stranger = env | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
        assert run(["ack", job, "-u", empty_server], b"", dict(stranger))[2] == 4
        assert run(["ack", job, "-u", empty_server], b"", dict(env))[2] == 0
        assert queue.tube("emails").stats()["taken"] == 0


def test_what_is_held_no_longer_goes_back(place: str, env: dict[str, str], tmp_path: Path) -> None:
    stranger = env | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    assert run(["tube", "create", "emails", "--type", "fifottl", "-u", place], b"", dict(env))[2] == 0
    assert run(["put", "emails", "hello", "-u", place], b"", dict(env))[2] == 0
    assert run(["take", "emails", "--hold", "10ms", "-u", place], b"", dict(env))[2] == 0
    assert run(["take", "emails", "--timeout", "10s", "--ack", "-u", place], b"", dict(stranger))[2] == 0


def test_a_later_take_does_not_shorten_the_hold_of_an_earlier_one(
    place: str, env: dict[str, str], tmp_path: Path
) -> None:
    stranger = env | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    assert run(["put", "emails", "a", "b", "-u", place], b"", dict(env))[2] == 0
    for hold, body in (("1h", b"a"), ("10ms", b"b")):
        taken, _, code = run(["take", "emails", "--hold", hold, "--body", "-u", place], b"", dict(env))
        assert code == 0 and taken.strip() == body
    assert run(["take", "emails", "--timeout", "300ms", "-u", place], b"", dict(stranger))[2] == 5
    # Nor do the commands that follow.
    assert run(["ack", "emails#1", "-u", place], b"", dict(env))[2] == 0
    assert run(["take", "emails", "--timeout", "300ms", "-u", place], b"", dict(stranger))[2] == 5


# ---- Servers that are none, or are gone ------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Something that listens and answers the same to whatever it is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(65536)
                        client.sendall(answer)
                        client.shutdown(socket.SHUT_WR)
                        client.recv(65536)

        threading.Thread(target=serve, daemon=True).start()
        yield f"penstock://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="a web server"),
        pytest.param(
            b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n8.0.0\r\n" + b"-ERR unknown\r\n" * 3,
            id="a Redis",
        ),
        pytest.param(b"\x00\xff" * 100, id="noise"),
        pytest.param(b"", id="silence"),
    ],
)
def test_what_is_no_penstock_is_told_in_a_sentence(answer: bytes, env: dict[str, str]) -> None:
    with answering(answer) as url:
        _, shown, code = run(["stats", "-u", url], b"", dict(env))
    assert code in (1, 75) and shown.startswith("penstock: ") and shown.count("\n") == 1
    assert "Traceback" not in shown and "bug" not in shown


@contextlib.contextmanager
def own_server(directory: Path, *settings: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = free_port()
    command = [*PENSTOCK, "serve", "--port", str(port), "--dir", str(directory), *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None and "server started: " in process.stdout.readline()
        try:
            yield f"127.0.0.1:{port}", process
        finally:
            process.kill()


def test_a_password_is_asked_for_and_a_server_that_goes_is_missed(env: dict[str, str], tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--requirepass", "s3cret", "--fsync", "never") as (address, process):
        for url in (f"penstock://{address}", f"penstock://:wrong@{address}"):
            _, shown, code = run(["stats", "-u", url], b"", dict(env))
            assert code == 4 and "password" in shown and shown.count("\n") == 1
        url = f"penstock://:s3cret@{address}?retry_for=0"
        assert run(["put", "emails", "hello", "-u", url], b"", dict(env))[2] == 0

        # It is killed while a file is loaded: what is certain is told, and how to go on.
        lines, feed = os.pipe()
        command = [*PENSTOCK, "put", "load", "--from", "-", "--batch", "10", "-u", url]
        with subprocess.Popen(command, stdin=lines, stderr=subprocess.PIPE, env=env, text=True) as loading:
            os.close(lines)
            os.write(feed, b"1\n" * 25)
            with penstock.connect(url) as queue:
                wait_for(lambda: queue.stats().get("load", {}).get("ready") == 20)
            process.kill()
            process.wait()
            os.write(feed, b"1\n" * 25)
            os.close(feed)
            _, told = loading.communicate(timeout=PATIENCE_S)
        assert loading.returncode == 75 and told.startswith("penstock: ") and told.count("\n") == 1
        assert "put 20 jobs of the first 20 lines, and perhaps up to 10 more; continue with --skip 20" in told
        assert run(["stats", "-u", url], b"", dict(env))[2] == 75


def test_a_bench_whose_clients_are_not_let_in_says_why(env: dict[str, str], tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--max-clients", "3", "--fsync", "never") as (address, _):
        _, said, code = run(
            ["bench", "put", "--clients", "6", "-u", f"penstock://{address}?retry_for=0"], b"", dict(env)
        )
    # Whether the refusal or the end of the connection is heard first is up to the network.
    assert code in (4, 75) and said.startswith("penstock: ") and "bug" not in said, said


@pytest.mark.parametrize(
    ("words", "code"), [("--oops 1", 2), ("--hz many", 2), ("HERE/node.toml", 2), ("--dir HERE/used", 75)]
)
def test_a_server_that_cannot_start_ends_with_the_documented_code(
    words: str, code: int, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "node.toml").write_text("oops = 1\n")
    command = [*PENSTOCK, "serve", *words.replace("HERE", str(tmp_path)).split(), "--port", str(free_port())]
    with penstock.open(tmp_path / "used"):
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == code and ended.stderr.startswith("penstock: "), ended.stderr


def test_another_node_is_asked_with_the_password_as_it_was_written(tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--requirepass", "s3/c@ret") as (address, _):
        target = Target(url=f"penstock://:s3/c@ret@{address}?name=me")
        with node_at(target, {"flags": [], "address": address}) as node:
            assert node.execute("PING") in ("PONG", b"PONG")


def test_a_directory_that_is_in_use_is_left_alone(env: dict[str, str], tmp_path: Path) -> None:
    directory = str(tmp_path / "queue")
    with penstock.open(directory) as queue:
        job = queue.tube("emails").put("hello")
        _, shown, code = run(["stats", "-d", directory], b"", dict(env))
        assert code == 75 and "pid" in shown
        assert run(["job", "history", job.id, "-d", directory], b"", dict(env))[2] == 0


def wait_for(condition: object) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


# ---- The shell -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    stdout, _, code = run(["completion", shell], b"", {})
    assert code == 0 and b"_PENSTOCK_COMPLETE" in stdout


def test_the_tab_key_completes_commands_options_and_contexts(env: dict[str, str]) -> None:
    assert run(["context", "add", "production", "prod.example:7711"], b"", dict(env))[2] == 0
    for words, expected in [
        ("penstock tu", "tube"),
        ("penstock put --prio", "--priority"),
        ("penstock context select p", "production"),
    ]:
        asked = env | {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(PENSTOCK, env=asked, capture_output=True, text=True, check=False)
        assert expected in done.stdout.split(), done.stderr
