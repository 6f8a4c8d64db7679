"""Rows of the log that readers of events need besides those of jobs: the lives of tubes and the names of clients."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.journal import layout

# The events of tubes that are reported, by their number in the log.
TUBE_EVENTS: Final[dict[int, str]] = {
    layout.TUBE_MADE: "made",
    layout.TUBE_CHANGED: "changed",  # Its policy was changed, or it was paused or resumed.
    layout.TUBE_DROPPED: "dropped",
    # Every segment names the tubes that it uses.
    layout.INTEGERS_RESERVED: "named",
    layout.TUBE_NAMED: "named",
}


class TubeRow(NamedTuple):
    """An event in the life of a tube."""

    position: int
    time: int  # In ms.
    number: int  # Never reused within a log, unlike the name.
    name: bytes
    event: str  # A value of TUBE_EVENTS.
    fields: bytes | None  # For `decode_tube_fields`, if the event is "made" or "changed".


class SessionRow(NamedTuple):
    """The name and the user of a session. The last row of a session counts, and every segment repeats it."""

    position: int
    number: int  # Never reused within a log.
    name: bytes  # Empty if the client has no name.
    user: bytes  # Empty if the client has not logged in.
