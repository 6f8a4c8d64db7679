"""JOB HISTORY: what happened to a job, read from the log while everybody else is served."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.dialects.command import check_tube
from penstock.dialects.pages import LOOK_SLICE, Pages
from penstock.journal.reader import TOLD_FIELDS, Event
from penstock.server.connection import Connection
from penstock.server.server import Server
from penstock.wire.reply import Reply

# What is told of an event beside its body and its reason.
_TOLD_BYTES: Final = 500


class HistoryCommands:
    """The commands that read the log."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def history(self, caller: Connection, args: list[bytes], now: int) -> None:
        """JOB HISTORY id"""
        server = self._server
        number = server.native.number(caller, args[2], now)
        journal = server.host.has_journal()
        caller.busy = True

        def read() -> list[Event]:
            # It may be long until one's turn comes; nobody reads for one who has left meanwhile.
            return [] if caller.lost else journal.history(number)

        reading = server.loop.run_in_executor(server.readers, read)
        reading.add_done_callback(lambda done: self._was_read(caller, done))

    def _was_read(self, caller: Connection, reading: asyncio.Future[list[Event]]) -> None:
        """Answer with what was read, in slices."""
        if not caller.lost:
            self._server.node.begin_turn()
            self._server.node.start_long(caller, _Events(reading))


class _Events(Pages):
    """Events, each a map of what is known of it."""

    def __init__(self, reading: asyncio.Future[list[Event]]) -> None:
        super().__init__()
        self._reading = reading

    def look(self, caller: Connection, now: int) -> bool:  # type: ignore[override]
        """Write the next events."""
        # Raises, where they could not be read: that is the answer then.
        events = self._reading.result()
        page = self.page(caller)
        for event in events[self.found : self.found + LOOK_SLICE]:
            # A row of a tube whose name is not known is of no tube that the caller may use.
            check_tube(caller, event.raw_tube or b"")
            if not self.fits(page, _TOLD_BYTES + len(event.body or b"") + len(event.reason or ""), True):
                break
            write_event(page, event)
            self.found += 1
        self.add(page)
        return self.found == len(events)


def write_event(reply: Reply, event: Event) -> None:
    """What happened, under the names that the log's readers know; what is not known is left out."""
    told = {name: value for name in TOLD_FIELDS if (value := getattr(event, name)) is not None}
    reply.map(len(told))
    for name, value in told.items():
        reply.bulk(name.encode())
        if isinstance(value, int):
            reply.integer(value)
        else:
            reply.bulk(value if isinstance(value, bytes) else value.encode("utf-8", "backslashreplace"))
