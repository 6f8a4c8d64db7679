"""The stream of new events of the journal, for a live view.

Each stream reads the journal once per tick, and sends what is new. A stream that cannot keep up with the node skips
events and says how many. A program that needs all events reads pages of the journal instead.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import items, number
from penstock.core.errors import PenstockError
from penstock.web import node_replies
from penstock.web.event_feed import Stream, message
from penstock.web.exchange import Exchange
from penstock.web.hidden_bodies import without_bodies
from penstock.web.refusals import Refused, refusal_of

# Events that one tick reads. Older ones are skipped.
EVENTS_MAX: Final = 500

_FINAL: Final = frozenset(["NOAUTH", "WRONGPASS", "NOPERM", "BADTOKEN", "NOTUBE", "NOJOURNAL"])


class JournalFeed:
    """Reads the journal for one stream."""

    def __init__(self, exchange: Exchange, stream: Stream, tube: bytes | None, wanted: list[str] | None) -> None:
        """Send only events of this tube, and only the wanted ones."""
        self._exchange = exchange
        self._stream = stream
        self._tube = tube
        self._wanted = None if wanted is None else frozenset(wanted)
        self._position = 0  # The first position that was not read.
        self._error = ""

    async def begin(self) -> None:
        """Start with the newest events. Raise an error if the user may not read the journal."""
        first, written = await self._head()
        self._position = max(first, written + 1 - EVENTS_MAX)
        self._stream.send(message("events", await self._read(0)))
        task = asyncio.ensure_future(self._follow())
        self._stream.on_close = lambda: _cancel(task)

    async def _follow(self) -> None:
        while not self._stream.has_ended:
            await asyncio.sleep(self._exchange.settings.tick_s)
            try:
                found = await self._read(self._skipped(*await self._head()))
            except (PenstockError, OSError, EOFError, Refused) as error:
                self._fail(refusal_of(error))
            else:
                self._error = ""
                name = "events" if found["events"] or found["skipped"] else "tick"
                self._stream.send(message(name, found if name == "events" else {"at_ms": found["at_ms"]}))

    async def _head(self) -> tuple[int, int]:
        head = await self._exchange.ask(b"JOURNAL", b"HEAD")
        return number(head[b"first"]), number(head[b"written"])

    def _skipped(self, first: int, written: int) -> int:
        """Skip events if there are too many new ones. Return their number."""
        start = max(self._position, first, written + 1 - EVENTS_MAX)
        if start > written + 1:
            start = written + 1  # Another node, or an older journal, answers now.
        skipped, self._position = max(0, start - self._position), start
        return skipped

    async def _read(self, skipped: int) -> dict[str, Any]:
        words = [b"JOURNAL", b"EVENTS", b"%d" % self._position, b"COUNT", b"%d" % EVENTS_MAX]
        if self._tube is not None:
            words += [b"TUBE", self._tube]
        answer = await self._exchange.ask(*words)
        self._position = number(answer[0])
        events = [commands.event(each) for each in items(answer[1])]
        found = [node_replies.event(each) for each in events if self._wanted is None or each.event in self._wanted]
        if self._exchange.settings.hide_bodies:
            found = without_bodies(found)
        # The newest event is first, as in the view.
        return {"at_ms": time.time_ns() // 1_000_000, "skipped": skipped, "events": found[::-1]}

    def _fail(self, refused: Refused) -> None:
        """Report an error once. Some end the stream."""
        if refused.code != self._error:
            self._error = refused.code
            self._stream.send(message("error", refused.document()))
        if refused.code in _FINAL:
            self._stream.end()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
