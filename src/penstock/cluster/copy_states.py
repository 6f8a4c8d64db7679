"""The state of a copy: which message the other holders get before this node queues the job. Only `move` changes it.

The state of the job (core/states.py) says where the copy is on this node. The state of the copy is about the
other holders. It decides what this node does when the timer of the job fires:

    state      when the timer of the job fires, this node
    FRESH      queues the job, and sends nothing. Its producer asked for a delay, and no node has queued the job yet.
    UNWARNED   sends WILLQUEUE if there are other holders, and sets the timer once more. The job was queued before.
    WARNED     queues the job and sends QUEUED, because the holders had WARNING_MS to object to WILLQUEUE.
    LEASED     queues the job. It was delivered here, and its timer fires when the retry time is over.

    FRESH --queued, yielded--> UNWARNED --warned--> WARNED --queued, yielded--> UNWARNED
    UNWARNED --delivered--> LEASED --timer set--> UNWARNED, if there are other holders to warn

*Yielded*: this node leaves the job to another holder, which has queued or delivered it or is about to.

Which states are possible when:
- A READY job is UNWARNED, because every path to READY applies QUEUED_HERE. The exception is a log that a process
  without a cluster has used. `Cluster._restore` repairs it (FOUND_QUEUED).
- Therefore a job is never FRESH when it is delivered, and the table has no rule for that.
- A TAKEN job is LEASED only if no warning is needed: it has no other holder, is delivered at most once, or has no
  timer. Otherwise the delivery sets the timer to the time of the warning, and the copy is UNWARNED. Holders that are
  found while a copy is LEASED or WARNED get WILLQUEUE when they are found.
- A LEASED job is never DELAYED or BURIED, because these transitions apply TIMER_SET.
- A job becomes WARNED while it is DELAYED or TAKEN, and its timer then fires within WARNING_MS. The warning ends if
  another holder objects, or if the job is delayed again, buried, handed over or delivered. So an old warning never
  permits a later queueing.
- The log stores only whether a copy is FRESH. After a restart all others are UNWARNED. The node may then repeat a
  warning, but never omits one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, u8

from penstock.core.job import COPY_FRESH, COPY_UNWARNED, Copy

# States complete the sentence "the copy is …". The log depends on the first two.
FRESH: Final = 0
UNWARNED: Final = 1
WARNED: Final = 2
LEASED: Final = 3

STATE_NAMES: Final = ["fresh", "unwarned", "warned", "leased"]
STATES_COUNT: Final = 4

# Events are named in the past tense.
QUEUED_HERE: Final = 0  # The job became ready on this node.
DELIVERED: Final = 1  # The job was delivered here, or its consumer asked for more time.
TIMER_SET: Final = 2  # The timer was set again, and the other holders are warned when it fires.
WARNING_SENT: Final = 3  # The timer fired, and the other holders got WILLQUEUE.
YIELDED: Final = 4  # Another holder has queued or delivered the job, or is about to. The timer was set again.
HANDED_OVER: Final = 5  # The job was sent to another node, which may queue it.
DELAY_GIVEN: Final = 6  # Another node sent the job with the rest of its producer's delay. No node has queued it yet.
FOUND_QUEUED: Final = 7  # After a restart, the job is in its queue or delivered.

EVENT_NAMES: Final = [
    "queued here",
    "delivered",
    "timer set",
    "warning sent",
    "yielded",
    "handed over",
    "delay given",
    "found queued",
]
EVENTS_COUNT: Final = 8

TRANSITIONS: Final[list[tuple[int, int, int]]] = [
    # event, from, to
    (QUEUED_HERE, FRESH, UNWARNED),  # The delay of the producer is over, or a client queued the job before that.
    (QUEUED_HERE, UNWARNED, UNWARNED),  # The put has its copies, the job came from another node, or a client queued it.
    (QUEUED_HERE, WARNED, UNWARNED),  # No holder objected to the warning within WARNING_MS.
    (QUEUED_HERE, LEASED, UNWARNED),  # The consumer gave the job back, or let its retry time pass.
    (DELIVERED, UNWARNED, LEASED),  # A consumer took the job. The timer has the full retry time until TIMER_SET.
    (DELIVERED, WARNED, LEASED),  # The consumer asked for more time after the warning.
    (DELIVERED, LEASED, LEASED),  # The consumer asked for more time, and no other holder has to be warned.
    (TIMER_SET, LEASED, UNWARNED),  # The delivered job has other holders, which are warned before it returns.
    (TIMER_SET, UNWARNED, UNWARNED),  # A consumer of another node asked for more time: the retry time starts again.
    (TIMER_SET, WARNED, UNWARNED),  # As above after the warning; or the job was delayed or buried instead of queued.
    (TIMER_SET, FRESH, FRESH),  # A client asked for more time during the delay of the producer.
    (WARNING_SENT, UNWARNED, WARNED),  # The timer fired. It fires again after WARNING_MS.
    (YIELDED, FRESH, UNWARNED),  # Another holder has queued the job, so the delay of its producer is over.
    (YIELDED, UNWARNED, UNWARNED),  # The usual case: a standby copy whose timer starts again.
    (YIELDED, WARNED, UNWARNED),  # A holder objected to the warning, or wins against it.
    (YIELDED, LEASED, UNWARNED),  # The body of the delivered job cannot be read here, or another holder requeued it.
    (HANDED_OVER, FRESH, UNWARNED),  # The receiver may queue the job before this node does.
    (HANDED_OVER, UNWARNED, UNWARNED),  # The copy stays here until the receiver confirms.
    (HANDED_OVER, WARNED, UNWARNED),  # The receiver may queue the job. The warning was for an earlier time.
    (HANDED_OVER, LEASED, UNWARNED),  # The consumer released the job with a delay when it had no other holder.
    (DELAY_GIVEN, FRESH, FRESH),  # The delay of the producer was sent again.
    (DELAY_GIVEN, UNWARNED, FRESH),  # This node is to queue the job first, or takes it back from a handover.
    (DELAY_GIVEN, WARNED, FRESH),  # As above after a warning: the copy is not about to be queued any more.
    (DELAY_GIVEN, LEASED, FRESH),  # As above for a job that its consumer released with a delay.
    (FOUND_QUEUED, FRESH, UNWARNED),  # The log was used by a process without a cluster, which queued the job.
]
ILLEGAL: Final = 255


def _targets() -> bytes:
    """Return the transitions as a flat table with the index event * 4 + state, so that a change costs one lookup."""
    assert FRESH == COPY_FRESH and UNWARNED == COPY_UNWARNED
    assert len(STATE_NAMES) == STATES_COUNT and len(EVENT_NAMES) == EVENTS_COUNT
    flat = bytearray([ILLEGAL]) * (EVENTS_COUNT * STATES_COUNT)
    for event, source, target in TRANSITIONS:
        assert flat[event * STATES_COUNT + source] == ILLEGAL, "one transition for an event and a state"
        flat[event * STATES_COUNT + source] = target
    return bytes(flat)


TARGETS: Final[bytes] = _targets()


def move(copy: Copy, event: i64) -> None:
    """Apply an event to a copy. No other function assigns `copy.state`."""
    state = i64(copy.state)
    target: i64 = TARGETS[event * STATES_COUNT + state]
    assert target != ILLEGAL, f"{EVENT_NAMES[event]} cannot happen to a copy that is {STATE_NAMES[state]}"
    if (state == FRESH) != (target == FRESH):
        # The log stores this difference. The next row of the job contains it.
        copy.logged = False
    copy.state = u8(target)


def may_queue(copy: Copy) -> bool:
    """Return whether the copy is WARNED or LEASED: no further warning is needed before the job is queued."""
    return copy.state >= WARNED
