"""Files, terminals and command lines"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client.url import address
from penstock.spark import java
from tests.ports import free_port
from tests.security.attempts import attempt
from tests.server.bus_peers import SECRET
from tests.server.raw_clients import Server, serving, wait_until
from tests.server.serving import PATIENCE_S, PENSTOCK, environment, refusals

Needs = Callable[[object, str], None]

# Control characters, and characters that disguise a text: C0, DEL, C1, and marks of the writing direction.
OBEYED = (
    "\x1b[2J\x07\x7f\x85\x9b31m\x9d0;title\x9c\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
SEEN = f"caf\xe9 {OBEYED} \U0001f600 end"

_STRANGER = 12_345  # A user who is neither root nor the present one.


def run(home: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `penstock` to its end."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*PENSTOCK, *words],
        check=False,
        cwd=home,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,
    )


def at_terminal(home: Path, *words: str) -> str:
    """Run `penstock` at a terminal, and return the bytes that the terminal gets."""
    ours, theirs = pty.openpty()
    try:
        env = environment() | {"TERM": "dumb", "COLUMNS": "1000", "XDG_STATE_HOME": str(home)}
        process = subprocess.Popen([*PENSTOCK, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=env)
        os.close(theirs)
        got = b""
        try:
            while piece := os.read(ours, 65_536):
                got += piece
        except OSError:
            pass  # The program has ended.
        process.wait(PATIENCE_S)
        return got.decode().replace("\r\n", "\n")
    finally:
        os.close(ours)


# Terminals


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a job whose tube, key and body contain control characters."""
    with serving(tmp_path_factory.mktemp("shown"), "--iproto-port", "0", "--cluster-port", str(free_port())) as server:
        with penstock.connect(f"penstock://{address('127.0.0.1', server.port)}") as queue:
            queue.tube(SEEN, type="fifottl").put({"text": SEEN})
        yield server


@attempt(
    "put control characters and bidirectional marks into jobs, and wait until a user lists them",
    port="terminal of `penstock`",
    caller="producer of jobs",
    result="escaped, also with --json and --body; the JSON has the same value",
)
@pytest.mark.parametrize(
    "words",
    [
        ["job", "find", "--json"],
        ["job", "find"],
        ["tube", "ls", "--json"],
        ["peek", SEEN, "--body"],
        ["cli", "QPEEK", SEEN, "1"],
        ["check", "tube", SEEN],
        ["journal", "tail", "--json"],
        ["journal", "export"],
        ["tube", "info", f"no {OBEYED} tube"],
    ],
    ids=lambda words: "-".join(word for word in words if word.isascii() and word.isprintable()),
)
def test_a_terminal_gets_nothing_that_it_obeys(server: Server, words: list[str]) -> None:
    home = server.directory
    place = [str(home / "data")] if words[0] == "journal" else ["-u", f"penstock://127.0.0.1:{server.port}"]
    is_cli = words[0] == "cli"
    told = at_terminal(home, *words[:1], *place, *words[1:]) if is_cli else at_terminal(home, *words, *place)
    assert "caf" in told or "tube" in told
    assert not set(told) & set(OBEYED.replace("[2J", "").replace("31m", "").replace("0;title", "")), ascii(told)
    if "--json" in words or words[1] == "export":
        # A program that reads the output gets the original bytes.
        values = repr([json.loads(line) for line in told.splitlines()])
        assert repr(SEEN)[1:-1] in values


# Files


@attempt(
    "write to the log, the process id or the Unix socket of a server",
    port="files",
    caller="other user of the machine",
    result="not writable by others, with any umask, also before daemonize",
)
def test_files_of_a_server_are_not_writable_by_others(tmp_path: Path) -> None:
    (tmp_path / "old.log").touch()
    (tmp_path / "old.log").chmod(0o666)
    ports = ["--port", str(free_port()), "--iproto-port", "0", "--cluster-port", str(free_port())]
    files = ["--dir", "a/b/data", "--pidfile", "node.pid", "--logfile", "../../../old.log", "--unixsocket", "s"]
    assert run(tmp_path, "serve", *ports, *files, "--daemonize", "yes", umask=0).returncode == 0
    data = tmp_path / "a" / "b" / "data"
    process = int((data / "node.pid").read_text())
    try:
        found = [tmp_path / "old.log", *(tmp_path / "a").rglob("*")]
        assert {data / "node.pid", data / "s"} < set(found)
        writable = [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) & 0o002]
        assert writable == []
        assert stat.S_IMODE((data / "s").stat().st_mode) == 0o775
    finally:
        os.kill(process, signal.SIGTERM)
        wait_until(lambda: not (data / "node.pid").exists())


