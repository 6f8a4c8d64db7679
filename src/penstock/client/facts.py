"""The facts that a client has about a job or tube: the content of the last reply about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.core.errors import BadAnswer
from penstock.options import decode_body, to_text


@dataclass(slots=True, eq=False, repr=False)
class JobFacts:
    """A job as a server described it."""

    id: str
    raw_tube: bytes
    raw_body: bytes
    body_kind: int
    deliveries: int
    nacks: int
    once: bool
    state: str
    headers: dict[str, str] | None = None  # None if the job has none.
    # True after a put with `unique` or `dedup`: only the id is certain, because the server may have returned a job that
    # existed before.
    is_guess: bool = False

    def body(self) -> Any:
        """Return the body: bytes, text, or a value that was decoded from JSON or msgpack."""
        try:
            return decode_body(self.raw_body, self.body_kind)
        except (ValueError, AssertionError, AttributeError, TypeError):
            raise BadAnswer(f"the body of job {self.id} is not what the server says it is") from None

    def hold(self) -> int:
        """Return the number of the current delivery, or 0 if the job was not taken."""
        return self.deliveries if self.state == "taken" else 0


class KnownJob:
    """The properties that the blocking and the asyncio handle of a job share."""

    __slots__ = ("_facts", "_finished", "_queue")

    def __init__(self, queue: Any, facts: JobFacts) -> None:
        self._queue = queue
        self._facts = facts
        # Whether a call on this object has finished the job. Then the end of its `with` block does nothing.
        self._finished = False

    @property
    def id(self) -> str:
        return self._facts.id

    @property
    def tube(self) -> str:
        return to_text(self._facts.raw_tube)

    @property
    def deliveries(self) -> int:
        return self._facts.deliveries

    @property
    def nacks(self) -> int:
        return self._facts.nacks

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._facts.headers or {})

    def __repr__(self) -> str:
        return f"<penstock job {self.id} in {self.tube!r}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def _hold(self) -> int:
        """Return the number of the delivery that returned this object; 0 if the job was not taken or is finished."""
        return 0 if self._finished else self._facts.hold()


class KnownTube:
    """The name of a tube, which the blocking and the asyncio handle share."""

    __slots__ = ()

    _raw: bytes

    @property
    def name(self) -> str:
        return to_text(self._raw)
