"""A client process that loads a server over IPROTO.

    python -m bench.server.iproto_load tube 127.0.0.1 3301 0                creates the tube and the space
    python -m bench.server.iproto_load asynctnt 127.0.0.1 3301 SECONDS      cycles/s of 50 tasks on one connection
    python -m bench.server.iproto_load xqueue 127.0.0.1 3301 SECONDS        the same, of rows of the space
    python -m bench.server.iproto_load raw 127.0.0.1 3301 COUNT             puts/s, takes/s, acks/s in pipelines of 256

asynctnt is the usual client, and it is slower than the server. `raw` sends bytes that were encoded in advance, so that
the server is the bottleneck.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time

from penstock.wire.msgpack import Reader, pack

TASKS = 50
_PIPELINE = 256
_BODY = "x" * 16
_TUBE = "queue.tube.bench"
_SPACE = "box.space.xbench"
# As in the benchmark of xqueue: integer keys, and all features that add cost to a put or take.
_SPACE_OPTIONS = {
    "format": [["id", "unsigned"], ["status", "string"], ["runat", "number"], ["payload", "any"]],
    "fields": {"status": "status", "runat": "runat"},
    "features": {"id": "auto_increment", "delayed": True, "ttl": True, "ttr": True},
}


async def _asynctnt(host: str, port: int, seconds: float, of: str, body: object) -> list[float]:
    import asynctnt

    connection = asynctnt.Connection(host=host, port=port, fetch_schema=False, auto_refetch_schema=False)
    await connection.connect()
    until = time.perf_counter() + seconds
    cycles = 0

    async def work() -> None:
        nonlocal cycles
        while time.perf_counter() < until:
            await connection.call(f"{of}:put", [body])
            (task,) = (await connection.call(f"{of}:take", [10])).body
            await connection.call(f"{of}:ack", [task["id"] if isinstance(task, dict) else task[0]])
            cycles += 1

    await asyncio.gather(*(work() for _ in range(TASKS)))
    await connection.disconnect()
    return [cycles / seconds]


def request(function: str, *args: object) -> bytes:
    """Return a CALL request as bytes."""
    rest = pack({0: 10, 1: 1}) + pack({0x22: function, 0x21: list(args)})
    return struct.pack(">BI", 0xCE, len(rest)) + rest


def call(method: str, *args: object) -> bytes:
    """Return a call of a method of the tube as bytes."""
    return request(f"{_TUBE}:{method}", *args)


class _Raw:
    """A connection that sends requests in pipelines."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._file = self._socket.makefile("rb", buffering=1 << 20)
        self._file.read(128)

    def per_second(self, requests: list[bytes]) -> float:
        """Return the replies per second."""
        began = time.perf_counter()
        for at in range(0, len(requests), _PIPELINE):
            batch = requests[at : at + _PIPELINE]
            self._socket.sendall(b"".join(batch))
            for _ in batch:
                head = self._file.read(5)
                answer = self._file.read(struct.unpack(">I", head[1:])[0])
        header = Reader(answer).value()
        if not isinstance(header, dict) or header[0] != 0:
            raise RuntimeError(f"a call was refused: {answer!r}")
        return len(requests) / (time.perf_counter() - began)


def _raw(host: str, port: int, count: int) -> list[float]:
    raw = _Raw(host, port)
    first = raw_id(host, port)
    puts = raw.per_second([call("put", _BODY)] * count)
    takes = raw.per_second([call("take", 0)] * count)
    return [puts, takes, raw.per_second([call("ack", first + number) for number in range(count)])]


def _make_tube(host: str, port: int) -> None:
    """Create the tube and the space. Tarantool's start script has already created its tube."""
    raw = _Raw(host, port)
    raw.per_second([request("queue.create_tube", "bench", "fifo", {"if_not_exists": True})])
    raw.per_second([request("xqueue.upgrade", "xbench", _SPACE_OPTIONS)])


def raw_id(host: str, port: int) -> int:
    """Return the id of the next task: one more than the id of a task that is put, taken and acked here."""
    with socket.create_connection((host, port)) as connection:
        file = connection.makefile("rb")
        file.read(128)
        connection.sendall(call("put", _BODY) + call("take", 0))
        for _ in range(2):
            reader = Reader(file.read(struct.unpack(">I", file.read(5)[1:])[0]))
            reader.value()
            body = reader.value()
        assert isinstance(body, dict)
        id = int(body[0x30][0][0])
        connection.sendall(call("ack", id))
        file.read(5)
    return id + 1


if __name__ == "__main__":
    what, host, port, much = sys.argv[1:]
    if what == "tube":
        _make_tube(host, int(port))
    elif what == "raw":
        print(*_raw(host, int(port), int(much)))
    elif what == "xqueue":
        print(*asyncio.run(_asynctnt(host, int(port), float(much), _SPACE, {"payload": _BODY})))
    else:
        print(*asyncio.run(_asynctnt(host, int(port), float(much), _TUBE, _BODY)))
