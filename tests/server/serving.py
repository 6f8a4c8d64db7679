"""A server in its own process, and connections that show the raw bytes it sends."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import penstock
from tests.ports import free_port

from .forked_servers import Forked

# Much longer than any operation takes. A test that waits this long has lost a reply.
PATIENCE_S = 20.0

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
_ERROR = re.compile(r"^\S+Z error |^Traceback", re.MULTILINE)

Word = bytes | str | int


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until `condition()` is true, and return its value."""
    until = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.005)
    return answer


def is_left(left_ms: int, of_s: float, since: float) -> bool:
    """Return whether `left_ms` can be left of a period of `of_s` that began at the monotonic time `since` or later."""
    return (of_s + since - time.monotonic()) * 1000 - 2 <= left_ms <= of_s * 1000


# ---- Bytes -----------------------------------------------------------------------------------------------------------


class Refusal(Exception):
    """An error reply without its minus sign."""


def command(*words: Word) -> bytes:
    """Return a command as clients send it."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"".join([b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)])


def bulks(*items: Word) -> bytes:
    """Return an array of bulk strings, which is also the form of a command."""
    return command(*items)


def read_reply(file: BinaryIO) -> bytes:
    """Return the raw bytes of one complete reply, or nothing at the end of the connection."""
    line = file.readline()
    kind, rest = line[:1], line[1:-2]
    if kind in (b"$", b"*", b"%") and rest != b"-1":
        if kind == b"$":
            return line + file.read(int(rest) + 2)
        return line + b"".join(read_reply(file) for _ in range(int(rest) * (2 if kind == b"%" else 1)))
    return line


def decoded(raw: bytes) -> Any:
    """Return the value of a reply: bytes, a number, None, a list or a dict."""
    return _decode(io.BytesIO(raw))


def _decode(file: BinaryIO) -> Any:
    line = file.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return Refusal(rest.decode())
    if kind == b"_" or (kind in (b"$", b"*") and rest == b"-1"):
        return None
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return file.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_decode(file) for _ in range(int(rest))]
    if kind == b"%":
        return {_decode(file): _decode(file) for _ in range(int(rest))}
    assert kind == b"+", line
    return rest


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    """Return a flat list of names and values, as of SHOW and QSTAT, as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Wire:
    """A connection over RESP."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._file = self.socket.makefile("rb")

    @property
    def address(self) -> str:
        """Return the address of this connection as the server sees it."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def send(self, *words: Word) -> None:
        self.socket.sendall(command(*words))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """Return the raw bytes of the next reply."""
        return read_reply(self._file)

    def ask(self, *words: Word) -> bytes:
        """Return the raw bytes of the reply to a command."""
        self.send(*words)
        return self.read()

    def call(self, *words: Word) -> Any:
        """Return the value of the reply to a command, or raise its error."""
        answer = decoded(self.ask(*words))
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def type(self, line: str) -> bytes:
        """Return the reply to an inline command."""
        self.send_raw(line.encode() + b"\r\n")
        return self.read()

    def is_silent(self, other: Wire) -> bool:
        """Return whether there is no reply, after the server has answered another connection twice."""
        other.call("PING")
        other.call("PING")
        return not select.select([self.socket], [], [], 0)[0]

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    # Common commands

    def add(self, queue: Word, body: Word = b"body", *options: Word) -> bytes:
        id = self.call("ADDJOB", queue, body, 0, *options)
        assert isinstance(id, bytes) and len(id) == 40
        return id

    def get(self, queue: Word, *options: Word) -> list[bytes]:
        """Return the ids of the jobs of a GETJOB. Without a timeout it does not wait."""
        return [job[1] for job in self.call("GETJOB", *(options or ["NOHANG"]), "FROM", queue) or []]

    def show(self, id: bytes) -> dict[bytes, Any]:
        return pairs(self.call("SHOW", id))

    def state(self, id: bytes) -> bytes | None:
        shown = self.call("SHOW", id)
        return None if shown is None else pairs(shown)[b"state"]

    def stat(self, queue: Word) -> dict[bytes, Any]:
        return pairs(self.call("QSTAT", queue))

    def info(self, section: str = "all") -> dict[str, str]:
        lines = self.call("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


@contextlib.contextmanager
def configured(wire: Wire, name: str, value: str | int) -> Iterator[None]:
    """Change a setting for a while."""
    before = wire.call("CONFIG", "GET", name)[1]
    assert wire.ask("CONFIG", "SET", name, value) == b"+OK\r\n"
    try:
        yield
    finally:
        assert wire.ask("CONFIG", "SET", name, before) == b"+OK\r\n"


# ---- Processes -------------------------------------------------------------------------------------------------------


class Server:
    """A `penstock serve` process that is ready."""

    process: Forked | subprocess.Popen[bytes]

    def __init__(self, home: Path, *words: str, password: str = "", is_forked: bool = True) -> None:
        """Start the server in a directory, with these arguments and a free port.

        `is_forked` must be false for a server that restarts itself, and if the test is about the command line.
        """
        self.home = home
        self._is_forked = is_forked
        self._password = password
        self._said: list[Path] = []
        self._wires: list[Wire] = []
        for _ in range(3):
            # Another process may take the port before the server does.
            self.port, self.iproto_port, self.iproto15_port = free_port(), free_port(), free_port()
            self.bus_port = free_port()
            ports = ["--port", str(self.port), "--iproto-port", str(self.iproto_port)]
            ports += ["--iproto15-port", str(self.iproto15_port), "--cluster-port", str(self.bus_port)]
            self._words = [*words, *ports]
            self.process = self._spawn(self._words)
            self._wait_for_start(lambda: self.answers() or self.process.poll() is not None)
            if self.is_running:
                return
            said = self._said[1].read_text()
            if "cannot listen" not in said:
                break
        raise AssertionError(f"the server did not start: {said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the server, or kill it if the test has failed."""
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _spawn(self, words: list[str], prelude: str = "") -> Forked | subprocess.Popen[bytes]:
        self._said = self._next_files()
        if self._is_forked:
            return Forked(["serve", *words], self.home, *self._said, prelude)
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            return subprocess.Popen(
                [*PENSTOCK, "serve", *words], cwd=self.home, env=environment(), stdout=out, stderr=err
            )

    def _wait_for_start(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` is true. If it stays false, kill the process, because no test can."""
        try:
            wait_for(condition)
        except BaseException:
            self.kill()
            raise

    def _next_files(self) -> list[Path]:
        """Return the output files of the next process."""
        number = len(list(self.home.glob("*.stdout")))
        return [self.home / f"{number}.stdout", self.home / f"{number}.stderr"]

    def answers(self) -> bool:
        """Return whether the journal is loaded and the server serves. It has closed the connection that asked, too."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(b"PING\r\n")
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(1024), b""))
                return bool(answer) and not answer.startswith(b"-LOADING")
        except ConnectionError:
            return False

    def connect(self) -> Wire:
        """Open another connection. It is closed when the server ends."""
        wire = Wire(self.port)
        self._wires.append(wire)
        if self._password:
            assert wire.ask("AUTH", self._password) == b"+OK\r\n"
        return wire

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def log(self) -> str:
        return self._said[0].read_text()

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close_wires()

    def start_again(self, *words: str) -> None:
        """Start a server that has ended again, in the same directory, with additional arguments."""
        self.process = self._spawn([*self._words, *words])
        self._wait_for_start(lambda: self.answers() or self.process.poll() is not None)
        assert self.is_running, self._said[1].read_text()

    def ended(self) -> int:
        """Wait until the server ends by itself. Check its log, and return its exit code."""
        code = self.process.wait(PATIENCE_S)
        self._close_wires()
        self._check_what_it_said()
        return code

    def stop(self) -> None:
        """Stop the server cleanly and check its log. Do nothing if it has already ended."""
        if self.is_running:
            try:
                assert self.connect().info("stats")["errors_internal"] == "0", self.log()
                self.process.send_signal(signal.SIGTERM)
                assert self.process.wait(PATIENCE_S) == 0, self.log()
                self._check_what_it_said()
            finally:
                self.kill()

    def _check_what_it_said(self) -> None:
        assert not _ERROR.search(self.log()), self.log()
        assert self._said[1].read_text() == ""

    def _close_wires(self) -> None:
        for wire in self._wires:
            wire.close()
        self._wires.clear()


def refusals(home: Path, *starts: Sequence[str], **variables: str) -> list[tuple[int, str]]:
    """Return the exit codes and the error outputs of servers that do not start. All are started at once.

    `variables` are added to their environment.
    """
    with tempfile.TemporaryDirectory() as outputs:
        errors = [Path(outputs, str(number)) for number in range(len(starts))]
        processes = [
            Forked(["serve", *words], home, Path(os.devnull), error, environment=environment() | variables)
            for words, error in zip(starts, errors, strict=True)
        ]
        try:
            codes = [process.wait(PATIENCE_S) for process in processes]
            return [(code, error.read_text()) for code, error in zip(codes, errors, strict=True)]
        finally:
            for process in processes:
                process.kill()


def environment() -> dict[str, str]:
    """Return the environment of a server under test: the tested package, and no settings from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
