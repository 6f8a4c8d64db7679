"""Penstock: a job queue. This is the public API, by explicit list; the code is in the packages below.

A name is imported when it is asked for first: `penstock --help` need not wait for an engine, nor a client for one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock._version import __version__

if TYPE_CHECKING:
    from penstock.client.async_queue import connect_async
    from penstock.client.queue import connect
    from penstock.core.errors import CommandError, ConnectionLost, NoServer, PenstockError
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
    "ConnectionLost",
    "Job",
    "NoServer",
    "PenstockError",
    "Queue",
    "Stage",
    "Tube",
    "TubePolicy",
    "__version__",
    "connect",
    "connect_async",
    "open",
    "open_async",
    "register_driver",
]

_MODULES = {
    "client.async_queue": ["connect_async"],
    "client.queue": ["connect"],
    "core.errors": ["CommandError", "ConnectionLost", "NoServer", "PenstockError"],
    "core.policy": ["TubePolicy"],
    "drivers": ["register_driver"],
    "embedded": ["Job", "Queue", "Stage", "Tube", "open"],
    "embedded_async": ["AsyncJob", "AsyncQueue", "AsyncStage", "AsyncTube", "open_async"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

# A type checker sees the imports above, and would take any name for one of ours if it saw this.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return list(__all__)
