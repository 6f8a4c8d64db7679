"""Penstock: a job queue. This is the public API, by explicit list; the code is in the packages below."""

from penstock._version import __version__
from penstock.client.async_queue import connect_async
from penstock.client.queue import connect
from penstock.core.errors import CommandError, ConnectionLost, NoServer, PenstockError
from penstock.core.policy import TubePolicy
from penstock.drivers import register_driver
from penstock.embedded import Job, Queue, Tube, open
from penstock.embedded_async import AsyncJob, AsyncQueue, AsyncTube, open_async

__all__ = [
    "AsyncJob",
    "AsyncQueue",
    "AsyncTube",
    "CommandError",
    "ConnectionLost",
    "Job",
    "NoServer",
    "PenstockError",
    "Queue",
    "Tube",
    "TubePolicy",
    "__version__",
    "connect",
    "connect_async",
    "open",
    "open_async",
    "register_driver",
]
