"""The HTTP API: what a put costs the API process, and how long its response takes.

The client sends prepared requests over open connections, and reads responses without parsing them.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from functools import partial

from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.trial import Sample, Trial

_CONNECTIONS = 20
_BODY = b'{"body":{"to":"ada","subject":"hello"}}'
_PUT = (
    b"POST /api/v1/tubes/bench/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)
_CPU_MS_MAX = 0.5


def trials(scale: Scale) -> list[Trial]:
    """Return the trial of puts over HTTP, or none if the packages of the API are not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        return []
    return [
        Trial(
            (
                Spec("http/put-cpu", "CPU of the API process for a put", Unit.MS, goal=Goal(_CPU_MS_MAX)),
                Spec("http/put", f"puts, {_CONNECTIONS} connections", Unit.PUTS),
                Spec("http/put-p50", "a put, one at a time: median", Unit.MS),
                Spec("http/put-p99", "a put, one at a time: 99 of 100", Unit.MS),
            ),
            partial(_prepare, scale.jobs(10_000, 2_000)),
            scale.rounds_server,
        )
    ]


def _prepare(count: int) -> Sample:
    node = processes.penstock("--fsync", "never")
    run = "from penstock.cli.main import main; main()"
    url = f"penstock://{node.host}:{node.port}"
    api = processes.start(lambda port: [sys.executable, "-c", run, "api", "--port", str(port), "--url", url])

    def sample() -> list[float]:
        node.ask("DEBUG", "FLUSHALL")
        node.ask("TUBE", "CREATE", "bench")
        before, began = api.cpu_s(), time.perf_counter()
        asyncio.run(_put_together(api, count))
        rate = count / (time.perf_counter() - began)
        cpu_ms = (api.cpu_s() - before) / count * 1_000
        latencies = sorted(_latencies(api, count // 10))
        return [cpu_ms, rate, latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]]

    return sample


async def _put_together(api: Server, count: int) -> None:
    async def work() -> None:
        reader, writer = await asyncio.open_connection(api.host, api.port)
        for _ in range(count // _CONNECTIONS):
            writer.write(_PUT)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201"), head
            await reader.readexactly(_length(head))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))


def _latencies(api: Server, count: int) -> list[float]:
    """Return how long each put takes, in milliseconds."""
    found = []
    with api.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(_PUT)
            answer = connection.recv(65_536)
            while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < _length(answer):
                answer += connection.recv(65_536)
            found.append((time.perf_counter() - began) * 1_000)
    return found


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
