"""JOB HISTORY: the events of a job, read from the log in a thread."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.core.ids import NOT_AN_ID
from penstock.dialects.pages import SCAN_SLICE, PagedReply
from penstock.journal.history.reader import EVENT_FIELDS, Event, plain_number
from penstock.node.caller import check_tube
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.reply import Reply

# The size of an event in the reply, without its body and its reason.
_EVENT_BYTES: Final = 500


class HistoryCommands:
    """The commands that read the log."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def history(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JOB HISTORY id: reply with all events of a job, even if the job has ended."""
        server = self._server
        number = plain_number(args[2].decode("utf-8", "replace"))
        if number == NOT_AN_ID:
            number = server.native.number(caller, args[2], now)
        journal = server.host.require_journal()
        caller.busy = True

        def read() -> list[Event]:
            # The thread may start late. It does not read for a client that has left.
            return [] if caller.lost else journal.history(number)

        reading = server.loop.run_in_executor(server.readers, read)
        reading.add_done_callback(lambda done: self._reply(caller, done))

    def _reply(self, caller: Connection, reading: asyncio.Future[list[Event]]) -> None:
        """Start to reply with the events that were read. The reply is written in slices."""
        if not caller.lost:
            self._server.turn.begin()
            self._server.turn.start_long(caller, _Events(reading))


class _Events(PagedReply):
    """The reply of JOB HISTORY: a list of events, each a map of its known fields."""

    def __init__(self, reading: asyncio.Future[list[Event]]) -> None:
        super().__init__()
        self._reading = reading

    def scan(self, caller: Connection, now: int) -> bool:  # type: ignore[override]
        # If the log could not be read, this raises the error for the reply.
        events = self._reading.result()
        page = self.page(caller)
        for event in events[self.found : self.found + SCAN_SLICE]:
            # A row of an unknown tube counts as a tube that the caller may not use.
            check_tube(caller, event.raw_tube or b"")
            if not self.fits(page, _EVENT_BYTES + _length(event), True):
                break
            write_event(page, event)
            self.found += 1
        self.add(page)
        return self.found == len(events)


def _length(event: Event) -> int:
    headers = 0 if event.headers is None else sum(len(name) + len(value) for name, value in event.headers.items())
    return len(event.body or b"") + len(event.reason or "") + headers


def write_event(reply: Reply, event: Event) -> None:
    """Write an event as a map. The names are those of the Python class `Event`; unknown fields are left out."""
    told = {name: value for name in EVENT_FIELDS if (value := getattr(event, name)) is not None}
    reply.map(len(told))
    for name, value in told.items():
        reply.bulk(name.encode())
        if isinstance(value, int):
            reply.integer(value)
        elif isinstance(value, dict):
            reply.map(len(value))
            for header, text in value.items():
                reply.bulk(header.encode())
                reply.bulk(text.encode("utf-8", "surrogateescape"))
        else:
            reply.bulk(value if isinstance(value, bytes) else value.encode("utf-8", "backslashreplace"))
