"""One line that stands for the whole state of an engine: equal digests, equal engines.

`describe` spells the state out, a line for each thing in it, in an order that depends on nothing but the state;
`digest` hashes these lines. Neither Python's hash seed nor compilation changes a byte. When two digests differ, a diff
of the two descriptions shows where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from penstock.core.engine import Engine
from penstock.core.job import BodyRef, Job
from penstock.core.sessions import Session
from penstock.core.tube import Tube
from penstock.core.waits import Line, Wait

# What a job is.
JOB_FIELDS: Final = (
    *("id", "state", "tube", "local", "priority", "order", "key", "holder", "body_kind", "once"),
    *("created", "expiry", "ttr", "wake", "ttl_minutes", "deliveries", "nacks", "returns"),
)
# Where a job stands: in the containers, among equal deadlines, in the log. Other histories can lead to the same jobs
# standing elsewhere, as recovery does.
PLACE_FIELDS: Final = ("pos", "held_pos", "due", "due_seq", "deadline_pos", "position")
# Spelled out by hand, because they are more than a value.
OTHER_FIELDS: Final = ("body", "extra")
EXTRA_FIELDS: Final = ("reason", "buries")

TUBE_FIELDS: Final = (
    *("number", "slot", "created", "policy", "paused_in", "paused_out", "next_local", "reserved"),
    *("body_bytes", "counts", "counts_before", "woken", "woken_keys"),
)


def digest(engine: Engine, places: bool = True) -> str:
    """A hash of the whole state; without `places`, of what the jobs are and not of where they stand."""
    hashed = hashlib.blake2b(digest_size=16)
    for line in describe(engine, places):
        hashed.update(line.encode() + b"\n")
    return hashed.hexdigest()


def describe(engine: Engine, places: bool = True) -> Iterator[str]:
    """The whole state of an engine, a line for each thing in it."""
    yield f"engine {_engine_fields(engine)}"
    for tube in sorted(engine.tubes.values(), key=_tube_number):
        yield from _describe_tube(tube)
    for session in sorted(engine.sessions.values(), key=_session_number):
        yield _describe_session(session, places)
    for job in engine.jobs.scan(0, engine.jobs.count + 1):
        yield _describe_job(job, places)
    if places:
        yield f"deadlines {[_named(item) for item in engine.deadlines._items]} {engine.deadlines._seq}"
        yield f"slots {engine._tube_slots_free} {engine._session_slots_free}"


def _engine_fields(engine: Engine) -> str:
    return (
        f"now={engine.now} body_bytes_max={engine.body_bytes_max} session_grace_ms={engine.session_grace_ms}"
        f" next_id={engine._next_id} last_creation={engine._last_creation} next_number={engine._next_number}"
        f" woken={[tube.number for tube in engine._woken]} ended={[_wait(w) for w in engine.outbox.ended_waits]}"
    )


def _describe_tube(tube: Tube) -> Iterator[str]:
    yield f"tube {tube.name!r} {_fields(tube, TUBE_FIELDS)}"
    yield f"line of {tube.name!r} {_line(tube.line)}"
    for name in sorted(tube.key_lines):
        yield f"line of {tube.name!r} for {name!r} {_line(tube.key_lines[name])}"
    if tube.keys is not None:
        for key in sorted(tube.keys.all_keys(), key=lambda key: key.slot):
            yield f"key {key.name!r} of {tube.name!r} slot={key.slot} jobs={key.jobs} taken={key.taken}"


def _describe_session(session: Session, places: bool) -> str:
    held = [job.id for job in session.held]
    return (
        f"session {session.number} slot={session.slot} token={session.token!r} connections={session.connections}"
        f" due={session.due if session.deadline_pos >= 0 else None} held={held if places else sorted(held)}"
    )


def _describe_job(job: Job, places: bool) -> str:
    body = job.body
    if isinstance(body, BodyRef):
        shown = f"{body.segment}:{body.offset}+{body.length}"
    else:
        shown = hashlib.blake2b(body, digest_size=16).hexdigest()
    extra = "" if job.extra is None else f" {_fields(job.extra, EXTRA_FIELDS)}"
    where = f" {_fields(job, PLACE_FIELDS)}" if places else ""
    return f"job {_fields(job, JOB_FIELDS)} body={shown}{extra}{where}"


def _line(line: Line) -> str:
    waits: list[str] = []
    link = line.head
    while link is not None:
        waits.append(_wait(link.wait))
        link = link.after
    return f"{line.length}: {', '.join(waits)}"


def _wait(wait: Wait) -> str:
    return (
        f"wait {wait.number} of {wait.connection.number} in session {wait.connection.session.number}"
        f" want={wait.want} ttr_ms={wait.ttr_ms} outcome={wait.outcome} jobs={[job.id for job in wait.jobs]}"
        f" due={wait.due if wait.deadline_pos >= 0 else None}"
    )


def _named(item: object) -> str:
    if isinstance(item, Job):
        return f"job {item.id}"
    assert isinstance(item, (Wait, Session))
    return f"{type(item).__name__} {item.number}"


def _fields(thing: object, names: tuple[str, ...]) -> str:
    return " ".join(f"{name}={getattr(thing, name)!r}" for name in names)


def _tube_number(tube: Tube) -> int:
    return tube.number


def _session_number(session: Session) -> int:
    return session.number
