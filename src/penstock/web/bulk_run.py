"""One action on many jobs: a list of ids, or all jobs that a filter matches.

A run is bounded in jobs and in time. If it stops early, its result has a cursor with which the next request continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from penstock.client.commands import NO_REPEAT, items, octets
from penstock.core.errors import CommandError, UnknownJob
from penstock.web.cursors import read_cursor, write_cursor
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of, id_of, text_of
from penstock.web.refusals import refusal_of

Words = list[bytes]

# How long a run may last. A client that wants more continues with the cursor.
RUN_S: Final = 20.0
# How many commands are sent before their replies are awaited.
_CHUNK: Final = 100
_PAGE: Final = 1_000
_SAMPLE: Final = 20
_FAILURES_SHOWN: Final = 100


class BulkRun:
    """Applies an action to jobs."""

    def __init__(
        self,
        exchange: Exchange,
        words: Callable[[bytes], Words],
        *,
        limit: int,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> None:
        """`words` returns the command for a job. With `rate`, at most this many jobs are changed per second."""
        self._exchange = exchange
        self._words = words
        self._limit = limit
        self._rate = rate
        self._dry_run = dry_run
        self._until = time.monotonic() + RUN_S
        self._started = time.monotonic()
        self.matched = 0
        self.done = 0
        self.failed = 0
        self.failures: list[dict[str, Any]] = []
        self.sample: list[str] = []
        self.cursor: str | None = None

    def result(self) -> dict[str, Any]:
        return {
            "dry_run": self._dry_run,
            "matched": self.matched,
            "done": self.done,
            "failed": self.failed,
            "failures": self.failures,
            "sample": self.sample,
            "cursor": self.cursor,
        }

    async def on_ids(self, ids: list[str]) -> dict[str, Any]:
        """Run on these jobs."""
        await self._apply([id_of(bytes_of(id)) for id in ids])
        return self.result()

    async def on_filter(self, kind: str, words: Words, cursor: str | None) -> dict[str, Any]:
        """Run on the jobs that a scan finds. `words` are the filter, and `kind` is the kind of the cursor."""
        after = 0 if cursor is None else read_cursor(kind, cursor, int)[0] % 2**63
        async for ids, following in self._pages(after, words):
            await self._apply(ids)
            if following and (self.matched >= self._limit or time.monotonic() >= self._until):
                self.cursor = write_cursor(kind, following)
                break
        return self.result()

    async def _pages(self, cursor: int, words: Words) -> AsyncIterator[tuple[list[bytes], int]]:
        while True:
            count = max(1, min(_PAGE, self._limit - self.matched))
            # With a condition, the node returns at most `count` jobs.
            condition = [] if b"WHERE" in words else [b"WHERE", b"true"]
            scan = [b"JOB", b"SCAN", b"%d" % cursor, b"COUNT", b"%d" % count, *words, *condition, b"IDS"]
            answer = await self._exchange.ask(*scan, alone=True)
            cursor = int(octets(answer[0]))
            yield [octets(id) for id in items(answer[1])], cursor
            if cursor == 0:
                return

    async def _apply(self, ids: list[bytes]) -> None:
        for id in ids[: _SAMPLE - len(self.sample)]:
            self.sample.append(text_of(id))
        if self._dry_run:
            self.matched += len(ids)
            return
        chunk = _CHUNK if self._rate is None else max(1, min(_CHUNK, int(self._rate)))
        for at in range(0, len(ids), chunk):
            await self._pace()
            some = ids[at : at + chunk]
            self.matched += len(some)
            results = await asyncio.gather(*(self._run(id) for id in some), return_exceptions=True)
            for id, result in zip(some, results, strict=True):
                if isinstance(result, CommandError):
                    self._fail(id, result)
                elif isinstance(result, BaseException):
                    raise result
                else:
                    self.done += 1

    async def _run(self, id: bytes) -> None:
        answer = await self._exchange.ask(*self._words(id), repeat=NO_REPEAT)
        if answer == 0:
            raise UnknownJob()

    async def _pace(self) -> None:
        """Wait until the rate allows the next chunk."""
        if self._rate is not None:
            early_s = self._started + self.matched / self._rate - time.monotonic()
            if early_s > 0:
                await asyncio.sleep(early_s)

    def _fail(self, id: bytes, error: CommandError) -> None:
        self.failed += 1
        if len(self.failures) < _FAILURES_SHOWN:
            refused = refusal_of(error)
            self.failures.append({"id": text_of(id), "code": refused.code, "message": refused.message})
