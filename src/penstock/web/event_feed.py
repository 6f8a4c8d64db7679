"""The event stream of the API: server-sent events with the present numbers of the tubes.

One poller for each user reads the node once per tick, no matter how many streams are open. What a tick sends is encoded
once, and all streams with the same topics send the same bytes. A tick sends only what has changed. A new stream first
gets everything.

A client that does not read its stream is disconnected when QUEUE_MAX ticks wait for it. Browsers then connect again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from penstock.client.commands import REPEAT, Call
from penstock.core.errors import PenstockError
from penstock.web import node_replies
from penstock.web.credentials import Credentials
from penstock.web.json_text import encode
from penstock.web.live.tube_samples import RATES, Row, TubeSampler
from penstock.web.names import text_of
from penstock.web.node_pool import NodePool
from penstock.web.refusals import Refused, refusal_of
from penstock.web.settings import Settings

QUEUE_MAX: Final = 16
TOPICS_MAX: Final = 32

# A stream without changes sends a comment this often, so that proxies keep it open.
HEARTBEAT_S: Final = 15.0
HEARTBEAT: Final = b": still here\n\n"

# Reading the node takes at most this share of the time. With very many tubes, ticks become less frequent.
_SHARE: Final = 0.1

# Samplers of users without streams are kept for the rates in their requests.
_SAMPLERS_MAX: Final = 1_000

# Errors after which a stream ends, because the user may not read any more.
FINAL_ERRORS: Final = frozenset(["NOAUTH", "WRONGPASS", "NOPERM", "BADTOKEN"])

OVERVIEW: Final = "overview"
TUBES: Final = "tubes"
TUBE: Final = "tube:"

_log = logging.getLogger("penstock.web")


def message(name: str, data: Any) -> bytes:
    """Return a server-sent event. JSON contains no line breaks."""
    return f"event: {name}\ndata: {encode(data)}\n\n".encode()


class Stream:
    """One open event stream."""

    def __init__(self, who: Credentials, client: str, topics: frozenset[str]) -> None:
        self.who = who
        self.client = client
        self.topics = topics
        self.is_new = True
        self.has_ended = False
        self.overflowed = asyncio.Event()
        self.on_close: Callable[[], None] = _nothing
        self._queue: deque[bytes] = deque()
        self._arrived = asyncio.Event()

    def send(self, data: bytes) -> None:
        """Add data to the stream. A stream that does not read ends."""
        if len(self._queue) >= QUEUE_MAX:
            self.overflowed.set()
        else:
            self._queue.append(data)
            self._arrived.set()

    def end(self) -> None:
        """End the stream after the data that waits for it."""
        self.has_ended = True
        self._arrived.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Return the data of the stream as it arrives."""
        yield b"retry: 2000\n\n"
        while True:
            if not self._queue and not self.has_ended:
                self._arrived.clear()
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._arrived.wait()
                except TimeoutError:
                    yield HEARTBEAT
                    continue
            if self._queue:
                yield self._queue.popleft()
            elif self.has_ended:
                return


