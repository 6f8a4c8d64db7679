"""The stream of new events of the journal, for a live view.

The streams of a user on the same tube, or on all tubes, share a reader. It reads the journal once per tick, no matter
how many streams are open. A reader that cannot keep up with the node skips events, and the streams say how many. A
program that needs all events reads pages of the journal instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Any, Final

from penstock.client import commands
from penstock.client.commands import REPEAT, Call, items, number
from penstock.core.errors import PenstockError
from penstock.journal.history.reader import Event
from penstock.web import node_replies
from penstock.web.event_feed import FINAL_ERRORS, Stream, message
from penstock.web.hidden_bodies import without_bodies
from penstock.web.node_pool import NodePool
from penstock.web.refusals import Refused, refusal_of
from penstock.web.settings import Settings

# Events that one tick reads, and that a new stream gets. Older ones are skipped.
EVENTS_MAX: Final = 500

_FINAL: Final = FINAL_ERRORS | {"NOTUBE", "NOJOURNAL"}

Wanted = frozenset[str] | None

_log = logging.getLogger("penstock.web")


class _Reader:
    """Reads the journal for the streams of one user on a tube, or on all tubes."""

    def __init__(self, pool: NodePool, settings: Settings, tube: bytes | None) -> None:
        self._pool = pool
        self._settings = settings
        self._tube = tube
        self._streams: dict[Stream, Wanted] = {}  # The events that each stream wants; None is all.
        self._recent: deque[Event] = deque(maxlen=EVENTS_MAX)  # What a new stream gets.
        self._position = 0  # The first position that was not read.
        self._error = ""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    async def check(self, stream: Stream) -> None:
        """Raise an error if the user may not read the journal. The first check reads the newest events."""
        first, written = await self._head(stream)
        if not self._position:
            self._position = max(first, written + 1 - EVENTS_MAX)
            await self._read(stream)

    def add(self, stream: Stream, wanted: Wanted) -> None:
        self._streams[stream] = wanted
        stream.send(self._message(list(self._recent), 0, wanted))
        if self._task is None:
            self._task = asyncio.ensure_future(self._follow())

    def remove(self, stream: Stream) -> None:
        self._streams.pop(stream, None)
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = None

    def stop(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.end()
            self.remove(stream)

    async def _follow(self) -> None:
        while self._streams:
            await asyncio.sleep(self._settings.tick_s)
            stream = next(iter(self._streams))
            try:
                skipped = self._skipped(*await self._head(stream))
                events = await self._read(stream)
            except (PenstockError, OSError, EOFError, Refused) as error:
                self._fail(refusal_of(error))
            except Exception:
                _log.exception("journal stream failed")
                self._fail(Refused("INTERNAL", "the journal stream failed; the log of the API has the reason"))
            else:
                self._error = ""
                self._publish(events, skipped)

    async def _head(self, stream: Stream) -> tuple[int, int]:
        head = await self._ask(stream, b"JOURNAL", b"HEAD")
        return number(head[b"first"]), number(head[b"written"])

    def _skipped(self, first: int, written: int) -> int:
        """Skip events if there are too many new ones. Return their number."""
        start = max(self._position, first, written + 1 - EVENTS_MAX)
        if start > written + 1:
            start = written + 1  # Another node, or an older journal, answers now.
        skipped, self._position = max(0, start - self._position), start
        return skipped

    async def _read(self, stream: Stream) -> list[Event]:
        """Read the events that are new, in the name of this stream's user."""
        words = [b"JOURNAL", b"EVENTS", b"%d" % self._position, b"COUNT", b"%d" % EVENTS_MAX]
        if self._tube is not None:
            words += [b"TUBE", self._tube]
        answer = await self._ask(stream, *words)
        self._position = number(answer[0])
        events = [commands.event(each) for each in items(answer[1])]
        self._recent.extend(events)
        return events

    async def _ask(self, stream: Stream, *words: bytes) -> Any:
        return await self._pool.run(stream.who, Call(list(words), _same, REPEAT), stream.client)

    def _publish(self, events: list[Event], skipped: int) -> None:
        """Send new events to all streams. Streams that want the same events get the same bytes."""
        made: dict[Wanted, bytes] = {}
        for stream, wanted in list(self._streams.items()):
            if wanted not in made:
                made[wanted] = self._message(events, skipped, wanted, may_be_tick=True)
            stream.send(made[wanted])

    def _message(self, events: list[Event], skipped: int, wanted: Wanted, may_be_tick: bool = False) -> bytes:
        at = {"at_ms": time.time_ns() // 1_000_000}
        found = [node_replies.event(each) for each in events if wanted is None or each.event in wanted]
        if may_be_tick and not found and not skipped:
            return message("tick", at)
        if self._settings.hide_bodies:
            found = without_bodies(found)
        # The newest event is first, as in the view.
        return message("events", {**at, "skipped": skipped, "events": found[::-1]})

    def _fail(self, refused: Refused) -> None:
        """Report an error once. Some end the streams."""
        if refused.code != self._error:
            self._error = refused.code
            for stream in self._streams:
                stream.send(message("error", refused.document()))
        if refused.code in _FINAL:
            self.stop()


class JournalFeeds:
    """The readers of all users."""

    def __init__(self, pool: NodePool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._readers: dict[tuple[bytes, bytes | None], _Reader] = {}

    def __len__(self) -> int:
        """Return the number of open streams."""
        return sum(len(reader) for reader in self._readers.values())

    async def open(self, stream: Stream, tube: bytes | None, wanted: Wanted) -> None:
        """Start to send to a stream. Raise an error if the user may not read the journal."""
        key = (stream.who.key, tube)
        reader = self._readers.get(key) or _Reader(self._pool, self._settings, tube)
        await reader.check(stream)
        # Another request may have opened or closed a reader in the meantime.
        reader = self._readers.setdefault(key, reader)
        stream.on_close = lambda: self._close(key, stream)
        reader.add(stream, wanted)

    def _close(self, key: tuple[bytes, bytes | None], stream: Stream) -> None:
        reader = self._readers.get(key)
        if reader is not None:
            reader.remove(stream)
            if not len(reader):
                del self._readers[key]

    def stop(self) -> None:
        """End all streams."""
        for reader in self._readers.values():
            reader.stop()


def _same(answer: Any) -> Any:
    return answer
