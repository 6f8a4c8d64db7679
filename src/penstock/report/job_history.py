"""The history of a job in words: its events, and the time it spent in each state.

This module does no I/O. Its input is a list of events and, if the job may still exist, the current time. An event
becomes a line with its time. The time between two changes of state becomes a line without a time, before the change
that ended it:

    2026-11-16 05:49:40.387  put into emails
                             waited 3.2 s
    2026-11-16 05:49:43.587  taken by worker-3 (ann) (delivery 1)
                             ran 41 s, ttr 1 min
    2026-11-16 05:50:24.587  acked by worker-3 (ann), 44 s after it was put
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.journal.history.reader import Event
from penstock.report.units import duration_text
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
    last: Event | None = None  # The last event that changed the state.
    for event in events:
        if event.before != event.after and (words := _between(last, event)):
            lines.append(HistoryLine(words))
        lines.append(HistoryLine(_words_of(event) + _age(events[0], event), event))
        if event.before != event.after:
            last = event
    if now_ms is not None and events and events[-1].after != "gone":
        lines += map(HistoryLine, _current_state(last, events[-1], now_ms))
    return lines


def text_lines(lines: list[HistoryLine]) -> Iterator[str]:
    for line in lines:
        moment = "" if line.event is None else _moment(line.event.time_ms)
        yield printable(f"{moment:<23}  {line.words}")


def _since_ms(last: Event | None, event: Event) -> int | None:
    """Return when the job entered the state that it had before `event`, or None if this is not known.

    Since version 2, the log stores this time. For older events it is the time of `last`, the change of state before.
    """
    if event.since_ms is not None and event.before != "gone":
        return event.since_ms
    return None if last is None else last.time_ms


def _between(last: Event | None, event: Event) -> str:
    """Return how long the job stayed in the state before `event`, in words. Return "" for no time."""
    since_ms = _since_ms(last, event)
    if since_ms is None:
        return ""
    lasted = max(0, event.time_ms - since_ms)
    if event.before == "taken":
        return f"ran {duration_text(lasted)}{_ttr(last)}"
    # A failure and its consequence are two events of the same moment, with no time between them.
    return f"{_BEING[event.before or 'gone']} {duration_text(lasted)}" if lasted else ""


_BEING: Final = {
    "ready": "waited",
    "delayed": "was delayed for",
    "buried": "was buried for",
    "done": "was kept for",
    "zombie": "was kept for",
    "staged": "was staged for",
    "gone": "was gone for",
}


def _current_state(last: Event | None, newest: Event, now_ms: int) -> Iterator[str]:
    """Yield the current state of the job and how long it has lasted. Yield nothing if this is not known."""
    since_ms = newest.time_ms if newest is last else _since_ms(last, newest)
    if since_ms is None:
        return
    lasted = duration_text(max(0, now_ms - since_ms))
    if newest.after == "taken":
        yield f"has been running for {lasted}{_ttr(last)}"
    else:
        yield f"has been {newest.after} for {lasted}" + _ready_in(last or newest, now_ms)


def _ttr(take: Event | None) -> str:
    return "" if take is None or take.wake_ms is None else f", ttr {duration_text(take.wake_ms - take.time_ms)}"


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


def actor_text(event: Event) -> str:
    """Return the client that caused an event, like `worker-3 (ann)`. Return "" if it has neither a name nor a user."""
    if event.actor_user is None:
        return event.actor_name or ""
    return f"{event.actor_name or f'session {event.actor}'} ({event.actor_user})"


def _by(event: Event) -> str:
    actor = actor_text(event)
    return f" by {actor}" if actor else ""


def _just(words: str) -> Callable[[Event], str]:
    return lambda event: words + _ready_in(event, event.time_ms)


def _acted(words: str, rest: str = "") -> Callable[[Event], str]:
    """Return a function that describes an event. It joins `words`, the client that caused the event, and `rest`."""
    return lambda event: words + _by(event) + rest + _ready_in(event, event.time_ms)


def _into(words: str) -> Callable[[Event], str]:
    return lambda event: f"{words} {event.tube}{_by(event)}{_expiry(event)}{_ready_in(event, event.time_ms)}"


def _because(words: str) -> Callable[[Event], str]:
    # The reason of a task has the lines of a traceback.
    return lambda event: words + (f" because {' '.join(event.reason.split())}" if event.reason else "")


def _acted_because(words: str) -> Callable[[Event], str]:
    return lambda event: _because(words + _by(event))(event)


def _expiry(event: Event) -> str:
    return "" if event.expiry_ms is None else f", ttl {duration_text(event.expiry_ms - event.time_ms)}"


def _taken(event: Event) -> str:
    by = _by(event) or ("" if event.session is None else f" by session {event.session}")
    return f"taken{by} (delivery {event.deliveries})"


def _claimed(event: Event) -> str:
    actor = actor_text(event)
    return f"taken by a claim{f' of {actor}' if actor else ''} (delivery {event.deliveries})"


def _touched(event: Event) -> str:
    more = "" if event.wake_ms is None else f": it may run for another {duration_text(event.wake_ms - event.time_ms)}"
    return f"touched{_by(event)}{more}"


# Other events are described by their names.
_WORDS: Final[dict[str, Callable[[Event], str]]] = {
    "put": _into("put into"),
    "put urgent": _into("put in front of all others into"),
    "put staged": _into("staged for"),
    "published": _acted("published with its stage"),
    "withdrawn": _acted("withdrawn", ": its stage was discarded, or expired"),
    "delay passed": _just("its delay passed"),
    "taken": _taken,
    "undelivered": _just("returned, because its consumer was gone before it was sent"),
    "postponed": _acted("released"),
    "requeued": _acted("released to the end of the tube"),
    "nacked": _acted_because("failed"),
    "ttr passed": _just("released because its ttr passed"),
    "disconnected": _just("released because its consumer disconnected"),
    "kept": _acted("acked", ", and kept"),
    "lingered": _acted("acked", ", and kept for a while"),
    "zombie passed": _just("no longer kept"),
    "buried": _acted_because("buried"),
    "kicked": _acted("kicked"),
    "expired": _just("expired: its ttl passed"),
    "truncated": _acted("deleted with all jobs of its tube"),
    "touched": _touched,
    "held back": _just("held back by its retry policy"),
    "exhausted": _because("buried by its retry policy"),
    "discarded": _because("dropped by its retry policy"),
    "snatched": _acted("taken away from its consumer"),
    "restarted": _acted("restarted"),
    "moved out": lambda event: f"moved out of {event.tube}",
    "moved in": _into("moved into"),
    "moved in buried": _into("moved into"),
    "moved in done": _into("moved into"),
    "moved in as a zombie": _into("moved into"),
    "claimed": _claimed,
    "claim ended": _just("returned by its claim"),
    "prioritized": lambda event: f"priority set to {event.priority}{_by(event)}",
    "edited": _acted("body edited"),
    "judged": _acted("given a verdict", " that is executed when its claim is acked"),
    "cancelled": _acted("cancelled", " while it is taken: it ends with its delivery"),
    "doomed": _acted("deleted", " while a claim holds it: it is removed when the claim ends"),
}


def _words_of(event: Event) -> str:
    """Describe an event. An event like `kicked delayed` is described as `kicked`."""
    words = _WORDS.get(event.event) or _WORDS.get(event.event.removesuffix(" delayed")) or _acted(event.event)
    return words(event)
