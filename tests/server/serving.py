"""A server as its clients see it: a process of its own, and connections that show the very bytes it sends."""

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
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import penstock
from tests.ports import free_port

# Far more than anything here takes: a test that needs so long has lost an answer.
PATIENCE_S = 20.0

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
_ERROR = re.compile(r"^\S+Z error |^Traceback", re.MULTILINE)

Word = bytes | str | int


def wait_for(condition: Callable[[], Any]) -> Any:
    """Ask until the answer is true, and give it."""
    until = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.005)
    return answer


def is_left(left_ms: int, of_s: float, since: float) -> bool:
    """Whether so much can be left of a time that began not before a moment of the monotonic clock."""
    return (of_s + since - time.monotonic()) * 1000 - 2 <= left_ms <= of_s * 1000


# ---- Bytes -----------------------------------------------------------------------------------------------------------


class Refusal(Exception):
    """A server's error: its line without the minus."""


def command(*words: Word) -> bytes:
    """A command as clients send it."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"".join([b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)])


def bulks(*items: Word) -> bytes:
    """An array of bulks, which is what a command is too."""
    return command(*items)


def read_reply(file: BinaryIO) -> bytes:
    """One answer with all that is in it, as it came; nothing if there is no more."""
    line = file.readline()
    kind, rest = line[:1], line[1:-2]
    if kind in (b"$", b"*", b"%") and rest != b"-1":
        if kind == b"$":
            return line + file.read(int(rest) + 2)
        return line + b"".join(read_reply(file) for _ in range(int(rest) * (2 if kind == b"%" else 1)))
    return line


def decoded(raw: bytes) -> Any:
    """What an answer means: bytes, a number, None, a list, a dict."""
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
    """SHOW and QSTAT tell names and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._file = self.socket.makefile("rb")

    @property
    def address(self) -> str:
        """As the server sees it."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def send(self, *words: Word) -> None:
        self.socket.sendall(command(*words))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """The next answer, byte for byte."""
        return read_reply(self._file)

    def ask(self, *words: Word) -> bytes:
        """The answer to a command, byte for byte."""
        self.send(*words)
        return self.read()

    def call(self, *words: Word) -> Any:
        """What a command answers, or raises."""
        answer = decoded(self.ask(*words))
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def type(self, line: str) -> bytes:
        """The answer to a command that is typed."""
        self.send_raw(line.encode() + b"\r\n")
        return self.read()

    def is_silent(self, other: Wire) -> bool:
        """Whether nothing came, of what the server had to send before it answered somebody else twice."""
        other.call("PING")
        other.call("PING")
        return not select.select([self.socket], [], [], 0)[0]

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    # What tests say most.

    def add(self, queue: Word, body: Word = b"body", *options: Word) -> bytes:
        id = self.call("ADDJOB", queue, body, 0, *options)
        assert isinstance(id, bytes) and len(id) == 40
        return id

    def get(self, queue: Word, *options: Word) -> list[bytes]:
        """The ids of the jobs that a GETJOB gets; it waits for none, unless told how long."""
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
    """Another setting for a while."""
    before = wire.call("CONFIG", "GET", name)[1]
    assert wire.ask("CONFIG", "SET", name, value) == b"+OK\r\n"
    try:
        yield
    finally:
        assert wire.ask("CONFIG", "SET", name, before) == b"+OK\r\n"


# ---- Processes -------------------------------------------------------------------------------------------------------


class Server:
    """A `penstock serve` that has been started and answers."""

    def __init__(self, home: Path, *words: str, password: str = "") -> None:
        """Start it in a directory, with these words and a port that is free."""
        self.home = home
        self._password = password
        self._said: list[Path] = []
        self._wires: list[Wire] = []
        for _ in range(3):
            # Somebody else may take the port before the server does.
            self.port, self.iproto_port, self.iproto15_port = free_port(), free_port(), free_port()
            self.bus_port = free_port()
            ports = ["--port", str(self.port), "--iproto-port", str(self.iproto_port)]
            ports += ["--iproto15-port", str(self.iproto15_port), "--cluster-port", str(self.bus_port)]
            self._words = [*words, *ports]
            self.process = self._spawn(self._words)
            if wait_for(lambda: self.answers() or self.process.poll() is not None) and self.process.poll() is None:
                return
            said = self._said[1].read_text()
            if "cannot listen" not in said:
                break
        raise AssertionError(f"the server did not start: {said}")

    def _spawn(self, words: list[str]) -> subprocess.Popen[bytes]:
        self._said = self._next_files()
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            return subprocess.Popen(
                [*PENSTOCK, "serve", *words], cwd=self.home, env=environment(), stdout=out, stderr=err
            )

    def _next_files(self) -> list[Path]:
        """Where its next process says what it has to say."""
        number = len(list(self.home.glob("*.stdout")))
        return [self.home / f"{number}.stdout", self.home / f"{number}.stderr"]

    def answers(self) -> bool:
        """Return whether its journal is loaded and it serves. It has closed the connection that asked, too."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(b"PING\r\n")
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(1024), b""))
                return bool(answer) and not answer.startswith(b"-LOADING")
        except ConnectionError:
            return False

    def connect(self) -> Wire:
        """Another connection. They are closed when the server ends."""
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
        """End it as a crash of the process does."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close_wires()

    def start_again(self, *words: str) -> None:
        """Start one that has ended once more, where it was, with these words in addition."""
        self.process = self._spawn([*self._words, *words])
        wait_for(lambda: self.answers() or self.process.poll() is not None)
        assert self.is_running, self._said[1].read_text()

    def ended(self) -> int:
        """Its exit code, once it has ended by itself; nothing was wrong until then."""
        code = self.process.wait(PATIENCE_S)
        self._close_wires()
        self._check_what_it_said()
        return code

    def stop(self) -> None:
        """End it in order, and see that nothing was wrong until then. Nothing happens where it has ended already."""
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


def refusals(home: Path, *starts: Sequence[str]) -> list[tuple[int, str]]:
    """The exit codes of servers that do not start, and what they say; all are tried at once."""
    processes = [
        subprocess.Popen([*PENSTOCK, "serve", *words], cwd=home, env=environment(), stderr=subprocess.PIPE, text=True)
        for words in starts
    ]
    try:
        told = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, told, strict=True)]
    finally:
        for process in processes:
            process.kill()


def environment() -> dict[str, str]:
    """The environment of a server under test: the package that is tested, and no settings from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
