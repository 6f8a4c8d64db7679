"""The transition table: which event takes a job from which state to which. The only module that writes `job.state`.

    GONE --put--> READY --take--> TAKEN --ack--> GONE, or DONE or ZOMBIE if the tube keeps acked jobs
    TAKEN --release, nack, ttr, disconnect--> READY (or DELAYED, if there is a delay)
    READY, TAKEN or DELAYED --bury--> BURIED --kick--> READY
    GONE --staged put--> STAGED --publish--> READY or DELAYED

In each state a job is in one container of its tube, and its deadline is the nearest of the times in this table:

    state    container           deadline (job.due)                         holder (job.holder)
    READY    ready, or its key   expiry                                     none
    TAKEN    taken               wake (ttr), or expiry if taken jobs can    its session or claim; none if
                                 expire; in a claim none, because the       anyone may ack
                                 lease counts
    DELAYED  delayed             wake (end of the delay) or expiry          none
    BURIED   buried, or spent    expiry                                     none
    DONE     done                expiry (of the result)                     none
    ZOMBIE   zombies             wake                                       none
    STAGED   staged              none, because the expiry of the stage      none
                                 counts

A row of TRANSITIONS is a *rule*: an event and the state in which it is allowed determine the next state. Each tube
counts how often each rule was applied. All statistics, in every dialect, are sums over these counters, so no transition
is missed or counted twice. docs/reference/states.md is generated from this table.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, u8

from penstock.core.errors import OutOfRange
from penstock.core.job import Job

# States complete the sentence "the job is …".
GONE: Final = 0  # Not in the queue: before the put, or after the end.
READY: Final = 1
TAKEN: Final = 2
DELAYED: Final = 3
BURIED: Final = 4
DONE: Final = 5  # Acked and kept.
ZOMBIE: Final = 6  # Acked and kept for a limited time.
STAGED: Final = 7  # Put, but not published yet: see stages.py.

STATE_NAMES: Final = ["gone", "ready", "taken", "delayed", "buried", "done", "zombie", "staged"]
STATES_COUNT: Final = 8

# Results of commands on one job. errors.REFUSALS has the error class of each refusal.
OK: Final = 0  # The command was executed.
NO_JOB: Final = 1
NOT_TAKEN: Final = 2
NOT_OWNER: Final = 3
NOT_BURIED: Final = 4
ONLY_ONCE: Final = 5
IS_TAKEN: Final = 6
NOT_KEPT: Final = 7
IS_STAGED: Final = 8
NOT_WAITING: Final = 9
NOT_DELAYED: Final = 10
FINISHED: Final = 11

# Events are named in the past tense. Their numbers must never change, because the log stores them.
PUT: Final = 0
PUT_DELAYED: Final = 1
DELAY_PASSED: Final = 2
TOOK: Final = 3
UNDELIVERED: Final = 4  # The consumer disconnected before the first byte of the job was sent.
RELEASED: Final = 5
POSTPONED: Final = 6  # Released with a delay.
NACKED: Final = 7
TTR_PASSED: Final = 8
DISCONNECTED: Final = 9
ACKED: Final = 10
BURIED_BY: Final = 11
KICKED: Final = 12
KICKED_DELAYED: Final = 13
DELETED: Final = 14
EXPIRED: Final = 15  # The ttl passed.
TRUNCATED: Final = 16  # The tube was truncated.
TOUCHED: Final = 17  # The deadlines changed, the state did not.
REQUEUED: Final = 18  # Released to the end of the tube.
KEPT: Final = 19  # Acked and kept.
LINGERED: Final = 20  # Acked and kept for a limited time.
ZOMBIE_PASSED: Final = 21
HELD_BACK: Final = 22  # Failed and delayed by the retry policy.
EXHAUSTED: Final = 23  # Failed for the last allowed time and buried.
DISCARDED: Final = 24  # Failed for the last allowed time and dropped.
SNATCHED: Final = 25  # Taken away from the session that held the job.
SNATCHED_DELAYED: Final = 26
RESTARTED: Final = 27
RESTARTED_DELAYED: Final = 28
SWITCHED_READY: Final = 29
SWITCHED_DELAYED: Final = 30
SWITCHED_BURIED: Final = 31
SWITCHED_DONE: Final = 32
SWITCHED_ZOMBIE: Final = 33
MOVED_OUT: Final = 34  # Moved to another tube, which counts the job as moved in.
MOVED_IN_READY: Final = 35
MOVED_IN_DELAYED: Final = 36
MOVED_IN_BURIED: Final = 37
MOVED_IN_DONE: Final = 38
CLAIMED: Final = 39  # Taken by a claim: see claims.py.
CLAIM_ENDED: Final = 40
PUT_URGENT: Final = 41  # Put in front of all others.
DOOMED: Final = 42  # Deleted while a claim holds the job. It is removed when the claim ends.
PUT_STAGED: Final = 43  # Put into a stage.
PUBLISHED: Final = 44  # The stage of the job was published.
PUBLISHED_DELAYED: Final = 45
WITHDRAWN: Final = 46  # The stage of the job was discarded, or expired.
MOVED_IN_ZOMBIE: Final = 47
JUDGED: Final = 48  # The consumer of a claim gave or changed its verdict on the job. It takes effect with the ack.
PRIORITIZED: Final = 49  # A job that is not taken got another priority: see commands/edits.py.
EDITED: Final = 50  # A job that is not taken got another body.
CANCELLED: Final = 51  # Cancelled while a session holds the job. It ends when its delivery ends.

EVENT_NAMES: Final = [
    "put",
    "put delayed",
    "delay passed",
    "taken",
    "undelivered",
    "released",
    "postponed",
    "nacked",
    "ttr passed",
    "disconnected",
    "acked",
    "buried",
    "kicked",
    "kicked delayed",
    "deleted",
    "expired",
    "truncated",
    "touched",
    "requeued",
    "kept",
    "lingered",
    "zombie passed",
    "held back",
    "exhausted",
    "discarded",
    "snatched",
    "snatched delayed",
    "restarted",
    "restarted delayed",
    "switched to ready",
    "switched to delayed",
    "switched to buried",
    "switched to done",
    "switched to zombie",
    "moved out",
    "moved in",
    "moved in delayed",
    "moved in buried",
    "moved in done",
    "claimed",
    "claim ended",
    "put urgent",
    "doomed",
    "put staged",
    "published",
    "published delayed",
    "withdrawn",
    "moved in as a zombie",
    "judged",
    "prioritized",
    "edited",
    "cancelled",
]
EVENTS_COUNT: Final = 52

_PRESENT: Final = [READY, TAKEN, DELAYED, BURIED, DONE, ZOMBIE]
_WAITING: Final = [READY, DELAYED, BURIED]
_NOT_TAKEN: Final = [READY, DELAYED, BURIED, DONE, ZOMBIE]

TRANSITIONS: Final[list[tuple[int, int, int]]] = [
    # event, from, to
    (PUT, GONE, READY),
    (PUT_DELAYED, GONE, DELAYED),
    (PUT_URGENT, GONE, READY),
    (DELAY_PASSED, DELAYED, READY),
    (TOOK, READY, TAKEN),
    (UNDELIVERED, TAKEN, READY),
    (RELEASED, TAKEN, READY),
    (POSTPONED, TAKEN, DELAYED),
    (REQUEUED, TAKEN, READY),
    (NACKED, TAKEN, READY),
    (TTR_PASSED, TAKEN, READY),
    (DISCONNECTED, TAKEN, READY),
    # The consequence of a failure is a separate transition after its cause, so that the history shows both.
    (HELD_BACK, READY, DELAYED),
    (EXHAUSTED, READY, BURIED),
    (DISCARDED, READY, GONE),
    (ACKED, TAKEN, GONE),
    # In tubes where acks cancel, a job that is not taken can be acked, too.
    (ACKED, READY, GONE),
    (ACKED, DELAYED, GONE),
    (ACKED, BURIED, GONE),
    (KEPT, TAKEN, DONE),
    (LINGERED, TAKEN, ZOMBIE),
    (ZOMBIE_PASSED, ZOMBIE, GONE),
    (BURIED_BY, TAKEN, BURIED),
    (BURIED_BY, READY, BURIED),
    (BURIED_BY, DELAYED, BURIED),
    (KICKED, BURIED, READY),
    (KICKED_DELAYED, BURIED, DELAYED),
    (EXPIRED, READY, GONE),
    (EXPIRED, TAKEN, GONE),
    (EXPIRED, DELAYED, GONE),
    (EXPIRED, BURIED, GONE),
    (EXPIRED, DONE, GONE),
    (TOUCHED, TAKEN, TAKEN),
    (TOUCHED, READY, READY),
    (SNATCHED, TAKEN, READY),
    (SNATCHED_DELAYED, TAKEN, DELAYED),
    *[(RESTARTED, source, READY) for source in [DELAYED, DONE, ZOMBIE]],
    *[(RESTARTED_DELAYED, source, DELAYED) for source in [DELAYED, DONE, ZOMBIE]],
    *[(SWITCHED_READY, source, READY) for source in _NOT_TAKEN],
    *[(SWITCHED_DELAYED, source, DELAYED) for source in _NOT_TAKEN],
    *[(SWITCHED_BURIED, source, BURIED) for source in _NOT_TAKEN],
    *[(SWITCHED_DONE, source, DONE) for source in _NOT_TAKEN],
    *[(SWITCHED_ZOMBIE, source, ZOMBIE) for source in _NOT_TAKEN],
    *[(DELETED, source, GONE) for source in _PRESENT],
    *[(TRUNCATED, source, GONE) for source in _PRESENT],
    *[(MOVED_OUT, source, GONE) for source in _PRESENT],
    (MOVED_IN_READY, GONE, READY),
    (MOVED_IN_DELAYED, GONE, DELAYED),
    (MOVED_IN_BURIED, GONE, BURIED),
    (MOVED_IN_DONE, GONE, DONE),
    (MOVED_IN_ZOMBIE, GONE, ZOMBIE),
    (CLAIMED, READY, TAKEN),
    (CLAIM_ENDED, TAKEN, READY),
    (DOOMED, TAKEN, TAKEN),
    (PUT_STAGED, GONE, STAGED),
    (PUBLISHED, STAGED, READY),
    (PUBLISHED_DELAYED, STAGED, DELAYED),
    (WITHDRAWN, STAGED, GONE),
    (DELETED, STAGED, GONE),
    (TRUNCATED, STAGED, GONE),
    (JUDGED, TAKEN, TAKEN),
    *[(PRIORITIZED, state, state) for state in _WAITING],
    *[(EDITED, state, state) for state in _WAITING],
    (CANCELLED, TAKEN, TAKEN),
]
RULES_COUNT: Final = 107
NO_RULE: Final = 255


def _rule_index() -> bytes:
    """Return the rules as a flat table with the index event * 8 + state, so that a transition costs one byte lookup."""
    assert len(TRANSITIONS) == RULES_COUNT
    assert len(STATE_NAMES) == STATES_COUNT and len(EVENT_NAMES) == EVENTS_COUNT
    flat = bytearray([NO_RULE]) * (EVENTS_COUNT * 8)
    for rule, (event, source, _) in enumerate(TRANSITIONS):
        assert flat[event * 8 + source] == NO_RULE, "one rule for an event and a state"
        flat[event * 8 + source] = rule
    return bytes(flat)


RULE_OF: Final[bytes] = _rule_index()
EVENT_OF: Final[bytes] = bytes([event for event, _, _ in TRANSITIONS])
SOURCE_OF: Final[bytes] = bytes([source for _, source, _ in TRANSITIONS])
TARGET_OF: Final[bytes] = bytes([target for _, _, target in TRANSITIONS])


# The event by which a job arrives from another tube or node, by its state there. GONE and STAGED jobs do not arrive.
ARRIVALS: Final = [
    MOVED_OUT,
    MOVED_IN_READY,
    MOVED_IN_READY,
    MOVED_IN_DELAYED,
    MOVED_IN_BURIED,
    MOVED_IN_DONE,
    MOVED_IN_ZOMBIE,
    MOVED_OUT,
]


def state_of(name: str) -> int:
    """Return the state with this name. Raise OutOfRange if producers cannot put jobs in this state."""
    if name not in ("ready", "buried", "done"):
        raise OutOfRange(f"a job can be put as ready, buried or done, not as {name[:60]!r}")
    return STATE_NAMES.index(name)


def rule_of(event: i64, state: i64) -> i64:
    """Return the rule of an event in a state. The state must allow the event."""
    rule: i64 = RULE_OF[event * 8 + state]
    assert rule != NO_RULE
    return rule


def allowed(state: i64, event: i64) -> bool:
    return RULE_OF[event * 8 + state] != NO_RULE


def move(job: Job, event: i64) -> i64:
    """Change the state of a job, and return the rule that was applied. No other module assigns `job.state`."""
    state = i64(job.state)
    rule: i64 = RULE_OF[event * 8 + state]
    assert rule != NO_RULE, f"{EVENT_NAMES[event]} cannot happen to a job that is {STATE_NAMES[state]}"
    job.state = u8(TARGET_OF[rule])
    return rule


def restore(job: Job, state: i64) -> None:
    """Set the state of a job that is read from the log. The job is not yet in any container."""
    job.state = u8(state)
