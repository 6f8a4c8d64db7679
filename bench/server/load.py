"""A client process that loads a server with whole cycles: each client puts a job, takes one, acks it, and repeats.

    python -m bench.server.load disque 127.0.0.1 7711 SECONDS RATE

RATE is the number of cycles per second, or 0 for as many as possible. The program prints the cycles per second, and the
median, 99th and 99.9th percentile of their latency in ms. With a RATE, the latency counts from the scheduled start of a
cycle, even if no client was free then. Replies are checked, and a wrong reply is an error.
"""

from __future__ import annotations

import gc
import select
import selectors
import socket
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable

from bench.server.processes import command

CLIENTS = 50
_BODY = b"x" * 40


class Speech(ABC):
    """The commands of a server to put, take and ack a job, and the number of lines of its replies."""

    put: bytes
    take: bytes
    lines: tuple[int, int, int]

    @abstractmethod
    def finish(self, taken: bytes) -> bytes:
        """Return the command that acks the job in the reply of a take."""

    @abstractmethod
    def is_finished(self, answer: bytes) -> bool:
        """Return whether the reply confirms the ack."""


class _Disque(Speech):
    put = command("ADDJOB", "cycle", _BODY, 0)
    take = command("GETJOB", "TIMEOUT", 10_000, "FROM", "cycle")
    lines = (1, 8, 1)

    def finish(self, taken: bytes) -> bytes:
        return b"*2\r\n$6\r\nACKJOB\r\n$40\r\n%s\r\n" % taken.split(b"\r\n", 6)[5]

    def is_finished(self, answer: bytes) -> bool:
        return answer == b":1\r\n"


class _Redis(Speech):
    """A list of waiting jobs and a list of taken jobs: the reliable queue pattern of the Redis documentation."""

    put = command("LPUSH", "cycle", _BODY)
    take = command("RPOPLPUSH", "cycle", "taken")
    lines = (1, 2, 1)
    _finish = command("LREM", "taken", 1, _BODY)

    def finish(self, taken: bytes) -> bytes:
        return self._finish

    def is_finished(self, answer: bytes) -> bool:
        return answer == b":1\r\n"


class _Beanstalkd(Speech):
    put = b"put 0 0 60 %d\r\n%s\r\n" % (len(_BODY), _BODY)
    take = b"reserve-with-timeout 10\r\n"
    lines = (1, 2, 1)

    def finish(self, taken: bytes) -> bytes:
        return b"delete %s\r\n" % taken.split(b" ", 2)[1]

    def is_finished(self, answer: bytes) -> bool:
        return answer == b"DELETED\r\n"


SPEECHES: dict[str, Callable[[], Speech]] = {"disque": _Disque, "redis": _Redis, "beanstalkd": _Beanstalkd}


class _Client:
    """A client that runs one cycle at a time."""

    def __init__(self, speech: Speech, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began = 0.0
        self._speech = speech
        self._step = 0
        self._answer = b""

    def begin(self, moment: float) -> None:
        """Start a cycle whose latency counts from its scheduled start."""
        self.began = moment
        self.socket.send(self._speech.put)

    def go_on(self) -> bool:
        """Read a reply or a part of it, and continue the cycle. Return whether the cycle has ended."""
        speech, data = self._speech, self.socket.recv(4_096)
        if not data:
            raise RuntimeError("the connection was lost")
        answer = self._answer + data
        if answer.count(b"\r\n") < speech.lines[self._step]:
            self._answer = answer
            return False
        self._answer = b""
        if self._step == 0:
            self._step = 1
            self.socket.send(speech.take)
            return False
        if self._step == 1:
            self._step = 2
            self.socket.send(speech.finish(answer))
            return False
        if not speech.is_finished(answer):
            raise RuntimeError(f"a cycle ended with {answer!r}")
        self._step = 0
        return True


def _load(clients: list[_Client], seconds: float, rate: float) -> list[float]:
    """Load a server with all clients. Return the figures."""
    crowd = selectors.DefaultSelector()
    for client in clients:
        crowd.register(client.socket, selectors.EVENT_READ, client)
    free = list(clients)
    took = array("d")
    planned = 0
    began = now = time.perf_counter()
    ends = began + seconds
    while now < ends:
        # Start every cycle that is due with a free client. The others start as soon as a client is free.
        while free and (moment := began + planned / rate if rate else now) <= now:
            planned += 1
            free.pop().begin(moment)
        ready = crowd.select(0)
        if not ready:
            wait = began + planned / rate - now if free and rate else ends - now
            _wait(crowd, min(wait, ends - now))
        for key, _ in ready:
            client = key.data
            if client.go_on():
                took.append(time.perf_counter() - client.began)
                free.append(client)
        now = time.perf_counter()
    shares = [sorted(took)[int(len(took) * share)] * 1000 for share in (0.5, 0.99, 0.999)]
    return [len(took) / seconds, *shares]


def _wait(crowd: selectors.BaseSelector, seconds: float) -> None:
    """Wait until a client has data to read, or for the given time.

    `select` has a resolution of microseconds. A selector waits for whole milliseconds, which is as long as the measured
    latency. But `select` only waits on the selector, because passing all clients to it would be too expensive.
    """
    if seconds > 0:
        select.select((crowd,), (), (), seconds)


def _main(speech: str, host: str, port: str, seconds: str, rate: str) -> None:
    clients = [_Client(SPEECHES[speech](), host, int(port)) for _ in range(CLIENTS)]
    gc.disable()
    print(*_load(clients, float(seconds), float(rate)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
