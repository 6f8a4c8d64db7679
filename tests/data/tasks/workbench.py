"""An app for tests with real worker processes. Tasks append lines to files in the directory of the variable MARKS."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import penstock

app = penstock.App(os.environ.get("TASKS_URL"))
MARKS = Path(os.environ.get("MARKS", "."))


def mark(file: str, line: str) -> None:
    """Append a line to a file, in one write."""
    descriptor = os.open(MARKS / file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


@app.task
def add(x: int, y: int) -> int:
    return x + y


def key_of(number: int, keys: int) -> str:
    return f"key {number % keys}"


@app.task(tube="keyed", key=key_of, limit_per_key=1, ttr=20, retry="100x then bury")
def keyed(number: int, keys: int) -> None:
    mark("keyed", f"begin {number % keys} {number} {time.monotonic_ns()}")
    mark("keyed", f"end {number % keys} {number} {time.monotonic_ns()}")


@app.task(tube="deadly", retry="2x then bury")
def kill_worker() -> None:
    mark("deadly", str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(tube="deadly")
async def hang_loop(seconds: float) -> None:
    time.sleep(seconds)


@app.task(tube="deadly", retry="1x then bury")
def eat_memory(megabytes: int) -> None:
    eaten = [bytearray(1 << 20) for _ in range(megabytes)]
    time.sleep(60 if eaten else 0)


@app.task(tube="slow")
def slow(seconds: float) -> str:
    mark("slow", "begin")
    time.sleep(seconds)
    return "slept"


@app.task(tube="slow")
def count(ctx: penstock.Context, to: int, seconds: float) -> int:
    mark("slow", "begin")
    for number in range(1, to + 1):
        ctx.progress(number, to)
        time.sleep(seconds)
    return to


@app.task(tube="steps", retry="100x then bury")
def step(ctx: penstock.Context, level: int, chain: int) -> int:
    mark("steps", f"{chain} {level} {ctx.job.id}")
    return level + 1
