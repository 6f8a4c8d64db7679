"""The metrics of the tubes of a node.

Clients can create any number of tubes with any names. If there are more than the setting `metrics-tubes`, only the
tubes with the most jobs are shown, so that no client can overload a monitoring system. The number of the others is a
metric.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator
from typing import Final

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.limits import NEVER
from penstock.core.tube import Tube
from penstock.core.waits import Connection
from penstock.server.metrics.page import MILLISECONDS, Limits, Page, escaped
from penstock.server.server import Server

# With all limits, each tube would have twice as many series.
_LIMITS: Final = Limits(MILLISECONDS, 2)

# This many tubes are compared, or jobs of a session examined, at a time.
_SLICE: Final = 500

# Longer names are cut off in labels.
_NAME_BYTES_MAX: Final = 200

# The labels of each rule, in the order of the tube's counters.
_RULES: Final = [
    f'event="{s.EVENT_NAMES[event]}",from="{s.STATE_NAMES[source]}",to="{s.STATE_NAMES[target]}"'
    for event, source, target in s.TRANSITIONS
]
_EXPIRED: Final = [rule for rule, (event, _, _) in enumerate(s.TRANSITIONS) if event == s.EXPIRED]


def add_tubes(page: Page, server: Server) -> Generator[None]:
    """Add the metrics of the tubes. Yield where other work can be done."""
    engine = server.turn.engine
    shown = yield from _largest(engine, server.config.metrics_tubes)
    consumers = yield from _consumers(engine, shown)
    names: set[str] = set()
    for tube in shown:
        name = _shown_name(tube)
        if name in names:
            # Two series with equal labels would make the whole page invalid.
            name = f"{name} (tube {tube.number})"
        names.add(name)
        _add_tube(page, tube, f'tube="{escaped(name)}"', len(consumers[int(tube.slot)]), server.turn.clock.now())
        yield
    page.add("penstock_tubes", len(engine.tubes))
    page.add("penstock_tubes_not_shown", max(0, len(engine.tubes) - len(shown)))


def _largest(engine: Engine, count: int) -> Generator[None, None, list[Tube]]:
    """Return the `count` tubes with the most jobs, in the order of their creation."""
    largest: list[tuple[int, int]] = []
    cursor = 0
    while True:
        tubes, cursor = engine.scan_tubes(cursor, _SLICE)
        for tube in tubes:
            entry = (tube.total(), -tube.number)
            if len(largest) < count:
                heapq.heappush(largest, entry)
            elif count and entry > largest[0]:
                heapq.heapreplace(largest, entry)
        if cursor == 0:
            break
        yield
    found = (engine.tubes_by_number.get(number) for number in sorted(-entry[1] for entry in largest))
    return [tube for tube in found if tube is not None]


def _consumers(engine: Engine, tubes: list[Tube]) -> Generator[None, None, dict[int, set[int]]]:
    """Return for each tube, by slot, the numbers of the sessions that wait for its jobs or hold some."""
    found: dict[int, set[int]] = {int(tube.slot): set() for tube in tubes}
    slots = {id(tube.take_line): int(tube.slot) for tube in tubes}
    for session in list(engine.sessions.values()):
        held = session.held
        for start in range(0, len(held), _SLICE):
            for job in held[start : start + _SLICE]:
                if job.tube in found:
                    found[job.tube].add(session.number)
            yield
        for connection in list(session.connections.values()):
            assert isinstance(connection, Connection)
            for wait in list(connection.waits.values()):
                for link in wait.links:
                    slot = slots.get(id(link.line))
                    if slot is not None:
                        found[slot].add(session.number)
    for tube in tubes:
        for line in list(tube.key_lines.values()):
            entry = line.head
            while entry is not None:
                found[int(tube.slot)].add(entry.wait.connection.session.number)
                entry = entry.after
        yield
    return found


def _shown_name(tube: Tube) -> str:
    name = tube.name[:_NAME_BYTES_MAX].decode("utf-8", "backslashreplace")
    return name if len(tube.name) <= _NAME_BYTES_MAX else f"{name}… (tube {tube.number})"


def _add_tube(page: Page, tube: Tube, labels: str, consumers: int, now: int) -> None:
    for state in range(1, s.STATES_COUNT):
        page.add("penstock_tube_jobs", tube.count_in(state), f'{labels},state="{s.STATE_NAMES[state]}"')
    oldest = tube.oldest_ready()
    age_ms = 0 if oldest == NEVER else max(0, now - oldest)
    page.add("penstock_tube_oldest_ready_age_seconds", age_ms / 1000, labels)
    page.add("penstock_tube_consumers", consumers, labels)
    waiting = int(tube.take_line.length) + sum(int(line.length) for line in tube.key_lines.values())
    page.add("penstock_tube_waiting_takes", waiting, labels)
    page.add("penstock_tube_paused", int(tube.paused_in), f'{labels},direction="in"')
    page.add("penstock_tube_paused", int(tube.paused_out), f'{labels},direction="out"')
    page.add("penstock_spilled_jobs", int(tube.spilled), labels)
    page.add("penstock_tube_body_bytes", int(tube.body_bytes), labels)
    counts = tube.counts
    for rule, count in enumerate(counts):
        if count:
            page.add("penstock_tube_transitions_total", count, f"{labels},{_RULES[rule]}")
    page.add("penstock_tube_dead_lettered_total", int(tube.dead_lettered), f'{labels},reason="max_deliveries"')
    expired = sum(counts[rule] for rule in _EXPIRED)
    page.add("penstock_tube_dead_lettered_total", expired, f'{labels},reason="ttl"')
    if tube.waits is not None:
        page.add_histogram("penstock_tube_wait_seconds", tube.waits, _LIMITS, labels)
    if tube.runs is not None:
        page.add_histogram("penstock_tube_run_seconds", tube.runs, _LIMITS, labels)
