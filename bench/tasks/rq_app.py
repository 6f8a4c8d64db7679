"""The tasks for RQ."""

import os

from redis import Redis
from rq import Queue

from bench.tasks import meter

queue = Queue(connection=Redis.from_url(os.environ["BROKER"]))


def fill(count: int) -> None:
    for begin in range(0, count, 1_000):
        some = min(1_000, count - begin)
        queue.enqueue_many([Queue.prepare_data(meter.noop, (count,), result_ttl=0) for _ in range(some)])


def put_start(sent_ns: int, total: int) -> None:
    queue.enqueue(meter.start, sent_ns, total, result_ttl=0)
