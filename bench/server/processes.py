"""Starts servers as separate processes on this machine, each on a free port and in a temporary directory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.child import environment
from penstock import PenstockError, connect

_START_S = 10.0
_ANSWER_S = 60.0
_LOADED_S = 300.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class Server:
    """A running server. It ends with this object, unless it was started by the user (`pid` 0)."""

    host: str
    port: int
    pid: int = 0
    _directory: object = field(default=None, repr=False)

    def ask(self, *words: object) -> bytes:
        """Send a RESP command. Return its reply, which must be short."""
        with self.connect() as connection:
            connection.sendall(command(*words))
            answer = connection.recv(1 << 16)
        if answer[:1] == b"-":
            raise RuntimeError(f"{words[0]} was refused: {answer.decode().strip()}")
        return answer

    def connect(self) -> socket.socket:
        """Return a connection with a timeout."""
        return socket.create_connection((self.host, self.port), _ANSWER_S)

    def cpu_s(self) -> float:
        """Return the CPU seconds that the server has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_S


def command(*words: object) -> bytes:
    """Return a RESP command as bytes."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def wait_until_loaded(url: str) -> None:
    """Wait until a server has loaded its directory. Exit if it has not after five minutes, or does not run."""
    end = time.monotonic() + _LOADED_S
    while time.monotonic() < end:
        try:
            with connect(url) as queue:
                queue.tubes()
            return
        except PenstockError:
            # It does not listen yet, or it loads its journal.
            time.sleep(0.1)
    raise SystemExit(f"{url} did not start")


def is_there(program: str) -> bool:
    """Return whether a program is installed."""
    return shutil.which(program) is not None


def penstock(*settings: str) -> Server:
    """Start Penstock with these settings."""
    run = "from penstock.cli.main import main; main()"
    return start(lambda port: [sys.executable, "-c", run, "serve", "--port", str(port), "--dir", ".", *settings])


def penstock_iproto(*settings: str) -> Server:
    """Start Penstock. Return it with its IPROTO port."""
    run = "from penstock.cli.main import main; main()"
    serve = [sys.executable, "-c", run, "serve", "--port", "0", "--dir", ".", *settings]
    return start(lambda port: [*serve, "--iproto-port", str(port)])


def tarantool() -> Server:
    """Start Tarantool with a queue and without a WAL."""
    script = Path(__file__).with_name("queue.lua")
    return start(lambda port: ["tarantool", str(script), str(port)])


def bare() -> Server:
    """Start the server that only answers PING."""
    return start(lambda port: [sys.executable, "-m", "bench.server.bare", str(port)])


def redis(*settings: str) -> Server:
    """Start Redis without persistence, unless the settings enable it."""
    return start(lambda port: ["redis-server", "--port", str(port), "--save", "", *settings])


def beanstalkd() -> Server:
    """Start beanstalkd without persistence."""
    return start(lambda port: ["beanstalkd", "-l", "127.0.0.1", "-p", str(port)])


def running(address: str) -> Server:
    """Return a server that is already running at host:port."""
    host, _, port = address.rpartition(":")
    return Server(host or "127.0.0.1", int(port))


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def start(arguments: Callable[[int], list[str]]) -> Server:
    """Start a program, whose arguments `arguments` returns for a port. Wait until it listens."""
    port = free_port()
    directory = tempfile.TemporaryDirectory(prefix="penstock-bench-")
    process = subprocess.Popen(
        arguments(port), cwd=directory.name, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = Server("127.0.0.1", port, process.pid, directory)
    weakref.finalize(server, _stop, process, directory)
    _wait_for(server, process)
    return server


def _stop(process: subprocess.Popen[bytes], directory: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    directory.cleanup()


def _wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            server.connect().close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{process.args!r} did not start") from None
            time.sleep(0.02)
