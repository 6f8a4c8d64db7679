"""The tasks for Dramatiq."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.tasks import meter

dramatiq.set_broker(RedisBroker(url=os.environ["BROKER"]))


@dramatiq.actor
def noop(total: int) -> None:
    meter.noop(total)


@dramatiq.actor
def start(sent_ns: int, total: int) -> None:
    meter.start(sent_ns, total)


def fill(count: int) -> None:
    for _ in range(count):
        noop.send(count)


def put_start(sent_ns: int, total: int) -> None:
    start.send(sent_ns, total)
