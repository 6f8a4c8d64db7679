"""The fields of an engine's job, as conditions read them. A body is parsed only if a condition reads it, and once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import PenstockError, ProtocolError
from penstock.core.job import BODY_BYTES, BODY_TEXT, Job
from penstock.core.limits import NEVER, PRIORITY_UNSET
from penstock.core.tube import key_of
from penstock.search import conditions as c
from penstock.search.conditions import Fields
from penstock.wire.bodies import to_python
from penstock.wire.headers import decode_headers

# A longer body is not parsed, because this would take longer than a slice: a condition sees null.
BODY_BYTES_READ_MAX: Final = 256 * 1024


class JobFields(Fields):
    """The fields of one job after the other: see `load`."""

    skipped: i64  # How many jobs had a body that was needed and could not be read: too long, or damaged on disk.
    parsed_bytes: i64  # Length of the bodies that were parsed.

    def __init__(
        self, engine: Engine, now: i64, id_of: Callable[[Job], bytes], body_of: Callable[[Job], bytes]
    ) -> None:
        """Read jobs of an engine. `id_of` returns the id of a job, and `body_of` its body, from memory or disk."""
        self.now: i64 = now
        self.skipped = 0
        self.parsed_bytes = 0
        self._engine = engine
        self._id_of = id_of
        self._body_of = body_of
        self._job: Job | None = None
        self._has_body = False
        self._body: object = None

    def load(self, job: Job) -> None:
        """Make `job` the one whose fields are read."""
        self._job = job
        self._has_body = False
        self._body = None

    def get(self, field: i64) -> object:
        job = self._job
        assert job is not None
        if field == c.BODY:
            if not self._has_body:
                self._has_body = True
                self._body = self._read_body(job)
            return self._body
        if field == c.STATE:
            return s.STATE_NAMES[job.state]
        if field == c.AGE:
            return (self.now - job.created) / 1000
        if field == c.DELIVERIES:
            return int(job.deliveries)
        if field == c.NACKS:
            return int(job.nacks)
        if field == c.RETURNS:
            return int(job.returns)
        if field == c.TUBE:
            return _text(self._engine.tube_of(job).name)
        if field == c.KEY:
            key = key_of(self._engine.tube_of(job), job)
            return _text(key) if key else None
        if field == c.NUMBER:
            return int(job.local) if job.local >= 0 else None
        if field == c.CREATED:
            return int(job.created) / 1000
        if field == c.EXPIRES:
            return None if job.expiry == NEVER else int(job.expiry) / 1000
        if field == c.ID:
            return self._id_of(job).decode()
        if field == c.HOLDER:
            return self._engine.session_number(job.holder) if job.holder >= 0 else None
        if field == c.AS:
            kind = job.user_body_kind()
            return "bytes" if kind == BODY_BYTES else "text" if kind == BODY_TEXT else "json"
        return self._get_extra(job, field)

    def _get_extra(self, job: Job, field: i64) -> object:
        """Return a field that only few jobs have."""
        extra = job.extra
        if field == c.PRIORITY:
            given = PRIORITY_UNSET if extra is None else int(extra.priority_given)
            return int(job.priority) if given == PRIORITY_UNSET else given
        if field == c.BURIES:
            return 0 if extra is None else int(extra.buries)
        if field == c.HEADERS:
            if extra is None or not extra.headers:
                return {}
            return {name: _text(value) for name, value in decode_headers(extra.headers).items()}
        if extra is None:
            return None
        if field == c.REASON:
            return _text(extra.reason) if extra.reason else None
        assert field == c.NAME
        return _text(extra.name) if extra.name else None

    def _read_body(self, job: Job) -> object:
        """Return the value of a body: text if its bytes are UTF-8, or null if it cannot be read."""
        kept = job.user_body()
        length = i64(len(kept) if isinstance(kept, bytes) else kept.length)
        if length > BODY_BYTES_READ_MAX:
            self.skipped += 1
            return None
        self.parsed_bytes += length
        try:
            value = to_python(kept if isinstance(kept, bytes) else self._body_of(job), job.user_body_kind())
            return value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            return None
        except (PenstockError, ProtocolError):
            self.skipped += 1
            return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
