"""Counts the instructions that a server executes for each command, with valgrind's callgrind.

A real server runs under callgrind with a journal. One client sends a command, waits for the reply and sends the next
one, so every turn has the same content. After a block of commands of one kind, the server dumps its counts. The counts
are those of the main thread: parsing, running, appending to the journal and replying, without the kernel. The cost of a
command is that of its block, minus that of an empty block, divided by the number of commands. The minimum of several
cycles excludes rare events, such as the growth of a hash table or a background thread that needs the interpreter.

Nothing here depends on the modules of the server: commands enter through sockets, and the counts leave through files.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from bench.child import environment
from bench.instructions.records import compiler
from bench.server.iproto_load import request
from bench.server.processes import command, free_port
from penstock.wire.msgpack import Reader

# The commands of a block. More of them make the run longer, and less than 0.1 % more precise.
COMMANDS = 64
# The minimum of these cycles is used. One more cycle runs first, in which buffers and tables get their size.
CYCLES = 5
# The size and number of the pipelines in a block.
PIPELINE = 16
PIPELINES = 16

# Functions of glibc that hand the interpreter lock to another thread. Their cost is excluded, because it depends on the
# times at which background threads were waiting for the lock.
_LOCKS = re.compile(r"_*(pthread_cond|pthread_mutex_cond|condvar|futex|lll_lock)_")
_POSITIONS = frozenset("+-*0123456789")

_BODY = b"x" * 40
_EMPTY = "(empty block)"
_PIPELINED = f"PUT x{PIPELINE}"
_MARKER = Path(__file__).with_name("marker.c")

# The server needs a few seconds to start under valgrind, and a busy machine many more.
_START_S = 120.0
_ANSWER_S = 60.0
# After a reply the server ends its turn, and then it sleeps. This takes about a millisecond under callgrind.
_SETTLE_S = 0.01


def why_not_measurable() -> str:
    """Return why the instructions cannot be counted on this machine, or ""."""
    if not shutil.which("valgrind"):
        return "valgrind is not installed"
    if not shutil.which(compiler()[0]):
        return f"{compiler()[0]}, which compiles {_MARKER.name}, is not installed"
    words = [*compiler(), "-fsyntax-only", str(_MARKER)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        return f"{_MARKER.name} cannot be compiled, because valgrind's headers are not installed"
    return ""


def measure(find_port: Callable[[], int] = free_port) -> dict[str, float]:
    """Return the instructions per command, by the name of the command."""
    with tempfile.TemporaryDirectory(prefix="penstock-instructions-") as name, _start(Path(name), find_port) as server:
        for _ in range(1 + CYCLES):
            _run_cycle(server)
    empty = min(server.blocks.pop(_EMPTY)[1:])
    return {
        name: (min(block[1:]) - empty) / (PIPELINE * PIPELINES if name == _PIPELINED else COMMANDS)
        for name, block in server.blocks.items()
    }


def _run_cycle(server: _Server) -> None:
    """Run one block of each command. At the end, the server has no jobs, as at the beginning."""
    resp, iproto, end = server.resp, server.iproto, server.end_block
    end("")
    end(_EMPTY)

    resp.ask([command("PING")] * COMMANDS)
    end("PING")

    ids = resp.ask([command("ADDJOB", "disque", _BODY, 0)] * COMMANDS)
    end("ADDJOB")
    resp.ask([command("GETJOB", "NOHANG", "FROM", "disque")] * COMMANDS)
    end("GETJOB")
    resp.ask([command("ACKJOB", id) for id in ids])
    end("ACKJOB")

    ids = resp.ask([command("PUT", "native", _BODY)] * COMMANDS)
    end("PUT")
    resp.ask([command("TAKE", "native")] * COMMANDS)
    end("TAKE")
    resp.ask([command("RELEASE", id) for id in ids])
    end("RELEASE")
    resp.ask([command("TAKE", "native")] * COMMANDS)
    end("")
    resp.ask([command("ACK", id) for id in ids])
    end("ACK")

    pipelines = resp.ask([command("PUT", "native", _BODY) * PIPELINE] * PIPELINES, PIPELINE)
    end(_PIPELINED)
    for ids in pipelines:
        resp.ask([command("TAKE", "native", "COUNT", PIPELINE)])
        resp.ask([b"".join(command("ACK", id) for id in ids)], PIPELINE)
    end("")

    tasks = iproto.ask([request("queue.tube.tarantool:put", "x" * 40)] * COMMANDS)
    end("queue put")
    iproto.ask([request("queue.tube.tarantool:take", 0)] * COMMANDS)
    end("queue take")
    iproto.ask([request("queue.tube.tarantool:ack", task[0]) for task in tasks])
    end("queue ack")


class _Resp:
    """A connection with RESP."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._replies: BinaryIO = connection.makefile("rb")

    def ask(self, requests: list[bytes], commands: int = 1) -> list[Any]:
        """Send each request after the reply to the previous one. Return the replies, as lists if it is a pipeline."""
        return [self._ask(each, commands) for each in requests]

    def _ask(self, request: bytes, commands: int) -> Any:
        self._connection.sendall(request)
        replies = [self._reply() for _ in range(commands)]
        return replies if commands > 1 else replies[0]

    def _reply(self) -> Any:
        line = self._replies.readline()
        kind, text = line[:1], line[1:-2]
        if kind == b"-" or not line:
            raise RuntimeError(f"a command was refused: {text.decode()}")
        if kind == b"$" and int(text) >= 0:
            return self._replies.read(int(text) + 2)[:-2]
        if kind == b"*":
            assert int(text) > 0, "there is no job"
            return [self._reply() for _ in range(int(text))]
        return text


