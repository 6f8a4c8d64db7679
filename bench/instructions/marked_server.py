"""Runs `penstock serve` in a process that dumps the counts of callgrind on request.

    valgrind --tool=callgrind … python -m bench.instructions.marked_server MARKER SOCKET [SETTING …]

MARKER is the compiled marker.c. For each byte that arrives on the file descriptor SOCKET, the event loop dumps the
counts and sends a byte back. The first request only starts the counting, because starting the server would take a
minute with it. It also stops the periodic tasks, which depend on the time and not on commands.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import sys

# Ids and tokens are the same in every run, because the cost of a hash table depends on them. This comes before the
# imports of modules that keep a reference to the function.
os.urandom = random.Random(1).randbytes
random._urandom = os.urandom

import uvloop  # noqa: E402

from penstock.cli.main import main  # noqa: E402


async def _sleep_forever(delay: float, result: object = None) -> object:
    await asyncio.get_running_loop().create_future()
    return result


class _Marks:
    """Answers the requests for dumps."""

    def __init__(self, library: str, socket: int) -> None:
        # PyDLL keeps the interpreter lock, so that no other thread runs during a dump.
        self._marker = ctypes.PyDLL(library)
        self._socket = socket
        self._is_counting = False
        self._new_loop = uvloop.new_event_loop

    def new_loop(self) -> uvloop.Loop:
        """Return a new event loop that answers the requests."""
        loop = self._new_loop()
        loop.add_reader(self._socket, self._on_request)
        return loop

    def _on_request(self) -> None:
        os.read(self._socket, 1)
        if self._is_counting:
            self._marker.dump()
        else:
            self._is_counting = True
            asyncio.sleep = _sleep_forever
            self._marker.start()
        os.write(self._socket, b".")


if __name__ == "__main__":
    uvloop.new_event_loop = _Marks(sys.argv[1], int(sys.argv[2])).new_loop
    sys.argv = ["penstock", "serve", *sys.argv[3:]]
    main()
