"""The tasks for Celery."""

import os

from celery import Celery

from bench.tasks import meter

app = Celery("bench", broker=os.environ.get("BROKER"))
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 100


@app.task
def noop(total: int) -> None:
    meter.noop(total)


@app.task
def start(sent_ns: int, total: int) -> None:
    meter.start(sent_ns, total)


def fill(count: int) -> None:
    for _ in range(count):
        noop.delay(count)


def put_start(sent_ns: int, total: int) -> None:
    start.delay(sent_ns, total)
