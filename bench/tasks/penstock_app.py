"""The tasks for Penstock."""

import os

import penstock
from bench.tasks import meter

app = penstock.App(os.environ.get("BROKER"))


@app.task
def noop(total: int) -> None:
    meter.noop(total)


@app.task
def start(sent_ns: int, total: int) -> None:
    meter.start(sent_ns, total)


@app.task
def spin(rounds: int, total: int) -> None:
    meter.spin(rounds, total)


def fill(count: int) -> None:
    for begin in range(0, count, 1_000):
        noop.put_many(noop.call(count) for _ in range(min(1_000, count - begin)))


def put_start(sent_ns: int, total: int) -> None:
    start.put(sent_ns, total)
