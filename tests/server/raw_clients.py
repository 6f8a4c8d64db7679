"""A server in its own process, and clients that send and read arbitrary bytes."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from tests.ports import free_port
from tests.wire.client_input import encode

from .forked_servers import Forked

# Much longer than any operation takes. A test that waits this long has found a hang.
PATIENCE_S = 20.0

# A busy machine may suspend a process this long.
_STALL_S = 3.0

_SERVE = "from penstock.cli.main import main; main()"


class Refusal(Exception):
    """An error reply."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self.args == other.args

    __hash__ = Exception.__hash__


class Server:
    """`penstock serve` on a free port, in its own directory."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        config: str = "",
        port_flag: str = "--port",
        prelude: str = "",
        is_forked: bool = True,
    ) -> None:
        """Start the server. `prelude` is Python code that its process runs before it imports anything.

        `is_forked` must be false if the test reads the command line or the environment of the process.
        """
        self.directory = directory
        self.port = free_port()
        words = [port_flag, str(self.port), "--dir", str(directory / "data"), *flags]
        if config:
            (directory / "penstock.toml").write_text(config)
            words.insert(0, str(directory / "penstock.toml"))
        self.log = directory / "log"
        self.process = self._spawn(words, prelude, is_forked and not prelude)
        wait_until(self._is_up)

    def _spawn(self, words: list[str], prelude: str, is_forked: bool) -> Forked | subprocess.Popen[bytes]:
        if is_forked:
            return Forked(["serve", *words], Path.cwd(), self.log, self.log, environment=os.environ)
        with self.log.open("wb") as log:
            environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
            command = [sys.executable, "-c", f"{prelude}\n{_SERVE}", "serve", *words]
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _is_up(self) -> bool:
        """Return whether the server accepts connections. It has noticed the end of the connection that asked."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with Client(self.port) as client:
                client.half_close()
                client.rest()
        except ConnectionRefusedError:
            return False
        return True

    def client(self, tls: ssl.SSLContext | None = None, source: str = "") -> Client:
        return Client(self.port, tls, source=source)

    def rss(self) -> int:
        """Return the resident memory of the process in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def worked_s(self) -> float:
        """Return the processor time of all its threads."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Suspend the process. It then finds all events of that time at once."""
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server, and check that it ends cleanly and logged no errors."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        log = self.log.read_text()
        assert " error " not in log and "Traceback" not in log, log


@contextmanager
def serving(directory: Path, *flags: str, **options: Any) -> Iterator[Server]:
    """Run a server with the options of `Server`, and check that it had no internal error."""
    server = Server(directory, "--fsync", "never", *flags, **options)
    try:
        yield server
        server.stop()
    finally:
        server.process.kill()
        server.process.wait()


def warm_up(client: Client) -> None:
    """Let the server load everything that it loads at first use, so that it does not count as growth."""
    for _ in range(3):
        client.ask("INFO", "all")
        client.ask("ADDJOB", "warm", "x", 0)
        client.ask("GETJOB", "NOHANG", "FROM", "warm")


class Client:
    """A client connection."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", source: str = ""
    ) -> None:
        """Connect to a port, from any address or from the address `source`."""
        self.socket = socket.create_connection((address, port), PATIENCE_S, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, *words: bytes | str | int) -> None:
        """Send a command."""
        self.send(encode([word if isinstance(word, bytes) else str(word).encode() for word in words]))

    def ask(self, *words: bytes | str | int) -> object:
        """Send a command and return its reply."""
        self.say(*words)
        return self.answer()

    def answer(self) -> object:
        """Return the next reply. The end of the connection raises EOFError."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(line)
        kind, said = line[:1], line[1:-2]
        if kind == b"-":
            return Refusal(said.decode("utf-8", "backslashreplace"))
        if kind == b"+":
            return said
        if kind == b":":
            return int(said)
        if kind == b"_" or said == b"-1":
            return None
        assert kind in b"$*%", line
        if kind == b"$":
            return self._file.read(int(said) + 2)[:-2]
        return [self.answer() for _ in range(int(said) * (1 + (kind == b"%")))]

    def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def half_close(self) -> None:
        """Close the sending side."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.005)


class Watch:
    """Checks that other clients do not notice a hostile client. Enter it before the attack, and leave it afterwards."""

    def __init__(self, server: Server, within_s: float = 1.0, growth_max: int = 1 << 20) -> None:
        self._server = server
        self._within_s = within_s  # The promise is 0.1 s. Interpreted code on a busy machine gets more.
        self._growth_max = growth_max
        self.served_s = 0.0

    def __enter__(self) -> Watch:
        self._other = self._server.client()
        self.rss = self._server.rss()
        return self

    def look(self) -> None:
        """Check that a new client is served soon."""
        began, worked = time.monotonic(), self._server.worked_s()
        with self._server.client() as client:
            assert client.ask("HELLO", "2") is not None
        served_s = time.monotonic() - began
        if served_s >= self._within_s:
            # If the server used no processor time meanwhile, the machine delayed it or the test.
            served_s = max(served_s - _STALL_S, self._server.worked_s() - worked)
        self.served_s = max(self.served_s, served_s)
        assert self.served_s < self._within_s

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._other.close()
        if kind is None:
            self.look()
            grown = self._server.rss() - self.rss
            assert grown < self._growth_max, f"it has grown by {grown:,} bytes"


def figures(client: Client, section: str = "all") -> dict[str, str]:
    """Return the fields of INFO by name."""
    told = client.ask("INFO", section)
    assert isinstance(told, bytes), told
    return dict(line.split(":", 1) for line in told.decode().splitlines() if ":" in line)