class _Picture:
    """What the last tick read: the state that a new stream gets."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.overview: dict[str, Any] | None = None
        self.tubes: dict[str, Row] | None = None
        self.single: dict[str, dict[str, Any]] = {}


class _Feed:
    """The poller of one user, and the streams of the user."""

    def __init__(self, pool: NodePool, sampler: TubeSampler, settings: Settings) -> None:
        self._pool = pool
        self._sampler = sampler
        self._settings = settings
        self.streams: dict[Stream, None] = {}
        self._last: _Picture | None = None
        self._error = ""
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.ticks = 0

    def add(self, stream: Stream) -> None:
        self.streams[stream] = None
        if self._last is not None and self._covers(self._last, stream.topics) and not self._error:
            stream.is_new = False
            stream.send(_everything(self._last, stream.topics))
        else:
            self._hurry.set()  # A stream on a new topic need not wait for the next tick.
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._poll())

    def remove(self, stream: Stream) -> None:
        self.streams.pop(stream, None)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for stream in list(self.streams):
            stream.end()

    def _covers(self, picture: _Picture, topics: frozenset[str]) -> bool:
        return all(
            (topic == OVERVIEW and picture.overview is not None)
            or (topic == TUBES and picture.tubes is not None)
            or topic in picture.single
            for topic in topics
        )

    async def _poll(self) -> None:
        """Read the node once per tick, until there are no streams."""
        while self.streams:
            self._hurry.clear()
            start = time.monotonic()
            try:
                picture = await self._read()
            except asyncio.CancelledError:
                raise
            except (PenstockError, OSError, EOFError, Refused) as error:
                self._fail(refusal_of(error))
            except Exception:
                _log.exception("event stream failed")
                self._fail(Refused("INTERNAL", "the event stream failed; the log of the API has the reason"))
            else:
                self.ticks += 1
                self._publish(picture)
            spent = time.monotonic() - start
            try:
                async with asyncio.timeout(max(self._settings.tick_s - spent, spent * (1 / _SHARE - 1))):
                    await self._hurry.wait()
            except TimeoutError:
                pass
        self._last = None

    async def _read(self) -> _Picture:
        picture = _Picture(time.time_ns() // 1_000_000)
        topics = frozenset().union(*(stream.topics for stream in self.streams))
        reader = next(reversed(self.streams))  # The newest credentials are the ones that expire last.
        if OVERVIEW in topics or TUBES in topics:
            rows = await self._sampler.read(self._pool, reader.who, reader.client)
            picture.tubes = {row["name"]: row for row in rows}
            picture.overview = totals(rows)
        single = sorted(topic for topic in topics if topic.startswith(TUBE))
        found = await asyncio.gather(*(self._read_tube(reader, topic) for topic in single))
        picture.single = dict(zip(single, found, strict=True))
        return picture

    async def _read_tube(self, reader: Stream, topic: str) -> dict[str, Any]:
        name = topic.removeprefix(TUBE).encode("utf-8", "surrogateescape")
        call = Call([b"TUBE", b"STATS", name], node_replies.tube_row, REPEAT)
        try:
            return await self._pool.run(reader.who, call, reader.client)
        except PenstockError as error:
            refused = refusal_of(error)
            if refused.status not in (400, 403, 404):
                raise
            return {"name": text_of(name), **refused.document()}

    def _publish(self, picture: _Picture) -> None:
        """Send the differences to all streams, and everything to the new ones."""
        before, self._last = self._last, picture
        has_recovered, self._error = bool(self._error), ""
        made: dict[tuple[frozenset[str], bool], bytes] = {}
        # Without changes, a stream still shows that its numbers are those of now.
        tick = message("tick", {"at_ms": picture.at_ms})
        for stream in list(self.streams):
            kind = (stream.topics, stream.is_new or before is None or has_recovered)
            data = made.get(kind)
            if data is None:
                full = kind[1] or before is None or not self._covers(before, stream.topics)
                data = made[kind] = (
                    _everything(picture, stream.topics)
                    if full or before is None
                    else _changes(before, picture, stream.topics)
                )
            stream.is_new = False
            stream.send(data or tick)

    def _fail(self, refused: Refused) -> None:
        """Report an error once. If the user may not read any more, the streams end."""
        is_final = refused.code in FINAL_ERRORS
        if refused.code != self._error or is_final:
            self._error = refused.code
            data = message("error", refused.document())
            for stream in list(self.streams):
                stream.send(data)
                if is_final:
                    stream.end()
                    self.remove(stream)


class EventFeeds:
    """All feeds, by the credentials of their users."""

    def __init__(self, pool: NodePool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._feeds: dict[bytes, _Feed] = {}
        self._samplers: dict[bytes, TubeSampler] = {}

    def __len__(self) -> int:
        """Return the number of open streams."""
        return sum(len(feed.streams) for feed in self._feeds.values())

    @property
    def ticks(self) -> int:
        return sum(feed.ticks for feed in self._feeds.values())

    def sampler(self, who: Credentials) -> TubeSampler:
        """Return the sampler of a user."""
        sampler = self._samplers.pop(who.key, None) or TubeSampler()
        self._samplers[who.key] = sampler
        if len(self._samplers) > _SAMPLERS_MAX:
            del self._samplers[next(iter(self._samplers))]
        return sampler

    def open(self, stream: Stream) -> None:
        """Start to send to a stream."""
        feed = self._feeds.get(stream.who.key)
        if feed is None:
            feed = self._feeds[stream.who.key] = _Feed(self._pool, self.sampler(stream.who), self._settings)
        stream.on_close = lambda: self._close(stream)
        feed.add(stream)

    def _close(self, stream: Stream) -> None:
        feed = self._feeds.get(stream.who.key)
        if feed is not None:
            feed.remove(stream)
            if not feed.streams:
                feed.stop()
                del self._feeds[stream.who.key]

    def stop(self) -> None:
        """End all streams."""
        for feed in self._feeds.values():
            feed.stop()


def _nothing() -> None:
    pass


def totals(rows: list[Row]) -> dict[str, Any]:
    """Return the sums over all tubes."""
    found: dict[str, Any] = {"tubes": len(rows)}
    for state in node_replies.STATES:
        found[state] = sum(row[state] for row in rows)
    oldest = [row["oldest_ms"] for row in rows if row["oldest_ms"] is not None]
    found["oldest_ms"] = max(oldest, default=None)
    found["consumers"] = sum(row["consumers"] for row in rows)
    for rate in RATES:
        known = [row[rate] for row in rows if row[rate] is not None]
        found[rate] = round(sum(known), 3) if known else None
    found["paused"] = sum(row["paused_in"] or row["paused_out"] for row in rows)
    return found


def _everything(picture: _Picture, topics: frozenset[str]) -> bytes:
    at = {"at_ms": picture.at_ms}
    parts = []
    if OVERVIEW in topics and picture.overview is not None:
        parts.append(message(OVERVIEW, {**at, **picture.overview}))
    if TUBES in topics and picture.tubes is not None:
        parts.append(message(TUBES, {**at, "full": True, "tubes": list(picture.tubes.values()), "gone": []}))
    for topic in sorted(topics):
        if topic.startswith(TUBE) and topic in picture.single:
            parts.append(message("tube", {**at, **picture.single[topic]}))
    return b"".join(parts)


def _changes(before: _Picture, now: _Picture, topics: frozenset[str]) -> bytes:
    at = {"at_ms": now.at_ms}
    parts = []
    if OVERVIEW in topics and now.overview != before.overview:
        parts.append(message(OVERVIEW, {**at, **(now.overview or {})}))
    if TUBES in topics:
        old, new = before.tubes or {}, now.tubes or {}
        changed = [row for name, row in new.items() if old.get(name) != row]
        gone = [name for name in old if name not in new]
        if changed or gone:
            parts.append(message(TUBES, {**at, "full": False, "tubes": changed, "gone": gone}))
    for topic in sorted(topics):
        if topic.startswith(TUBE) and now.single.get(topic) != before.single.get(topic):
            parts.append(message("tube", {**at, **now.single[topic]}))
    return b"".join(parts)
