"""A server that only answers PING, on the same event loop as Penstock, to measure the cost of the sockets alone.

It does not parse commands. It counts the word PING in the received bytes. redis-benchmark first requests two settings,
which also get a reply.
"""

from __future__ import annotations

import asyncio
import gc
import sys

import uvloop


class _Pong(asyncio.Protocol):
    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        pings = data.count(b"PING")
        self._transport.write(b"+PONG\r\n" * pings if pings else b"*0\r\n" * data.count(b"CONFIG"))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Pong, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    gc.disable()
    uvloop.run(_serve(int(sys.argv[1])))
