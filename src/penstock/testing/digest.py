"""A digest of the whole state of an engine: equal digests mean equal engines.

`describe` lists the state, one line for each object, in an order that depends on the state only. `digest` hashes these
lines. Fields are found by introspection, so new fields are included without further work. Neither Python's hash seed
nor compilation changes a byte. If two digests differ, a diff of the descriptions shows where.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from typing import Final

from penstock.core.batches import Claim, Consumer, Stage
from penstock.core.engine import Engine
from penstock.core.job import Draft, Job
from penstock.core.order import ReadyTimes
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.retry import RetryPolicy
from penstock.core.sessions import Session
from penstock.core.statistics.histogram import Histogram
from penstock.core.table import JobTable
from penstock.core.tube import Tube
from penstock.core.waits import Connection, Link, Waiting, WaitLine

# Fields that are not part of the engine's state: the clients of the server, and the cluster protocol.
OMITTED: Final = frozenset(["tag", "copies"])
# Longer bodies are represented by their hash.
SHOWN_BYTES_MAX: Final = 100


def digest(engine: Engine) -> str:
    """Return a hash of the whole state of an engine, with every field of every object."""
    hashed = hashlib.blake2b(digest_size=16)
    for line in describe(engine):
        hashed.update(line.encode())
        hashed.update(b"\n")
    return hashed.hexdigest()


def describe(engine: Engine) -> Iterator[str]:
    """Yield the whole state of an engine, one line for each object."""
    yield f"engine: {_fields(engine)}"
    for tube in sorted(engine.tubes.values(), key=lambda tube: tube.number):
        yield _spelled(tube)
    for session in sorted(engine.sessions.values(), key=lambda session: session.number):
        yield _spelled(session)
    for consumer in sorted(engine.consumers.values(), key=lambda consumer: consumer.name):
        yield _spelled(consumer)
        for claim in consumer.claims.values():
            yield _spelled(claim)
    for name in engine.stages.names():
        yield _spelled(engine.stages.by_name[name])
    for job in engine.jobs.scan(0, engine.jobs.count + 1):
        yield _spelled(job)
    waits = _waits(engine)
    for number in sorted(waits):
        yield _spelled(waits[number])


def _waits(engine: Engine) -> dict[int, Waiting]:
    """Return by number all waiting commands, and the ended ones whose end has not been reported yet."""
    found = {wait.number: wait for wait in engine.outbox.ended_waits}
    for watching in engine.end_waits_by_id.values():
        found |= {wait.number: wait for wait in watching}
    for session in engine.sessions.values():
        waits = {} if session.signals is None else session.signals.waits
        found |= {wait.number: wait for wait in waits.values() if isinstance(wait, Waiting)}
    for tube in engine.tubes.values():
        for line in (tube.take_line, tube.put_line, *tube.key_lines.values()):
            found |= {wait.number: wait for wait in _standing(line)}
    return found


def _standing(line: WaitLine) -> Iterator[Waiting]:
    link = line.head
    while link is not None:
        yield link.wait
        link = link.after


def _spelled(thing: object) -> str:
    return f"{_name(thing)}: {_fields(thing)}"


def _fields(thing: object) -> str:
    return " ".join(f"{name}={_shown(getattr(thing, name))}" for name in field_names(type(thing)))


def field_names(kind: type) -> list[str]:
    """Return the fields of an engine class in a fixed order.

    A compiled class lists its fields in an attribute. The fields of an interpreted class are its annotations.
    """
    names = getattr(kind, "__mypyc_attrs__", None)
    if names is None:
        names = [name for base in kind.__mro__ for name in inspect.get_annotations(base)]
    return sorted(set(names) - OMITTED)


def _shown(value: object) -> str:
    """Return the text of a value. An object that has a line of its own is represented by its name."""
    if isinstance(value, (bytes, bytearray)) and len(value) > SHOWN_BYTES_MAX:
        return f"{len(value)} bytes, blake2b {hashlib.blake2b(value, digest_size=16).hexdigest()}"
    if value is None or isinstance(value, (int, str, bytes)):
        return repr(value)
    if isinstance(value, (Job, Tube, Session, Consumer, Claim, Stage, Waiting, Connection, Link)):
        return _name(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_shown, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_shown(key)}: {_shown(value[key])}' for key in value))}}}"
    if isinstance(value, WaitLine):
        return f"[{', '.join(map(_name, _standing(value)))}]"
    if isinstance(value, Outbox):
        return f"[{', '.join(map(_name, value.ended_waits))}]"
    if isinstance(value, ReadyTimes):
        return str(value.oldest())
    if isinstance(value, Histogram):
        return str(value.counts())
    if isinstance(value, JobTable):
        return f"{value.count} jobs"
    if isinstance(value, (TubePolicy, RetryPolicy)):
        return repr(value) if isinstance(value, TubePolicy) else repr(value.text)
    assert isinstance(value, Draft) or type(value).__module__.startswith("penstock.core."), type(value)
    return f"{type(value).__name__}({_fields(value)})"


def _name(thing: object) -> str:
    if isinstance(thing, Job):
        return f"job {thing.id}"
    if isinstance(thing, Tube):
        return f"tube {thing.number}"
    if isinstance(thing, Session):
        return f"session {thing.number}"
    if isinstance(thing, Connection):
        return f"connection {thing.number} of {_name(thing.session)}"
    if isinstance(thing, Consumer):
        return f"consumer {thing.name!r}"
    if isinstance(thing, Claim):
        return f"claim {thing.number} of {_name(thing.consumer)}"
    if isinstance(thing, Stage):
        return f"stage {thing.name!r}"
    if isinstance(thing, Link):
        return f"link of {_name(thing.wait)}"
    assert isinstance(thing, Waiting)
    return f"{type(thing).__name__} {thing.number}"
