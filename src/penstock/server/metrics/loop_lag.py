"""The lag of the event loop: how late it runs a timer. While a callback is slow, all clients wait as long."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.core.statistics.histogram import Histogram

_INTERVAL_S: Final = 0.1


class LoopLag:
    """Measures the lag of an event loop ten times a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag_us = Histogram()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_at(
            self._loop.time() + _INTERVAL_S, self._measure, self._loop.time() + _INTERVAL_S
        )

    def _measure(self, due: float) -> None:
        self.lag_us.add(int((self._loop.time() - due) * 1_000_000))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
