"""A process that loads a server with whole cycles: each client puts a job, takes one, finishes it, and so on.

    python -m bench.server.load disque 127.0.0.1 7711 SECONDS RATE

As many cycles a second as RATE says, or as the server can if that is 0. It prints how many there were a second, and
what half of them, 99 % and 99.9 % took at most, in ms. With a rate, the time of a cycle counts from the moment that it
was planned for, whether a client was free then or not. The answers are looked at, and a wrong one is an error.
"""

from __future__ import annotations

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable

import uvloop

from bench.server.processes import command

CLIENTS = 50
_BODY = b"x" * 40
_TICK_S = 0.001


class Speech(ABC):
    """How a server is told to put, take and finish a job, and of how many lines its answers are."""

    put: bytes
    take: bytes
    lines: tuple[int, int, int]

    @abstractmethod
    def finish(self, taken: bytes) -> bytes:
        """Finish the job that was just taken."""

    @abstractmethod
    def is_finished(self, answer: bytes) -> bool:
        """Whether the job was there to be finished."""


class _Disque(Speech):
    put = command("ADDJOB", "cycle", _BODY, 0)
    take = command("GETJOB", "TIMEOUT", 10_000, "FROM", "cycle")
    lines = (1, 8, 1)

    def finish(self, taken: bytes) -> bytes:
        return b"*2\r\n$6\r\nACKJOB\r\n$40\r\n%s\r\n" % taken.split(b"\r\n", 6)[5]

    def is_finished(self, answer: bytes) -> bool:
        return answer == b":1\r\n"


class _Redis(Speech):
    """A list of waiting jobs and one of those under way, as the manual of Redis has it for queues that lose nothing."""

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


class _Client(asyncio.Protocol):
    """One client: begins a cycle when it is told to, and tells when that is done."""

    _transport: asyncio.Transport

    def __init__(self, speech: Speech, done: Callable[[_Client], None], failed: Callable[[bytes], None]) -> None:
        self._speech = speech
        self._done = done
        self._failed = failed
        self._step = 0
        self._answer = b""
        self.began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def begin(self, moment: float) -> None:
        """Begin a cycle, as one that should have begun at a moment."""
        self.began = moment
        self._transport.write(self._speech.put)

    def data_received(self, data: bytes) -> None:
        speech, answer = self._speech, self._answer + data
        if answer.count(b"\r\n") < speech.lines[self._step]:
            self._answer = answer
            return
        self._answer = b""
        if self._step == 0:
            self._step = 1
            self._transport.write(speech.take)
        elif self._step == 1:
            self._step = 2
            self._transport.write(speech.finish(answer))
        elif speech.is_finished(answer):
            self._step = 0
            self._done(self)
        else:
            self._failed(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._failed(b"the connection was lost")


class _Load:
    """All clients, for so many seconds."""

    def __init__(self, seconds: float, rate: float) -> None:
        self._seconds = seconds
        self._rate = rate
        self._planned = 0
        self._free: list[_Client] = []
        self._late: deque[float] = deque()
        self._took = array("d")
        self._over = asyncio.get_running_loop().create_future()

    async def run(self, speech: Speech, host: str, port: int) -> list[float]:
        """Load a server; what came of it."""
        loop = asyncio.get_running_loop()
        for _ in range(CLIENTS):
            _, client = await loop.create_connection(lambda: _Client(speech, self._done, self._failed), host, port)
            self._free.append(client)
        self._began = time.perf_counter()
        self._ends = self._began + self._seconds
        if self._rate:
            self._tick()
        else:
            for client in self._free:
                client.begin(self._began)
        loop.call_later(self._seconds, self._end)
        await self._over
        took = sorted(self._took)
        shares = [took[int(len(took) * share)] * 1000 for share in (0.5, 0.99, 0.999)]
        return [len(took) / self._seconds, *shares]

    def _tick(self) -> None:
        """Begin every cycle whose time has come, by whoever is free; the others as soon as somebody is."""
        now = time.perf_counter()
        while (moment := self._began + self._planned / self._rate) <= now:
            self._planned += 1
            if self._free:
                self._free.pop().begin(moment)
            else:
                self._late.append(moment)
        asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _done(self, client: _Client) -> None:
        now = time.perf_counter()
        self._took.append(now - client.began)
        if not self._rate:
            client.begin(now)
        elif self._late:
            client.begin(self._late.popleft())
        else:
            self._free.append(client)

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _failed(self, why: bytes) -> None:
        if not self._over.done():
            self._over.set_exception(RuntimeError(f"a cycle ended with {why!r}"))


async def _main(speech: str, host: str, port: str, seconds: str, rate: str) -> None:
    load = _Load(float(seconds), float(rate))
    print(*await load.run(SPEECHES[speech](), host, int(port)))


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