_WATCHED = """
import os, sys
path, seen = sys.argv.pop(1), set()
def watch(event, args):
    try:
        mode = os.lstat(path).st_mode & 0o777
    except OSError:
        return
    if mode not in seen:
        seen.add(mode)
        os.write(2, b"mode %o\\n" % mode)
sys.addaudithook(watch)
from penstock.cli.main import main
main()
"""


@attempt(
    "connect to the Unix socket before it has its permissions",
    port="Unix socket",
    caller="other user of the machine",
    result="it has them from the start",
)
@pytest.mark.parametrize(("mode", "umask"), [("700", 0), ("600", 0), ("770", 0o077)])
def test_a_unix_socket_has_its_permissions_from_the_start(tmp_path: Path, mode: str, umask: int) -> None:
    ports = ["--port", str(free_port()), "--iproto-port", "0", "--cluster-port", str(free_port())]
    words = [sys.executable, "-c", _WATCHED, "data/s", "serve", *ports, "--dir", "data", "--unixsocket", "s"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [*words, "--unixsocketperm", mode], cwd=tmp_path, env=environment(), stdout=out, stderr=err, umask=umask
        )
    try:
        wait_until(lambda: " server started: " in (tmp_path / "out").read_text() or process.poll() is not None)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "err").read_text()
    finally:
        process.kill()
        process.wait()
    seen = [int(line.split()[1], 8) for line in (tmp_path / "err").read_text().splitlines()]
    assert seen[-1] == int(mode, 8)
    assert all(each & ~int(mode, 8) == 0 for each in seen), [oct(each) for each in seen]


@attempt(
    "connect to a Unix socket that all users may write to, on a server without a password",
    port="Unix socket",
    caller="other user of the machine",
    result="such a server does not start, unless protected-mode is no",
)
def test_a_unix_socket_for_all_users_needs_a_password(tmp_path: Path) -> None:
    words = ["--unixsocket", "s", "--unixsocketperm", "777"]
    [(code, told)] = refusals(tmp_path, [*words, "--port", str(free_port())])
    assert code == 2
    assert told.startswith("penstock: unixsocketperm 777 without a password would let all users of this machine in: ")
    others = ["--iproto-port", "0", "--cluster-port", str(free_port())]
    for more in (["--protected-mode", "no"], ["--requirepass", "x"], ["--user", "ann password:x"]):
        directory = tmp_path / more[0]
        directory.mkdir()
        with serving(directory, *words, *others, *more):
            assert stat.S_IMODE((directory / "data" / "s").stat().st_mode) == 0o777


@pytest.fixture
def shared(tmp_path: Path, needs: Needs) -> Path:
    """A directory that all users may write to. Without a sticky bit, Linux itself does not refuse links in it."""
    needs(os.geteuid() == 0, "only root can make files of other users")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