class _Iproto:
    """A connection with IPROTO."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._replies: BinaryIO = connection.makefile("rb")
        self._replies.read(128)

    def ask(self, requests: list[bytes]) -> list[Any]:
        """Send each request after the reply to the previous one. Return the first value of each reply."""
        return [self._ask(each) for each in requests]

    def _ask(self, request: bytes) -> Any:
        self._connection.sendall(request)
        reader = Reader(self._replies.read(int.from_bytes(self._replies.read(5)[1:], "big")))
        header: Any = reader.value()
        body: Any = reader.value()
        if header[0] != 0:
            raise RuntimeError(f"a call was refused: {body!r}")
        return body[0x30][0]


class _Server:
    """A server under callgrind, with one client per protocol."""

    def __init__(self, marks: socket.socket, counts: Path, resp: _Resp, iproto: _Iproto) -> None:
        self.resp = resp
        self.iproto = iproto
        self.blocks: dict[str, list[int]] = {}
        self._marks = marks
        self._counts = counts
        self._dumps = 0
        self._mark()

    def end_block(self, name: str) -> None:
        """End a block of commands, and record its instructions, unless the name is empty."""
        self._mark()
        self._dumps += 1
        # Thread 1 is the main thread.
        file = self._counts.with_name(f"{self._counts.name}.{self._dumps}-01")
        if name:
            self.blocks.setdefault(name, []).append(instructions_of(file.read_text()))
        file.unlink()

    def _mark(self) -> None:
        time.sleep(_SETTLE_S)
        self._marks.sendall(b".")
        if not self._marks.recv(1):
            raise RuntimeError("the server ended")
        time.sleep(_SETTLE_S)


def instructions_of(dump: str) -> int:
    """Return the instructions of a dump, without those of `_LOCKS`.

    A function begins with "fn=(number) name". Only the first mention of a number has the name. Lines with a position
    and a cost follow. The line after "calls=" has the cost of the called function, which is counted there.
    """
    names: dict[str, str] = {}
    total = 0
    is_counted = is_call = False
    for line in dump.splitlines():
        if line.startswith(("fn=", "cfn=")):
            kind, _, function = line.partition("=")
            number, _, name = function.partition(" ")
            name = names.setdefault(number, name)
            if kind == "fn":
                is_counted = not _LOCKS.match(name)
        elif line.startswith("calls="):
            is_call = True
        elif line[:1] in _POSITIONS:
            if is_counted and not is_call:
                total += int(line.split()[1])
            is_call = False
    if not total:
        raise RuntimeError("callgrind has counted nothing")
    return total


@contextmanager
def _start(directory: Path, find_port: Callable[[], int]) -> Iterator[_Server]:
    """Start a server under callgrind, and stop it at the end."""
    marker = directory / "marker.so"
    subprocess.run([*compiler(), "-shared", "-fPIC", "-o", str(marker), str(_MARKER)], check=True)
    counts = directory / "counts"
    callgrind = ["valgrind", "--tool=callgrind", "--vgdb=no", "--instr-atstart=no", "--separate-threads=yes"]
    port, iproto_port = find_port(), find_port()
    settings = ["--port", port, "--iproto-port", iproto_port, "--dir", directory, "--fsync", "never", "--linger", 0]
    words = [*callgrind, f"--callgrind-out-file={counts}", sys.executable, "-m", "bench.instructions.marked_server"]
    log = directory / "log"
    marks, its_end = socket.socketpair()
    marks.settimeout(_ANSWER_S)
    with marks, its_end, log.open("wb") as output:
        process = subprocess.Popen(
            [*words, *map(str, [marker, its_end.fileno(), *settings])],
            env=_environment(),
            pass_fds=[its_end.fileno()],
            stdout=output,
            stderr=output,
        )
        its_end.close()
        try:
            with _connect(port, process) as resp, _connect(iproto_port, process) as iproto:
                tarantool = _Iproto(iproto)
                tarantool.ask([request("queue.create_tube", "tarantool", "fifo")])
                yield _Server(marks, counts, _Resp(resp), tarantool)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"the server failed under callgrind: {error!r}\n{log.read_text()}") from error
        finally:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """Return the environment of the server, in which hashes are the same in every run."""
    kept = {name: value for name, value in environment().items() if not name.startswith("PENSTOCK_")}
    return {**kept, "PYTHONHASHSEED": "0"}


def _connect(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    until = time.monotonic() + _START_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), _ANSWER_S)
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
