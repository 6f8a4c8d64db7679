"""Replies of a node as JSON.

Names of fields are those of the node with underscores. Times are milliseconds and end with `_ms`: points in time since
1970, and durations.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import items, octets
from penstock.journal.history.reader import Event
from penstock.web.names import body_fields, job_path, text_of, tube_path

Reply = Any

_TIMES: Final = frozenset(["created", "expires", "wakes", "next_event", "ttl", "ttr", "now", "since", "ends"])
_YES_NO: Final = frozenset(["paused_in", "paused_out", "once"])
STATES: Final = ("ready", "taken", "delayed", "buried", "done", "zombie", "staged")


def fields(answer: Reply) -> dict[str, Any]:
    """Return a map with simple values."""
    found = {}
    for word, value in answer.items():
        name = octets(word).decode().replace("-", "_")
        found[f"{name}_ms" if name in _TIMES else name] = _simple(name, value)
    return found


def _simple(name: str, value: Reply) -> Any:
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, dict):
        return {text_of(word).replace("-", "_"): _simple("", each) for word, each in value.items()}
    if isinstance(value, list):
        return [_simple("", each) for each in value]
    return value == 1 if name in _YES_NO else value


def job(answer: Reply) -> dict[str, Any]:
    """Return a job with its body."""
    id = octets(answer[b"id"]).decode("ascii")
    state = answer.get(b"state")
    key = answer[b"key"]
    found = {
        "id": id,
        "url": "/api/v1" + job_path(id),
        "tube": text_of(octets(answer[b"tube"])),
        "state": "taken" if state is None else octets(state).decode(),
        "number": answer[b"number"],
        "key": None if key is None else text_of(key),
        "deliveries": answer[b"deliveries"],
        "nacks": answer[b"nacks"],
        "once": answer[b"once"] == 1,
        "created_ms": answer[b"created"],
        **body_fields(answer[b"body"], octets(answer[b"as"])),
    }
    headers = answer.get(b"headers")
    found["headers"] = {} if headers is None else {text_of(name): text_of(value) for name, value in headers.items()}
    return found


def copies(answer: Reply) -> list[dict[str, Any]]:
    """Return the nodes that have a copy of a job, from the reply of SHOW, which is null if the job is gone."""
    if answer is None:
        return []
    words = items(answer)
    found = dict(zip(words[::2], words[1::2], strict=True))
    confirmed = items(found[b"nodes-confirmed"])
    return [
        {"node": octets(node).decode("latin-1"), "has_ack": node in confirmed}
        for node in items(found[b"nodes-delivered"])
    ]


def jobs(answer: Reply) -> list[dict[str, Any]]:
    return [job(each) for each in items(answer)]


def tube_row(answer: Reply) -> dict[str, Any]:
    """Return a tube with its numbers of jobs, from TUBE SCAN or TUBE STATS."""
    name = octets(answer[b"name"])
    found = fields(answer)
    found["consumers"] = found.pop("waiting")
    found["url"] = "/api/v1" + tube_path(name)
    return found


def event(found: Event) -> dict[str, Any]:
    """Return an event of the journal."""
    told = found.as_json(bodies=False)
    if found.raw_tube is not None:
        told["tube"] = text_of(found.raw_tube)
    if found.job is not None:
        told["url"] = "/api/v1" + job_path(found.job)
    if found.body is not None:
        told.update(body_fields(found.body, b"text"))
        del told["kind"]
    return told


def sections(answer: Reply) -> dict[str, Any]:
    """Return the fields of INFO. Numbers are converted."""
    found: dict[str, Any] = {}
    for line in octets(answer).decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found[name] = number_of(value)
    return found


def number_of(text: str) -> Any:
    """Return a number if the text is one, otherwise the text."""
    try:
        return int(text) if len(text) < 20 else text
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return value if value - value == 0 else text
