"""Penstock: a job queue. This is the public API, by explicit list; the code is in the packages below."""

from penstock._version import __version__
from penstock.core.errors import CommandError, PenstockError
from penstock.core.policy import TubePolicy
from penstock.drivers import register_driver
from penstock.embedded import Job, Queue, Stage, Tube, open
from penstock.embedded_async import AsyncJob, AsyncQueue, AsyncStage, AsyncTube, open_async

__all__ = [
    "AsyncJob",
    "AsyncQueue",
    "AsyncStage",
    "AsyncTube",
    "CommandError",
    "Job",
    "PenstockError",
    "Queue",
    "Stage",
    "Tube",
    "TubePolicy",
    "__version__",
    "open",
    "open_async",
    "register_driver",
]
