"""All public fields of a job, by the names that all our dialects use.

Names are bytes, times are milliseconds, and a missing value is None. Each dialect converts them to its own types.
"""

from __future__ import annotations

from typing import Final

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Job
from penstock.core.limits import NEVER, PRIORITY_UNSET
from penstock.core.tube import key_of

# The fields that are times: points in time since 1970, or durations.
TIMES: Final = frozenset(["created", "expires", "wakes", "next_event", "ttl", "ttr", "now"])


def meta(engine: Engine, job: Job, id: bytes) -> dict[str, bytes | int | None]:
    """Return all fields of a job."""
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


def _moment(moment: int) -> int | None:
    return None if moment == NEVER else moment
