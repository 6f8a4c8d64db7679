"""The view of users: all public fields of a job, and the statistics of a tube.

The fields have the names that all our dialects use. Names are bytes, times are milliseconds, and a missing value is
None. Each dialect converts them to its own types.

Statistics are sums over the tube's counters of applied rules. The engine increments the counter of a rule when it
applies the rule. The functions here only add counters up, so two statistics cannot contradict each other.
"""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import NEVER, PRIORITY_UNSET, SCAN_EXAMINED_MAX, check_count
from penstock.core.sessions import Session
from penstock.core.tube import Tube, key_of
from penstock.core.waits import Connection, TakeWait

# The fields that are times: points in time since 1970, or durations.
TIME_FIELDS: Final = frozenset(["created", "expires", "wakes", "next_event", "ttl", "ttr", "now"])

# Used in transitions only: the job came from another tube, or moved to one.
ELSEWHERE: Final = s.STATES_COUNT
TRANSITION_NAMES: Final = [*s.STATE_NAMES, "elsewhere"]

_ARRIVALS: Final = frozenset(s.ARRIVALS[s.READY : s.STAGED])


def meta(engine: Engine, job: Job, id: bytes) -> dict[str, bytes | int | None]:
    """Return all public fields of a job by name."""
    tube = engine.tube_of(job)
    extra = job.ensure_extra()
    return {
        "id": id,
        "tube": tube.name,
        "state": s.STATE_NAMES[job.state].encode(),
        "number": int(job.local) if job.local >= 0 else None,
        "name": extra.name or None,
        "key": key_of(tube, job) or None,
        "priority": int(job.priority if extra.priority_given == PRIORITY_UNSET else extra.priority_given),
        "served_as": int(job.priority),
        "created": int(job.created),
        "expires": _moment(job.expiry),
        "wakes": _moment(job.wake),
        "next_event": _moment(job.due) if job.deadline_pos >= 0 else None,
        "ttl": None if job.expiry == NEVER else int(job.expiry - job.created),
        "ttr": _moment(job.ttr),
        "holder": engine.session_number(job.holder) if job.holder >= 0 else None,
        "deliveries": int(job.deliveries),
        "nacks": int(job.nacks),
        "returns": int(job.returns),
        "buries": int(extra.buries),
        "reason": extra.reason or None,
        "retry": extra.retry.text.encode() if extra.retry is not None else None,
        "now": int(engine.now),
    }


class SessionView:
    """A session as users see it."""

    def __init__(self, engine: Engine, session: Session, examined_max: int) -> None:
        """Describe a session. The tubes of its jobs are counted for `examined_max` jobs only."""
        self.number = int(session.number)
        self.name = session.name
        self.user = session.user
        self.held = len(session.held)  # Number of jobs that it holds.
        self.grace_ms = int(engine.grace_of(session))
        self.ends_ms = int(session.due) if session.deadline_pos >= 0 else NEVER  # The end of its grace time.
        self.connections: list[Connection] = []
        self.waiting: dict[bytes, int] = {}  # Tubes on which its takes wait, and the number of these takes.
        self.holds: dict[bytes, int] = {}  # Tubes of the jobs that were examined, and the number of these jobs.
        for connection in session.connections.values():
            assert isinstance(connection, Connection)
            self.connections.append(connection)
            for wait in connection.waits.values():
                if isinstance(wait, TakeWait):
                    for link in wait.links:
                        self._count(self.waiting, engine.tube_slots[link.line.tube])
        for job in session.held[:examined_max]:
            self._count(self.holds, engine.tube_of(job))

    def _count(self, counts: dict[bytes, int], tube: Tube | None) -> None:
        if tube is not None:
            counts[tube.name] = counts.get(tube.name, 0) + 1


def scan_sessions(engine: Engine, cursor: int, count: int) -> tuple[list[Session], int]:
    """Return up to `count` sessions, starting at a cursor, and the next cursor.

    The scan starts with cursor 0, and ends when 0 is returned. A call examines at most SCAN_EXAMINED_MAX slots.
    """
    check_count(count, "count")
    slots = engine.session_slots
    found: list[Session] = []
    at = cursor
    end = min(len(slots), cursor + SCAN_EXAMINED_MAX)
    while at < end and len(found) < count:
        session = slots[at]
        if session is not None:
            found.append(session)
        at += 1
    return found, at if at < len(slots) else 0


def _moment(moment: int) -> int | None:
    return None if moment == NEVER else moment


def rule_counts(tube: Tube, life: bool) -> list[int]:
    """Return how often each rule was applied since the node started, or with `life` since the tube was created."""
    if not life:
        return list(tube.counts)
    return [now + before for now, before in zip(tube.counts, tube.counts_before, strict=True)]


def transitions(tube: Tube, life: bool = False) -> dict[tuple[int, int], int]:
    """Return how often jobs went from one state to another. Pairs of states with the count 0 are left out."""
    return sum_transitions(rule_counts(tube, life))


def sum_transitions(counts: list[int]) -> dict[tuple[int, int], int]:
    """Add up the counters of rules by source and target state. A move to or from another tube counts as ELSEWHERE."""
    found: dict[tuple[int, int], int] = {}
    for (event, source, target), count in zip(s.TRANSITIONS, counts, strict=True):
        if event == s.MOVED_OUT:
            target = ELSEWHERE
        elif source == s.GONE and event in _ARRIVALS:
            source = ELSEWHERE
        if count and source != target:
            found[source, target] = found.get((source, target), 0) + count
    return found


def events(tube: Tube, life: bool = False) -> list[int]:
    """Return how often each event happened, by the number of the event."""
    found = [0] * s.EVENTS_COUNT
    for (event, _, _), count in zip(s.TRANSITIONS, rule_counts(tube, life), strict=True):
        found[event] += count
    return found


def _rules(*wanted: int) -> list[int]:
    """Return the rules of these events."""
    return [rule for rule, (event, _, _) in enumerate(s.TRANSITIONS) if event in wanted]


# The flow of a tube: its name, and the rules that it counts. A released or retried job has not entered again.
_FLOW: Final[list[tuple[str, list[int]]]] = [
    (
        "entered",
        [
            rule
            for rule, (_, source, target) in enumerate(s.TRANSITIONS)
            if source in (s.GONE, s.STAGED) and target not in (s.GONE, s.STAGED)
        ],
    ),
    ("taken", _rules(s.TOOK, s.CLAIMED)),
    ("acked", _rules(s.ACKED, s.KEPT, s.LINGERED)),
    ("failed", _rules(s.NACKED, s.TTR_PASSED, s.BURIED_BY)),
]


def flow(tube: Tube) -> list[tuple[str, int]]:
    """Return how many jobs entered the tube, were taken, were acked and failed since the tube was created.

    The difference of two calls is a rate. This reads a few counters only, so it can be called for many tubes.
    """
    now, before = tube.counts, tube.counts_before
    return [(name, sum([now[rule] + before[rule] for rule in rules])) for name, rules in _FLOW]


def states(tube: Tube) -> list[int]:
    """Return the number of jobs in each state, by the number of the state."""
    return [tube.count_in(state) for state in range(s.STATES_COUNT)]