@attempt(
    "place a symbolic link where a server writes its log or its process id",
    port="files",
    caller="other user of the machine",
    result="not followed in a directory that all users may write to",
)
@pytest.mark.parametrize("setting", ["logfile", "pidfile"])
def test_links_of_others_are_not_followed(tmp_path: Path, shared: Path, setting: str) -> None:
    target, link = tmp_path / "precious", shared / "node"
    target.write_text("precious")
    link.symlink_to(target)
    os.lchown(link, _STRANGER, _STRANGER)
    ports = ["--port", str(free_port()), "--iproto-port", "0", "--cluster-port", str(free_port())]
    words = [*ports, "--dir", "data", "--daemonize", "yes", f"--{setting}", str(link)]
    if setting == "logfile":
        ended = run(tmp_path, "serve", *words)
        assert ended.returncode == 1
        assert ended.stderr == f"penstock: {link}: this is a symbolic link of another user; remove it\n"
    else:
        # As always when the process id cannot be written, the server serves.
        assert run(tmp_path, "serve", *words, "--logfile", "log").returncode == 0
        os.kill(int((tmp_path / "data" / "lock").read_text().split()[0]), signal.SIGTERM)
        wait_until(lambda: "shutdown finished" in (tmp_path / "data" / "log").read_text())
        assert "this is a symbolic link of another user" in (tmp_path / "data" / "log").read_text()
    assert target.read_text() == "precious"


@attempt(
    "make the directory first in which the Spark connector keeps its launcher for Java",
    port="files",
    caller="other user of the machine",
    result="not used, unless it belongs to this user only",
)
@pytest.mark.parametrize("trick", ["of another user", "a link", "writable by the group", "a file", "fine", "missing"])
def test_a_directory_that_others_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path, trick: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # The user cannot have a cache directory here.
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    wanted = shared / f"penstock-{os.getuid()}"
    if trick == "a link":
        (shared / "elsewhere").mkdir()
        wanted.symlink_to(shared / "elsewhere")
    elif trick == "a file":
        wanted.touch()
    elif trick != "missing":
        wanted.mkdir(mode=0o700)
    if trick == "of another user":
        os.chown(wanted, _STRANGER, _STRANGER)
    elif trick == "writable by the group":
        wanted.chmod(0o770)
    used = java._cache()
    assert (used == wanted) == (trick in ("fine", "missing"))
    found = used.lstat()
    assert stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == os.getuid()
    shutil.rmtree(used)


# Command lines


@attempt(
    "read passwords of a server in the process list",
    port="process list",
    caller="other user of the machine",
    result="the server warns of it at its start",
)
def test_secrets_on_the_command_line_are_warned_of(tmp_path: Path) -> None:
    def warned(directory: Path) -> list[str]:
        lines = (directory / "log").read_text().splitlines()
        return [line for line in lines if "secret on the command line" in line]

    ports = ["--iproto-port", "0", "--cluster-port", str(free_port())]
    secret = SECRET
    (tmp_path / "flags").mkdir()
    with serving(tmp_path / "flags", *ports, "--requirepass", "s3cret", "--cluster-secret", secret):
        wait_until(lambda: len(warned(tmp_path / "flags")) == 2)
        told = warned(tmp_path / "flags")
        assert all(" warning " in line for line in told)
        assert "flag --requirepass" in told[0] and "PENSTOCK_REQUIREPASS_FILE" in told[0]
        assert "flag --cluster-secret" in told[1] and "PENSTOCK_CLUSTER_SECRET_FILE" in told[1]
        assert "s3cret" not in "".join(told) and secret not in "".join(told)


@attempt(
    "read passwords of a server that has them in files (PENSTOCK_REQUIREPASS_FILE)",
    port="process list",
    caller="other user of the machine",
    result="neither in its command line nor in its environment",
)
def test_secrets_can_be_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("PENSTOCK_REQUIREPASS_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("PENSTOCK_CLUSTER_SECRET_FILE", str(tmp_path / "secret"))
    words = ["--iproto-port", "0", "--cluster-port", str(free_port())]
    with serving(tmp_path, *words, is_forked=False) as server:
        with server.client() as client:
            assert client.ask("AUTH", "s3cret") == b"OK"
            assert client.ask("CONFIG", "GET", "cluster-secret") == [b"cluster-secret", b"***"]
        assert "secret on the command line" not in server.log.read_text()
        for name in ("cmdline", "environ"):
            assert b"s3cret" not in Path(f"/proc/{server.process.pid}/{name}").read_bytes()
    shown = subprocess.run(
        [*PENSTOCK, "config", "show", "--json", "--origin"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(shown.stdout)["requirepass"]["origin"] == "environment PENSTOCK_REQUIREPASS_FILE"
