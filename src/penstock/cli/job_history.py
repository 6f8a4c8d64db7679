"""The history of a job in words: its events, and the time it spent in each state.

This module does no I/O. Its input is a list of events and, if the job may still exist, the current time. An event
becomes a line with its time. The time between two changes of state becomes a line without a time, before the change
that ended it:

    2026-11-16 05:49:40.387  put into emails
                             waited 3.2 s
    2026-11-16 05:49:43.587  taken by session 7 (delivery 1)
                             ran 41 s, ttr 1 min
    2026-11-16 05:50:24.587  acked, 44 s after it was put
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.cli.formats import duration_text
from penstock.journal.history.reader import Event
from penstock.wire.quoting import printable


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One line of the history."""

    words: str
    event: Event | None = None  # None for a line about the time between two events.


def describe(events: list[Event], now_ms: int | None = None) -> list[HistoryLine]:
    """Describe the events of one job, oldest first. If the job still exists, the last line is its state at `now_ms`."""
    lines: list[HistoryLine] = []
    if events and events[0].before != "gone":
        lines.append(HistoryLine("earlier history is no longer kept"))
    since: Event | None = None  # The last event that changed the state.
    for event in events:
        if since is not None and event.before != event.after and (words := _between(since, event.time_ms)):
            lines.append(HistoryLine(words))
        lines.append(HistoryLine(_words_of(event) + _age(events[0], event), event))
        if event.before != event.after:
            since = event
    if since is not None and since.after != "gone" and now_ms is not None:
        lines.append(HistoryLine(_current_state(since, now_ms)))
    return lines


def text_lines(lines: list[HistoryLine]) -> Iterator[str]:
    for line in lines:
        moment = "" if line.event is None else _moment(line.event.time_ms)
        yield printable(f"{moment:<23}  {line.words}")


def _between(since: Event, now_ms: int) -> str:
    """Return how long the job stayed in the state after the event `since`, in words. Return "" for no time."""
    lasted = max(0, now_ms - since.time_ms)
    if since.after == "taken":
        return f"ran {duration_text(lasted)}{_ttr(since)}"
    # A failure and its consequence are two events of the same moment, with no time between them.
    return f"{_BEING[since.after or 'gone']} {duration_text(lasted)}" if lasted else ""


_BEING: Final = {
    "ready": "waited",
    "delayed": "was delayed for",
    "buried": "was buried for",
    "done": "was kept for",
    "zombie": "was kept for",
    "staged": "was staged for",
    "gone": "was gone for",
}


def _current_state(since: Event, now_ms: int) -> str:
    """Return the current state of the job and how long it has lasted."""
    lasted = duration_text(max(0, now_ms - since.time_ms))
    if since.after == "taken":
        return f"has been running for {lasted}{_ttr(since)}"
    return f"has been {since.after} for {lasted}" + _ready_in(since, now_ms)


def _ttr(take: Event) -> str:
    return "" if take.wake_ms is None else f", ttr {duration_text(take.wake_ms - take.time_ms)}"


def _ready_in(event: Event, now_ms: int) -> str:
    if event.after != "delayed" or event.wake_ms is None:
        return ""
    return f", ready in {duration_text(max(0, event.wake_ms - now_ms))}"


def _age(first: Event, event: Event) -> str:
    if event.after != "gone" or event.event == "moved out" or first.before != "gone":
        return ""
    return f", {duration_text(max(0, event.time_ms - first.time_ms))} after it was put"


def _moment(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1_000).isoformat(" ", "milliseconds")


# ---- The words for each event ----------------------------------------------------------------------------------------


def _just(words: str) -> Callable[[Event], str]:
    return lambda event: words + _ready_in(event, event.time_ms)


def _into(words: str) -> Callable[[Event], str]:
    return lambda event: f"{words} {event.tube}{_expiry(event)}{_ready_in(event, event.time_ms)}"


def _because(words: str) -> Callable[[Event], str]:
    return lambda event: words + (f" because {event.reason}" if event.reason else "")


def _expiry(event: Event) -> str:
    return "" if event.expiry_ms is None else f", ttl {duration_text(event.expiry_ms - event.time_ms)}"


def _taken(event: Event) -> str:
    by = "" if event.session is None else f" by session {event.session}"
    return f"taken{by} (delivery {event.deliveries})"


def _touched(event: Event) -> str:
    return "touched" + (
        "" if event.wake_ms is None else f": it may run for another {duration_text(event.wake_ms - event.time_ms)}"
    )


# Other events are described by their names.
_WORDS: Final[dict[str, Callable[[Event], str]]] = {
    "put": _into("put into"),
    "put urgent": _into("put in front of all others into"),
    "put staged": _into("staged for"),
    "published": _just("published with its stage"),
    "withdrawn": _just("withdrawn: its stage was discarded, or expired"),
    "delay passed": _just("its delay passed"),
    "taken": _taken,
    "undelivered": _just("returned, because its consumer was gone before it was sent"),
    "postponed": _just("released"),
    "requeued": _just("released to the end of the tube"),
    "nacked": _because("failed"),
    "ttr passed": _just("released because its ttr passed"),
    "disconnected": _just("released because its consumer disconnected"),
    "kept": _just("acked, and kept"),
    "lingered": _just("acked, and kept for a while"),
    "zombie passed": _just("no longer kept"),
    "buried": _because("buried"),
    "kicked": _just("kicked"),
    "expired": _just("expired: its ttl passed"),
    "truncated": _just("deleted with all jobs of its tube"),
    "touched": _touched,
    "held back": _just("held back by its retry policy"),
    "exhausted": _because("buried by its retry policy"),
    "discarded": _because("dropped by its retry policy"),
    "snatched": _just("taken away from its consumer"),
    "restarted": _just("restarted"),
    "moved out": lambda event: f"moved out of {event.tube}",
    "moved in": _into("moved into"),
    "moved in buried": _into("moved into"),
    "moved in done": _into("moved into"),
    "moved in as a zombie": _into("moved into"),
    "claimed": lambda event: f"taken by a claim (delivery {event.deliveries})",
    "claim ended": _just("returned by its claim"),
    "doomed": _just("deleted while a claim holds it: it is removed when the claim ends"),
}


def _words_of(event: Event) -> str:
    """Describe an event. An event like `kicked delayed` is described as `kicked`."""
    words = _WORDS.get(event.event) or _WORDS.get(event.event.removesuffix(" delayed")) or _just(event.event)
    return words(event)
