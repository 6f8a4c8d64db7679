"""Runs a worker as the main part of a process: with signals, until one of them stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

from penstock.tasks.workers.worker import Worker

_log = logging.getLogger("penstock.tasks")


async def run_until_signal(worker: Worker) -> None:
    """Run a worker until SIGTERM or SIGINT. A second signal has its usual effect: it ends the process."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _log.info("shutdown started: signal=%s", number.name)
        worker.stop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Only the main thread can handle signals. Other threads call `worker.stop`.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, stop, number)
    try:
        await worker.run()
    finally:
        await worker.close()
