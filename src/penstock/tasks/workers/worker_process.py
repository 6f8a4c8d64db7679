"""A worker process: `python -m penstock.tasks.workers.worker_process SETTINGS`, as the supervisor starts it.

If the process that it replaces has died, it resumes the session of that process with all its jobs. Those that were
running have failed, because one of them may have killed the process. The other ones are run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
from dataclasses import asdict, dataclass, field
from typing import Final

from penstock import api_async
from penstock.client.async_queue import AsyncQueue
from penstock.core.errors import CommandError, InUse, PenstockError, UnknownSession
from penstock.tasks.app import App
from penstock.tasks.failures import BadTask
from penstock.tasks.workers.loading import load_app
from penstock.tasks.workers.process_state import ProcessState
from penstock.tasks.workers.running import run_until_signal
from penstock.tasks.workers.worker import Worker

_log = logging.getLogger("penstock.tasks")

# The exit codes by which a worker process tells its supervisor why it has ended.
EXIT_USAGE: Final = 2
EXIT_RECYCLE: Final = 98  # It used too much memory, and has drained.

_CHECK_S: Final = 1.0


@dataclass
class Settings:
    """The settings of one worker process."""

    app: str
    tubes: list[str] | None = None
    concurrency: int = 10
    processes: int = 1  # How many processes the supervisor runs.
    drain_s: float = 30.0
    max_memory: int = 0  # Bytes; 0: no limit.
    state_fd: int = -1
    token: str = ""  # The session of the process that this one replaces.
    failed: list[str] = field(default_factory=list)  # The jobs that ran when that process died.
    reason: str = ""  # Why it died.

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(arguments: list[str]) -> int:
    """Run a worker until a signal ends it. Return the exit code."""
    settings = Settings(**json.loads(arguments[0]))
    try:
        app = load_app(settings.app)
        _check_queue(app, settings.processes)
        app.worker_tubes(settings.tubes)
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s", stream=sys.stdout
        )
        return asyncio.run(_run(app, settings))
    except (BadTask, InUse) as error:
        print(f"penstock worker: {error}", file=sys.stderr)
        return EXIT_USAGE
    except PenstockError as error:
        print(f"penstock worker: {error}", file=sys.stderr)
        return 1


def _check_queue(app: App, processes: int) -> None:
    """Raise BadTask if worker processes cannot share the queue of an app."""
    if app.url == ":memory:":
        raise BadTask("a queue in memory belongs to the process that puts its jobs; call app.run() there")
    if app.is_local and processes > 1:
        raise BadTask(
            f"a directory belongs to one process; start 1 process, or run `penstock serve --dir {app.url}` and give "
            "the app the URL penstock://127.0.0.1:7711"
        )


async def _run(app: App, settings: Settings) -> int:
    state = ProcessState(settings.state_fd, settings.concurrency) if settings.state_fd >= 0 else None
    queue = await app.worker_queue()
    held = await _resumed(queue, settings) if settings.token and isinstance(queue, AsyncQueue) else []
    worker = app.worker_on(queue, settings.tubes, concurrency=settings.concurrency, drain=settings.drain_s, state=state)
    worker.admit(held)
    watching = asyncio.ensure_future(_watch_memory(worker, settings.max_memory)) if settings.max_memory else None
    orphaned = asyncio.ensure_future(_stop_if_orphaned(worker, os.getppid()))
    try:
        await run_until_signal(worker)
    finally:
        orphaned.cancel()
        await app.aclose()
    return EXIT_RECYCLE if watching is not None and watching.done() and watching.result() else 0


async def _resumed(queue: AsyncQueue, settings: Settings) -> list[api_async.AsyncJob]:
    """Resume the session of a process that has died. Return the jobs that it had not started."""
    try:
        await queue.identify(settings.token)
    except UnknownSession:
        _log.warning("session of the dead worker has ended: its jobs have returned to their tubes")
        return []
    waiting: list[api_async.AsyncJob] = []
    failed = set(settings.failed)
    for id in await queue.execute("JOB", "HELD"):
        job = await queue.job(id.decode())
        if job.id in failed:
            try:
                await job.nack(settings.reason)
            except CommandError as error:
                _log.warning("job of the dead worker not failed: job=%s error=%r", job.id, str(error))
        else:
            waiting.append(job)
    _log.info("session resumed: failed=%d waiting=%d", len(failed), len(waiting))
    return waiting


async def _stop_if_orphaned(worker: Worker, supervisor: int) -> None:
    """Stop the worker when its supervisor has died, because no other process would."""
    while os.getppid() == supervisor:
        await asyncio.sleep(_CHECK_S)
    _log.warning("supervisor died: shutdown started")
    worker.stop()


async def _watch_memory(worker: Worker, max_memory: int) -> bool:
    """Stop the worker when the process uses too much memory. Return True then."""
    while memory_used() <= max_memory:
        await asyncio.sleep(_CHECK_S)
    _log.warning("memory limit reached: used=%d limit=%d", memory_used(), max_memory)
    worker.stop()
    return True


def memory_used(pid: str = "self") -> int:
    """Return the resident memory of a process in bytes. Without /proc, return the peak of this process."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
