"""The command line as a process: on a terminal, in a pipe, interrupted, and with a lost server."""

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
from penstock.cli.cluster_nodes import connect_to_node
from penstock.cli.targets import Target
from tests.ports import free_port

from .transcript import run

PENSTOCK = [sys.executable, "-m", "penstock"]
PATIENCE_S = 20


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment with its own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "NO_COLOR"))}
    homes = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    return {**kept, **homes, "COLUMNS": "100", "TERM": "xterm"}


def on_terminal(words: list[str], env: dict[str, str], typed: bytes = b"") -> tuple[str, int]:
    """Run a command on a terminal and type `typed`. Return its output and exit code."""
    master, slave = pty.openpty()
    with subprocess.Popen([*PENSTOCK, *words], stdin=slave, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        os.write(master, typed)
        shown = b""
        with contextlib.suppress(OSError):  # Reading a closed terminal raises OSError.
            while select.select([master], [], [], PATIENCE_S)[0] and (some := os.read(master, 65536)):
                shown += some
        os.close(master)
        return shown.decode(), process.wait(PATIENCE_S)


def test_a_terminal_gets_tables_and_questions(empty_server: str, env: dict[str, str]) -> None:
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


def test_the_message_about_progress_stays_when_the_bar_disappears(
    empty_server: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text("1\n2\n{\n")
    shown, code = on_terminal(["put", "a", "--from", f"{tmp_path}/jobs", "--batch", "1", "-u", empty_server], env)
    assert code == 1 and "putting" in shown
    assert "\x1b[2K" not in shown.partition("continue with --skip 2")[2], "the bar was taken away behind the sentence"
    assert "continue with --skip 2" in shown


def test_messages_are_printed_above_a_running_bar(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text('{"tube": "a", "body": 1}\n{"tube": "a"}\n')
    shown, code = on_terminal(["import", "jsonl", f"{tmp_path}/jobs", "--into", f"{tmp_path}/queue"], env)
    assert code == 1 and "importing" in shown
    assert re.search(r"(^|[\nK])penstock: line 2: ", shown), "it stands behind the bar"


def test_simulations_show_their_progress_on_a_terminal(env: dict[str, str]) -> None:
    small = ["--set", "nodes=1", "--set", "jobs=5", "--set", "replicate=1", "--set", "nemeses="]
    shown, code = on_terminal(["sim", "--seed", "3", "--seeds", "2", *small], env)
    assert code == 0 and "2/2" in shown.partition("2 seeds, 0 failed")[0]


def test_a_closed_pipe_is_not_an_error(empty_server: str, env: dict[str, str]) -> None:
    with penstock.connect(empty_server) as queue:
        queue.tube("many").put_many(["x" * 1_000] * 500)
    command = [*PENSTOCK, "job", "find", "--limit", "0", "--json", "-u", empty_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["tube"] == "many"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0


def test_ctrl_c_exits_with_130_and_without_output(empty_server: str, env: dict[str, str]) -> None:
    with penstock.connect(empty_server) as queue:
        tube = queue.tube("quiet")
        command = [*PENSTOCK, "take", "quiet", "--timeout", "forever", "-u", empty_server]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env) as process:
            wait_for(lambda: tube.info()["waiting"] == 1)
            # Wait until it reads the answer. Python would handle an earlier signal only after the answer.
            status = Path(f"/proc/{process.pid}/status")
            wait_for(lambda: "State:\tS" in status.read_text())
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=PATIENCE_S)[0] == b""
            assert process.returncode == 130


def test_a_process_can_ack_a_job_that_an_earlier_one_took(
    empty_server: str, env: dict[str, str], tmp_path: Path
) -> None:
    with penstock.connect(empty_server) as queue:
        queue.tube("emails").put("hello")
        taken = subprocess.run(
            [*PENSTOCK, "take", "emails", "--json", "-u", empty_server], stdout=subprocess.PIPE, env=env, check=True
        )
        (kept,) = (tmp_path / "state" / "penstock" / "sessions").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        job = json.loads(taken.stdout)["id"]
        # Without the token file it is another session.
        stranger = env | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
        assert run(["ack", job, "-u", empty_server], b"", dict(stranger))[2] == 4
        assert run(["ack", job, "-u", empty_server], b"", dict(env))[2] == 0
        assert queue.tube("emails").stats()["taken"] == 0


def test_jobs_are_returned_after_the_hold_time(place: str, env: dict[str, str], tmp_path: Path) -> None:
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
    # The next commands do not shorten it either.
    assert run(["ack", "emails#1", "-u", place], b"", dict(env))[2] == 0
    assert run(["take", "emails", "--timeout", "300ms", "-u", place], b"", dict(stranger))[2] == 5


# ---- Other servers and lost servers ----------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Run a listener that sends the same answer to every request."""
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
def test_other_servers_are_reported_in_one_sentence(answer: bytes, env: dict[str, str]) -> None:
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


def test_a_missing_password_and_a_lost_server_are_reported(env: dict[str, str], tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--requirepass", "s3cret", "--fsync", "never") as (address, process):
        for url in (f"penstock://{address}", f"penstock://:wrong@{address}"):
            _, shown, code = run(["stats", "-u", url], b"", dict(env))
            assert code == 4 and "password" in shown and shown.count("\n") == 1
        url = f"penstock://:s3cret@{address}?retry_for=0"
        assert run(["put", "emails", "hello", "-u", url], b"", dict(env))[2] == 0

        # The server is killed during a load. The error names the jobs that were put, and how to continue.
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


def test_a_bench_reports_why_its_clients_are_refused(env: dict[str, str], tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--max-clients", "3", "--fsync", "never") as (address, _):
        _, said, code = run(
            ["bench", "put", "--clients", "6", "-u", f"penstock://{address}?retry_for=0"], b"", dict(env)
        )
    # The refusal or the end of the connection may arrive first.
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


def test_another_node_gets_the_password_of_the_url(tmp_path: Path) -> None:
    with own_server(tmp_path / "server", "--requirepass", "s3/c@ret") as (address, _):
        target = Target(url=f"penstock://:s3/c@ret@{address}?name=me")
        with connect_to_node(target, {"flags": [], "address": address}) as node:
            assert node.execute("PING") in ("PONG", b"PONG")


def test_a_directory_in_use_is_not_opened(env: dict[str, str], tmp_path: Path) -> None:
    directory = str(tmp_path / "queue")
    with penstock.open(directory) as queue:
        job = queue.tube("emails").put("hello")
        _, shown, code = run(["stats", "-d", directory], b"", dict(env))
        assert code == 75 and "pid" in shown
        assert run(["job", "history", job.id, "-d", directory], b"", dict(env))[2] == 0


def wait_for(condition: object) -> None:
    """Wait until the condition is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


# ---- The shell -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script(shell: str) -> None:
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
