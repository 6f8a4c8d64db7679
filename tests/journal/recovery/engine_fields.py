"""Every field of every object of an engine as JSON, to compare engines of different versions.

A later version can have more fields. So `missing` returns only the differences in the fields of the earlier one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.core.engine import Engine
from penstock.core.policy import TubePolicy
from penstock.core.retry import RetryPolicy
from penstock.core.sessions import Session
from penstock.core.table import JobTable
from penstock.core.waits import WaitLine
from penstock.testing.digest import _name, _shown, field_names

# Not part of the state: the log, and objects of the server and the cluster.
_OMITTED = {"outbox", "tag", "copies", "watch", "drivers"}


def engine_fields(engine: Engine) -> dict[str, Any]:
    """Return the fields of the engine and of all its tubes, sessions, consumers, claims, stages and jobs by name."""
    jobs = engine.jobs.scan(0, engine.jobs.count + 1)
    consumers = list(engine.consumers.values())
    claims = [claim for consumer in consumers for claim in consumer.claims.values()]
    things = [*engine.tubes.values(), *engine.sessions.values(), *consumers, *claims, *jobs]
    things += [engine.stages.by_name[name] for name in engine.stages.names()]
    return {"engine": _fields(engine)} | {_name(thing): _fields(thing) for thing in things}


def _fields(thing: object) -> dict[str, Any]:
    names = [name for name in field_names(type(thing)) if name not in _OMITTED]
    return {name: _plain(getattr(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value))
    if isinstance(value, JobTable):
        return [job.id for job in value.scan(0, value.count + 1)]
    if isinstance(value, RetryPolicy):
        return value.text
    if isinstance(value, TubePolicy):
        return {name: _plain(item) for name, item in dataclasses.asdict(value).items()}
    if isinstance(value, WaitLine):
        return _shown(value)
    if isinstance(value, Session):
        return _name(value)
    try:
        return _name(value)
    except AssertionError:
        return _fields(value)


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return where `new` lacks a field of `old` or has another value in it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            text
            for key, value in old.items()
            for text in (
                differences(value, new[key], f"{where}/{key}") if key in new else [f"{where}/{key} is missing"]
            )
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [text for at, (before, after) in pairs for text in differences(before, after, f"{where}/{at}")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]
