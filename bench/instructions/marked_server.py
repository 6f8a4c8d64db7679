"""Runs `penstock serve` in a process that dumps the counts of callgrind when it receives SIGUSR2.

    valgrind --tool=callgrind … python -m bench.instructions.marked_server MARKER PIPE [SETTING …]

MARKER is the compiled marker.c. After each dump, one byte is written to the file descriptor PIPE. The first signal only
starts the counting, because starting the server would take a minute with it. It also stops the periodic tasks, which
depend on the time and not on commands.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import sys

# Ids and tokens are the same in every run, because the cost of a hash table depends on them. This comes before the
# imports of modules that keep a reference to the function.
os.urandom = random.Random(1).randbytes
random._urandom = os.urandom

from penstock.cli.main import main  # noqa: E402


async def _sleep_forever(delay: float, result: object = None) -> object:
    await asyncio.get_running_loop().create_future()
    return result


def _serve(library: str, pipe: int, settings: list[str]) -> None:
    # PyDLL keeps the interpreter lock, so that no other thread runs during a dump.
    marker = ctypes.PyDLL(library)
    is_counting = False

    def on_signal(*_: object) -> None:
        nonlocal is_counting
        if is_counting:
            marker.dump()
        else:
            is_counting = True
            asyncio.sleep = _sleep_forever
            marker.start()
        os.write(pipe, b".")

    signal.signal(signal.SIGUSR2, on_signal)
    sys.argv = ["penstock", "serve", *settings]
    main()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
